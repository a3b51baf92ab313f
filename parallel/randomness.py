"""Random numbers for a training step, from (seed, step, name, example): never from a device, a mesh or the way a batch
is split.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

from mistake import Mistake
from parallel.parameters import name_key


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Randomness:
    """A stream that draws for each example by the example's index in the global batch.

    So the noise of an example is the same on every mesh and for every number of microbatches.
    key: a scalar JAX key of (seed, step, names so far). example_B: int32 [B], index of each example in the global
      batch.
    """

    key: jax.Array
    example_B: jax.Array

    @staticmethod
    def for_step(seed: int, step: jax.Array, num_examples: int) -> "Randomness":
        """The stream of one step, for all `num_examples` examples of its global batch."""
        return Randomness(jax.random.fold_in(jax.random.key(seed), step), jnp.arange(num_examples, dtype=jnp.int32))

    def named(self, name: str) -> "Randomness":
        """The stream called `name` within this one."""
        return Randomness(name_key(self.key, name), self.example_B)

    def layer(self, index: jax.Array | int) -> "Randomness":
        """The stream of layer `index` within this one."""
        return Randomness(jax.random.fold_in(self.key, index), self.example_B)

    def keep(self, rate: float, shape: tuple[int, ...], places: tuple[jax.Array, ...] | None = None) -> jax.Array:
        """Bool [B, ...] of `shape`, True with probability 1 - rate (to 2^-32).

        places: only a block of the whole `shape`: for each dimension after the first the indices in the whole, int [n], of
        what the block has. B may be fewer than in the whole, since noise goes by the example.
        """
        return self._bits(shape, places) < jnp.uint32(min(round((1.0 - rate) * 2**32), 2**32 - 1))

    def uniform(self, shape: tuple[int, ...]) -> jax.Array:
        """float32 [B, ...] of `shape`, even over [0, 1) in steps of 2^-24."""
        return (self._bits(shape, None) >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)

    def _bits(self, shape: tuple[int, ...], places: tuple[jax.Array, ...] | None) -> jax.Array:
        """uint32 [B, ...] of `shape`, or of a block of it."""
        keys_B2 = jax.vmap(lambda example: jax.random.bits(jax.random.fold_in(self.key, example), (2,)))(self.example_B)
        first, second = (keys_B2[:, i].reshape(-1, *(1,) * (len(shape) - 1)) for i in range(2))
        return _mix(_mix(_positions(shape, places) + first) + second)


def _positions(shape: tuple[int, ...], places: tuple[jax.Array, ...] | None) -> jax.Array:
    """uint32 [1, ...]: the place of each element in its example, row-major. Sums of iotas, which any mesh splits without
    sending.
    """
    assert math.prod(shape[1:]) < 2**32, shape
    total = jnp.zeros((1,) * len(shape), jnp.uint32)
    for axis in range(1, len(shape)):
        if places is None:
            index = jax.lax.broadcasted_iota(jnp.uint32, (1, *shape[1:]), axis)
        else:
            index = places[axis - 1].astype(jnp.uint32).reshape(-1, *(1,) * (len(shape) - 1 - axis))
        total += index * jnp.uint32(math.prod(shape[axis + 1 :]))
    return total


def _mix(x: jax.Array) -> jax.Array:
    """MurmurHash3's finalizer (Appleby 2011), a bijection of uint32 in which each input bit flips half of the output
    bits.

    Two of them, each after adding half of an example's key, take a twentieth of Threefry's time; noise for dropout
    needs no more.
    """
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def dropout(x: jax.Array, rate: float, randomness: Randomness | None, name: str) -> jax.Array:
    """x [B, ...] with elements zeroed with probability `rate` and the rest scaled by 1/(1 - rate); x itself when there
    is no randomness.

    Raises Mistake for a rate that is none.
    """
    if not 0.0 <= rate < 1.0:
        raise Mistake(f"dropout: {rate} for {name!r} is not a rate. It must be at least 0 and below 1.")
    if randomness is None or rate == 0.0:
        return x
    keep = randomness.named(name).keep(rate, x.shape)
    return jnp.where(keep, x * jnp.asarray(1.0 / (1.0 - rate), x.dtype), jnp.zeros((), x.dtype))
