"""Metrics as pairs (sum, weight), added over microbatches, batches and hosts and divided once, at the end.

A mean of means is wrong as soon as batches weigh differently (padding, packing, an uneven last batch), so no mean
exists before `finish`.
"""

import math
from collections.abc import Callable, Iterable, Mapping

import jax

from mistake import Mistake, nearest
from parallel.sums import Sums

# What may be derived from a finished value, by name: (from which, how).
DERIVED: dict[str, tuple[str, Callable[[float], float]]] = {
    "perplexity": ("loss", lambda loss: math.exp(loss) if loss < 709 else math.inf),
    "bits_per_token": ("loss", lambda loss: loss / math.log(2)),
}


def fetch(sums: Sums) -> Sums:
    """The same pairs as Python floats, in one transfer from the device."""
    return {name: (float(total), float(weight)) for name, (total, weight) in jax.device_get(sums).items()}


def finish(sums: Sums, derived: Iterable[str] = ()) -> dict[str, float]:
    """Each sum divided by its weight, then the values named in `derived` (see DERIVED).

    A metric of weight 0 has no value and is left out, as is what derives from it: NaN would say that the run diverged.
    Raises Mistake for an unknown name in `derived`.
    """
    values = {name: total / weight for name, (total, weight) in fetch(sums).items() if weight != 0}
    return values | derive(values, derived)


def derive(values: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    """The derived values `names` that `values` allow."""
    found = {}
    for name in names:
        if name not in DERIVED:
            all_names = ", ".join(DERIVED)
            raise Mistake(f"metrics.derived: {name!r} can't be derived. {nearest(name, DERIVED)} All: {all_names}.")
        source, how = DERIVED[name]
        if source in values:
            found[name] = how(values[source])
    return found
