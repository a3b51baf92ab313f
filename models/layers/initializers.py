"""How fresh parameters are drawn: small records, so that equal declarations compare equal."""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Constant:
    """Every element is `value`."""

    value: float

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        return jnp.full(shape, self.value, dtype)


@dataclasses.dataclass(frozen=True)
class TruncatedNormal:
    """Normal of standard deviation `stddev`, redrawn beyond two of them (Devlin et al. 2018 use .02)."""

    stddev: float

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        # A normal cut at +-2 has .8796 of the standard deviation it had before.
        return jax.random.truncated_normal(key, -2.0, 2.0, shape, dtype) * (self.stddev / 0.87962566)


@dataclasses.dataclass(frozen=True)
class FanIn:
    """Truncated normal of variance 1/fan_in, where fan_in is the product of the first `inputs` dimensions (Glorot &
    Bengio 2010).
    """

    inputs: int = 1

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        return TruncatedNormal(1.0 / math.sqrt(math.prod(shape[: self.inputs])))(key, shape, dtype)


ZEROS = Constant(0.0)
ONES = Constant(1.0)


@dataclasses.dataclass(frozen=True)
class Each:
    """Each of the leading dimension is drawn by `one`, on its own."""

    one: Callable

    def __call__(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        return jax.vmap(lambda k: self.one(k, shape[1:], dtype))(jax.random.split(key, shape[0]))
