"""Metrics as pairs (sum, weight), added over microbatches, batches and hosts and divided once, at the end.

A mean of means is wrong as soon as batches weigh differently (padding, packing, an uneven last batch), so no mean
exists before `finish`.
"""

import math
from collections.abc import Callable, Iterable, Mapping

import jax
import numpy as np

from mistake import Mistake, nearest
from parallel.sums import Sums

# What may be derived from a finished value, by name: (from which, how).
DERIVED: dict[str, tuple[str, Callable[[float], float]]] = {
    "perplexity": ("loss", lambda loss: math.exp(loss) if loss < 709 else math.inf),
    "bits_per_token": ("loss", lambda loss: loss / math.log(2)),
}


def fetch(sums: Sums) -> Sums:
    """The same pairs as Python floats, in one transfer from the device. An array's elements are called 'name/0', 'name/1'."""
    found = {}
    for name, (total, weight) in jax.device_get(sums).items():
        total, weight = np.broadcast_arrays(np.asarray(total, np.float64), np.asarray(weight, np.float64))
        if total.ndim:
            pairs = zip(total.ravel().tolist(), weight.ravel().tolist(), strict=True)
            found |= {f"{name}/{index}": pair for index, pair in enumerate(pairs)}
        else:
            found[name] = (total.item(), weight.item())
    return found


def finish(sums: Sums, derived: Iterable[str] = ()) -> dict[str, float]:
    """Each sum divided by its weight, then the values named in `derived` (see DERIVED).

    Of an array's elements the least and the greatest are there too, as 'name_least' and 'name_greatest'. A metric of weight 0 has no value and is left out, as is what derives from it: NaN would say that the run diverged.
    Raises Mistake for an unknown name in `derived`.
    """
    values = {name: total / weight for name, (total, weight) in fetch(sums).items() if weight != 0}
    arrays: dict[str, list[float]] = {}
    for name, value in values.items():
        if is_element(name):
            arrays.setdefault(name.partition("/")[0], []).append(value)
    for name, elements in arrays.items():
        values |= {f"{name}_least": min(elements), f"{name}_greatest": max(elements)}
    return values | derive(values, derived)


def is_element(name: str) -> bool:
    """Whether `name` is an element of an array's, one of too many to show each."""
    return "/" in name


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
