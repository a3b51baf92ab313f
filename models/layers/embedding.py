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
        return jnp.take(self.table[...], ids, axis=0).astype(dtype)

    def logits(self, x: jax.Array) -> jax.Array:
        """x [..., D] times the transposed table: float32 [..., rows]."""
        return jnp.einsum("...d,vd->...v", x, self.table[...].astype(x.dtype), preferred_element_type=jnp.float32)
