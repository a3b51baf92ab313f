"""Pairs (sum, weight) by name: what losses and metrics are until everything has been added up and is divided once."""

import jax

Sums = dict[str, tuple[jax.Array, jax.Array]]


def add(a: Sums, b: Sums) -> Sums:
    """The sums of `a` and `b` together. A name in only one of them stays as it is, so {} is the zero.

    Pure: under jit arrays stay what they are. float32 counts exactly to 2**24 only, so sums over many batches should be
    fetched first: Python floats count to 2**53.
    """
    together = dict(a)
    for name, (total, weight) in b.items():
        together[name] = (a[name][0] + total, a[name][1] + weight) if name in a else (total, weight)
    return together
