"""What is done to a series before it is drawn: smoothing, thinning, ticks."""

import itertools
import math

from training.report.record import Series

# Fewer points than this are drawn as they are.
_SMOOTHED_FROM = 50


def smoothed(points: Series) -> Series:
    """The mean of each value and its neighbours, 2% of the points on either side; () for fewer than 50 points.

    The window is centred and narrows towards both ends, so the curve does not lag: a straight line stays as it is.
    A value that isn't finite stays in its place and enters no mean.
    """
    count = len(points)
    if count < _SMOOTHED_FROM:
        return ()
    finite = [math.isfinite(value) for _, value in points]
    sums = [0.0, *itertools.accumulate(value if ok else 0.0 for (_, value), ok in zip(points, finite))]
    counts = [0, *itertools.accumulate(map(int, finite))]
    result = []
    for i, (step, value) in enumerate(points):
        half = min(count // 50, i, count - 1 - i)
        first, end = i - half, i + half + 1
        result.append((step, (sums[end] - sums[first]) / (counts[end] - counts[first]) if finite[i] else value))
    return result


def thinned(points: Series, limit: int) -> Series:
    """About `limit` of the points: of each stretch its least, its greatest and its first that isn't finite.

    So no spike goes.
    """
    if len(points) <= limit:
        return points
    stretches = max(limit // 2, 1)
    kept = []
    for i in range(stretches):
        stretch = points[i * len(points) // stretches : (i + 1) * len(points) // stretches]
        finite = [point for point in stretch if math.isfinite(point[1])]
        odd = [point for point in stretch if not math.isfinite(point[1])][:1]
        ends = [min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])] if finite else []
        kept.extend(sorted({*ends, *odd}, key=lambda p: p[0]))
    return kept


def linear_ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from `low` to `high`, 1, 2 or 5 times a power of ten apart, at most about `about` of them."""
    assert high > low and about > 0
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first, last = math.ceil(low / apart - 1e-9), math.floor(high / apart + 1e-9)
    return [n * apart for n in range(first, last + 1)]


def log_ticks(low: float, high: float, about: int) -> list[float]:
    """Ticks for a logarithmic axis: 1, 2, 5 of each decade; 1 alone when those are too many; linear ones if too few."""
    assert 0 < low < high
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        ticks = [m * 10.0**d for d in decades for m in steps if low <= m * 10.0**d <= high]
        if len(ticks) <= about * 2:
            break
    return ticks if len(ticks) >= 3 else [tick for tick in linear_ticks(low, high, about) if tick > 0]
