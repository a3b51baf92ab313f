"""How quantities are written for people, in the terminal and in the report."""

import math

_SHORT = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_BYTES = ((2**50, "PiB"), (2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def significant(x: float, digits: int = 4) -> str:
    """`x` to so many significant digits: '2.346', '0.03120', '1.000e-04', '12,346'; 'nan' and 'inf' as they are."""
    if not math.isfinite(x):
        return str(float(x))
    if x == 0:
        return "0"
    scientific = f"{x:.{digits - 1}e}"
    # The exponent after rounding: 9.9999 has that of 10.
    places = digits - 1 - int(scientific.partition("e")[2])
    if places > digits + 2:
        return scientific
    return f"{x:,.{max(places, 0)}f}"


def short(n: float) -> str:
    """A large count to three digits: '512', '12.3k', '4.39M', '1.34B' (billion), '2.10T'."""
    for unit, letter in _SHORT:
        if abs(n) >= unit * 0.9995:
            return f"{significant(n / unit, 3)}{letter}"
    return f"{n:,.0f}" if abs(n) >= 100 or n == int(n) else significant(n, 3)


def counted(n: int, thing: str) -> str:
    """'1 step', '4,000 steps'."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def data_size(num_bytes: float) -> str:
    """Bytes in binary units: '512 B', '16.7 MiB'."""
    for unit, name in _BYTES:
        if num_bytes >= unit:
            return f"{significant(num_bytes / unit, 3)} {name}"
    return f"{num_bytes:.0f} B"


def duration(seconds: float) -> str:
    """A time: '81.2 ms', '4.20 s', '42 s', '4 min 12 s', '2 h 05 min', '3 d 04 h'."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 1:
        return f"{significant(seconds * 1e3, 3)} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def percent(fraction: float) -> str:
    """'31.2%', '2.0%', '100%'."""
    if not math.isfinite(fraction):
        return str(float(fraction))
    return "100%" if fraction == 1 else f"{fraction * 100:.1f}%"


def is_share(name: str) -> bool:
    """Whether the metric of that name lies between 0 and 1 and reads best as a percentage."""
    return name.endswith(("accuracy", "share", "fraction"))


def metric(name: str, x: float) -> str:
    """The value of a metric: accuracies, shares and fractions as percentages, all others to four digits."""
    return percent(x) if is_share(name) else significant(x)


def words(name: str) -> str:
    """A metric's name for people: 'masked_accuracy' is 'masked accuracy'."""
    return name.replace("_", " ")
