"""Where a token stands: sinusoids, rotations of queries and keys, and T5's relative bias. Learned positions are an
Embedding.
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from models.layers.initializers import TruncatedNormal
from parallel.annotate import param


def sinusoidal(positions_BS: jax.Array, width: int, dtype: jnp.dtype) -> jax.Array:
    """[B, S, width]: sines in the first half, cosines in the second, wavelengths from 2 pi to 10000 * 2 pi (Vaswani
    et al. 2017).
    """
    half = width // 2
    frequency = jnp.exp(-math.log(10000.0) * jnp.arange(half) / max(half - 1, 1))
    angle = positions_BS[..., None].astype(jnp.float32) * frequency
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1).astype(dtype)


def rotate(x_BSNH: jax.Array, positions_BS: jax.Array, base: float = 10000.0) -> jax.Array:
    """Rotary positions (Su et al. 2021): pairs (h, h + H/2) turned by position * base^(-2h/H), in float32. Shape and
    dtype of x.
    """
    half = x_BSNH.shape[-1] // 2
    frequency = base ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle_BS1h = positions_BS[:, :, None, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(angle_BS1h), jnp.sin(angle_BS1h)
    first, second = jnp.split(x_BSNH.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x_BSNH.dtype)


def relative_bucket(distance: jax.Array, num_buckets: int, max_distance: int, *, causal: bool = False) -> jax.Array:
    """The bucket, int32, of distance = key position - query position (Raffel et al. 2020, section 2.1).

    Half of the buckets are for keys behind the query, half for those ahead (causal: all are for those behind); of each
    half, half are exact small distances and the rest grow logarithmically up to `max_distance`, beyond which all share
    the last.
    """
    each_way = num_buckets if causal else num_buckets // 2
    exact = each_way // 2
    size = jnp.maximum(-distance, 0) if causal else jnp.abs(distance)
    log_scale = jnp.log(jnp.maximum(size, 1) / exact) / math.log(max_distance / exact)
    far = jnp.minimum(exact + (log_scale * (each_way - exact)).astype(jnp.int32), each_way - 1)
    ahead = 0 if causal else jnp.where(distance > 0, each_way, 0)
    return ahead + jnp.where(size < exact, size, far)


class RelativeBias(nnx.Module):
    """T5's relative bias: for each head a learned number a bucket of distance, added to attention scores. Gives float32
    [N, S, S].
    """

    def __init__(self, num_heads: int, *, num_buckets: int = 32, max_distance: int = 128, causal: bool = False):
        self.num_buckets, self.max_distance, self.causal = num_buckets, max_distance, causal
        self.table = param((num_buckets, num_heads), ("relative_buckets", "heads"), TruncatedNormal(0.02))

    def __call__(self, length: int) -> jax.Array:
        steps = jnp.arange(length)
        buckets_ST = relative_bucket(
            steps[None, :] - steps[:, None], self.num_buckets, self.max_distance, causal=self.causal
        )
        return jnp.moveaxis(self.table[...][buckets_ST], -1, 0)
