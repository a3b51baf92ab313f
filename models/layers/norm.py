"""Normalization over the model dimension, its statistics in float32."""

import jax
import jax.numpy as jnp
from flax import nnx

from models.layers.initializers import ONES, ZEROS
from parallel.annotate import param


class LayerNorm(nnx.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the model dimension (Ba et al. 2016). [..., D] -> [...,
    D], dtype of x.
    """

    def __init__(self, width: int, *, epsilon: float, bias: bool = True):
        self.epsilon = epsilon
        self.scale = param((width,), ("embed",), ONES)
        self.bias = param((width,), ("embed",), ZEROS) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        x32 = x.astype(jnp.float32)
        mean = x32.mean(-1, keepdims=True)
        centred = x32 - mean
        y = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + self.epsilon) * self.scale[...]
        return (y if self.bias is None else y + self.bias[...]).astype(x.dtype)


class RMSNorm(nnx.Module):
    """x / sqrt(mean(x^2) + epsilon) * scale (Zhang and Sennrich 2019). [..., D] -> [..., D], dtype of x."""

    def __init__(self, width: int, *, epsilon: float):
        self.epsilon = epsilon
        self.scale = param((width,), ("embed",), ONES)

    def __call__(self, x: jax.Array) -> jax.Array:
        x32 = x.astype(jnp.float32)
        y = x32 * jax.lax.rsqrt(jnp.square(x32).mean(-1, keepdims=True) + self.epsilon) * self.scale[...]
        return y.astype(x.dtype)
