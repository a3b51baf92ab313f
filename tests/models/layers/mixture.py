"""A small mixture of experts with random weights, and a batch with padding before, between and after its tokens."""

import functools

import jax
import numpy as np

from models.layers.moe import ExpertLayer, MoE
from parallel.parameters import declared

B, S, D, F, E = 8, 8, 6, 10, 4
SEGMENTS = np.array(
    [[1, 1, 1, 2, 2, 2, 2, 2]] * 5 + [[1, 1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0, 1, 1], [0] * 8], "i4"
)
REAL = SEGMENTS > 0


@functools.cache
def built(gated=True, bias=True, **options) -> tuple[ExpertLayer, dict[str, np.ndarray]]:
    """The layer and random values for all that it declares; the layer is not to be changed."""
    layer = MoE(num_experts=E, **options).layer(D, F, act=jax.nn.silu, gated=gated, bias=bias)
    rng = np.random.default_rng(0)
    values = {path: rng.normal(0, 0.7, d.shape).astype("f4") for path, d in declared(layer).items()}
    return layer, values


X = np.random.default_rng(1).normal(size=(B, S, D)).astype("f4")
