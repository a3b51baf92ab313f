"""Tables looked up by integers, and the tied output that multiplies by one."""

import jax
import jax.numpy as jnp
from flax import nnx

from parallel.annotate import param


class Embedding(nnx.Module):
    """A table [rows, D]: ids [...] int32 -> [..., D]. `rows_name` is the logical name of its rows ('vocab', 'position',
    'token_type').
    """

    def __init__(self, rows: int, width: int, *, rows_name: str, init):
        self.rows = rows
        self.table = param((rows, width), (rows_name, "embed"), init)

    def __call__(self, ids: jax.Array, dtype: jnp.dtype) -> jax.Array:
        # A tied table has a gradient from its logits too. Were the two merged into one scatter-add, it would want the whole
        # table where devices hold shares of its gradient; the barrier keeps them apart until each is reduced.
        table = jax.lax.optimization_barrier(self.table[...])
        return jnp.take(table, ids, axis=0).astype(dtype)

    def logits(self, x: jax.Array) -> jax.Array:
        """x [..., D] times the transposed table: float32 [..., rows]."""
        return jnp.einsum("...d,vd->...v", x, self.table[...].astype(x.dtype), preferred_element_type=jnp.float32)
