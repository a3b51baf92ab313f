"""An encoder small enough to work out by hand, in place of a real one."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from models.layers.embedding import Embedding
from models.layers.initializers import TruncatedNormal
from parallel.annotate import param


class LookUp(nnx.Module):
    """States are tanh(table[token] + 0.1 position); the pooled state is their first times a matrix."""

    def __init__(self, width=6, vocab_size=11, pooler=True):
        self.width, self.vocab_size = width, vocab_size
        self.norm_epsilon, self.act = 1e-12, partial(jax.nn.gelu, approximate=False)
        self.embeddings = nnx.Module()
        self.embeddings.token = Embedding(vocab_size, width, rows_name="vocab", init=TruncatedNormal(1.0))
        self.pooler = param((width, width), ("embed", "pooled"), TruncatedNormal(1.0)) if pooler else None

    def __call__(self, tokens_BS, segment_ids_BS, positions_BS, token_types_BS, randomness=None) -> jax.Array:
        return jnp.tanh(self.embeddings.token(tokens_BS, jnp.float32) + 0.1 * positions_BS[..., None])

    def pool(self, x_BSD):
        return x_BSD[:, 0] @ self.pooler[...]


@pytest.fixture
def encoder_class():
    return LookUp
