"""Random numbers for a training step, from (seed, step, name, example): never from a device, a mesh or the way a batch is split."""

import dataclasses

import jax
import jax.numpy as jnp

from parallel.parameters import name_key


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Randomness:
    """A stream that draws for each example by the example's index in the global batch.

    So the noise of an example is the same on every mesh and for every number of microbatches.
    key: a scalar JAX key of (seed, step, names so far). example_B: int32 [B], index of each example in the global batch.
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

    def keep(self, rate: float, shape: tuple[int, ...]) -> jax.Array:
        """Bool [B, ...] of `shape`, True with probability 1 - rate."""
        keys_B = jax.vmap(lambda example: jax.random.fold_in(self.key, example))(self.example_B)
        return jax.vmap(lambda key: jax.random.bernoulli(key, 1.0 - rate, shape[1:]))(keys_B)


def dropout(x: jax.Array, rate: float, randomness: Randomness | None, name: str) -> jax.Array:
    """x [B, ...] with elements zeroed with probability `rate` and the rest scaled by 1/(1 - rate); x itself when there is no randomness."""
    if randomness is None or rate == 0.0:
        return x
    keep = randomness.named(name).keep(rate, x.shape)
    return jnp.where(keep, x * jnp.asarray(1.0 / (1.0 - rate), x.dtype), jnp.zeros((), x.dtype))
