"""Named parameters: a record (shape, names, initializer) stands for each until it is initialized, so a model of any
size is built in no memory.

A model's parameters are one flat dict from a dotted path ('encoder.blocks.mlp.up.kernel') to an array. Equal layers are
stacked on a leading dimension named 'layers'.
"""

import dataclasses
import zlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

Initializer = Callable[[jax.Array, tuple[int, ...], jnp.dtype], jax.Array]
Params = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Declared:
    """What a parameter is: its shape, the logical name of each dimension, how a fresh one is drawn (key, shape, dtype),
    and its dtype.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    init: Initializer
    dtype: jnp.dtype = jnp.float32

    def __post_init__(self):
        assert len(self.shape) == len(self.names), (self.shape, self.names)

    @property
    def size(self) -> int:
        """Number of elements, as a Python integer (no overflow at 500B)."""
        size = 1
        for dim in self.shape:
            size *= dim
        return size

    def stacked(self, num_layers: int) -> "Declared":
        """This parameter in each of `num_layers` equal layers."""
        assert "layers" not in self.names, "stacks don't nest"
        return dataclasses.replace(self, shape=(num_layers, *self.shape), names=("layers", *self.names))


def param(shape: tuple[int, ...], names: tuple[str, ...], init: Initializer) -> nnx.Param:
    """Declares a float32 parameter of `shape` whose dimensions have the logical `names`; `bind` gives it a value."""
    record = Declared(tuple(shape), tuple(names), init)
    return nnx.Param(jax.ShapeDtypeStruct(record.shape, record.dtype), declared=record)


def stack(block: nnx.Module, num_layers: int) -> nnx.Module:
    """Turns the declarations of `block` into those of `num_layers` equal blocks, in place: every parameter gets a
    leading 'layers'.
    """
    for _, variable in nnx.to_flat_state(nnx.state(block, nnx.Param)):
        record = variable.get_metadata()["declared"].stacked(num_layers)
        variable.set_metadata(declared=record)
        variable.set_value(jax.ShapeDtypeStruct(record.shape, record.dtype))
    return block


def declared(module: nnx.Module) -> dict[str, Declared]:
    """Every parameter of `module`, by dotted path."""
    flat = nnx.to_flat_state(nnx.state(module, nnx.Param))
    return {".".join(map(str, path)): variable.get_metadata()["declared"] for path, variable in flat}


def bind(module: nnx.Module, params: Params) -> nnx.Module:
    """A copy of `module` that holds `params`: their keys must be exactly the module's paths."""
    graph, state = nnx.split(module)
    flat = [(path, variable.replace(params[".".join(map(str, path))])) for path, variable in nnx.to_flat_state(state)]
    assert len(flat) == len(params), sorted(set(params) - {".".join(map(str, path)) for path, _ in flat})
    return nnx.merge(graph, nnx.from_flat_state(flat))


def abstract(declarations: dict[str, Declared]) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes of the parameters, without their values."""
    return {path: jax.ShapeDtypeStruct(d.shape, d.dtype) for path, d in declarations.items()}


def name_key(key: jax.Array, name: str) -> jax.Array:
    """The stream `name` of `key`: the same on every machine, since it folds in the CRC-32 of the name."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def initialize(declarations: dict[str, Declared], seed: int | jax.Array) -> Params:
    """Fresh values, each a function of (seed, path, layer) alone: not of the mesh, nor of which other parameters exist."""

    def draw(path: str, record: Declared) -> jax.Array:
        key = name_key(jax.random.key(seed), path)
        if record.names[:1] != ("layers",):
            return record.init(key, record.shape, record.dtype)
        keys = jax.vmap(lambda layer: jax.random.fold_in(key, layer))(jnp.arange(record.shape[0]))
        return jax.vmap(lambda k: record.init(k, record.shape[1:], record.dtype))(keys)

    return {path: draw(path, record) for path, record in declarations.items()}
