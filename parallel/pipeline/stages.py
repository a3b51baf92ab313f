"""What every schedule is made of: microbatches, stages that run side by side, and the buffer that shifts between them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from parallel.annotate import scan_layers
from parallel.sums import Sums


def microbatches(tree: Any, count: int) -> Any:
    """Leaves [B, ...] -> [M, B/M, ...], example b in microbatch b mod M; leaves of no dimension stay.

    [B/M, M] is what B is cut into, since the dimension that a loop counts must not be the one that devices share.
    """
    cut = lambda x: jnp.swapaxes(x.reshape(x.shape[0] // count, count, *x.shape[1:]), 0, 1)
    return jax.tree.map(lambda x: cut(x) if jnp.ndim(x) else x, tree)


def together(tree: Any) -> Any:
    """The inverse of `microbatches` for leaves [M, b, ...]."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), tree)


def at(tree: Any, index: jax.Array) -> Any:
    """Microbatch `index` of leaves [M, b, ...]; for an index [L] leaves [L, b, ...]. Leaves of no dimension stay."""
    return jax.tree.map(lambda x: jnp.take(x, index, axis=0) if jnp.ndim(x) else x, tree)


def choose(condition_L: jax.Array, yes: Any, no: Any) -> Any:
    """Leaf by leaf [L, ...]: where(condition of the stage, yes, no)."""
    pick = lambda y, n: jnp.where(condition_L.reshape(-1, *(1,) * (y.ndim - 1)), y, n)
    return jax.tree.map(pick, yes, no)


def zeros(tree: Any) -> Any:
    """Zeros like the leaves of `tree`."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), tree)


@dataclasses.dataclass(frozen=True)
class Stages:
    """The stages of one stack. `body` is one layer: (layer, x, per_example) -> (x, sums); arrangement: which layer is where."""

    body: Callable
    arrangement: np.ndarray
    axis: str
    mesh: Mesh | None

    @property
    def count(self) -> int:
        """Number of stages L."""
        return self.arrangement.shape[1]

    def arrange(self, layers: Any) -> Any:
        """Leaves [num_layers, ...] -> [R, L, K, ...]: the layers of each stage at each visit."""
        flat = self.arrangement.reshape(-1)
        shape = self.arrangement.shape
        if np.array_equal(flat, np.arange(flat.size)):
            arranged = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), layers)
        else:
            arranged = jax.tree.map(lambda x: x[np.maximum(flat, 0)].reshape(*shape, *x.shape[1:]), layers)
        return self.pin(arranged, 1)

    def pin(self, tree: Any, dim: int = 0) -> Any:
        """Dimension `dim` of each leaf on the stages' mesh axis; the others stay as they are."""
        if self.mesh is None:
            return tree

        def place(x):
            free = [PartitionSpec.UNCONSTRAINED] * x.ndim
            free[dim] = self.axis
            return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, PartitionSpec(*free)))

        return jax.tree.map(place, tree)

    def run(self, layers_L: Any, x_L: Any, per_example_L: Any, visit_L: jax.Array) -> tuple[Any, Sums]:
        """Each stage on its own microbatch: x [L, b, ...] -> (x, sums [L, ...]). layers: [L, K, ...], of this visit."""
        real_RLK = jnp.asarray(self.arrangement >= 0)
        padded = bool((self.arrangement < 0).any())
        real_LK = jax.vmap(lambda real, visit: real[visit], in_axes=(1, 0))(real_RLK, visit_L) if padded else None

        def layer(packed, x, per_example):
            one, real = packed
            y, sums = self.body(one, x, per_example)
            if not padded:
                return y, sums
            kept = lambda new, old: jax.tree.map(lambda n, o: jnp.where(real, n, o), new, old)
            return kept(y, x), kept(sums, zeros(sums))

        def stage(layers, real, x, per_example):
            return scan_layers(layer, x, per_example, (layers, real))

        own = jax.tree.map(lambda x: 0 if jnp.ndim(x) else None, per_example_L)
        run = jax.vmap(
            stage, in_axes=(0, 0 if padded else None, 0, own), spmd_axis_name=None if self.mesh is None else self.axis
        )
        real = real_LK if padded else jnp.ones(self.arrangement.shape[2], bool)
        return run(layers_L, real, x_L, per_example_L)

    def visit(self, layers_RL: Any, visit_L: jax.Array) -> Any:
        """The layers [L, K, ...] of each stage at its own visit."""
        if self.arrangement.shape[0] == 1:
            return jax.tree.map(lambda x: x[0], layers_RL)
        pick = jax.vmap(lambda x, r: jax.lax.dynamic_index_in_dim(x, r, 0, keepdims=False), in_axes=(1, 0))
        return self.pin(jax.tree.map(lambda x: pick(x, visit_L), layers_RL))
