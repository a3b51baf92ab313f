"""All that models may import from `parallel`: six verbs and what they speak of.

    param(shape, names, init)               declares a parameter whose dimensions have logical names
    shard(x, 'batch', 'length', 'embed')    says which logical axis each dimension of an activation is
    run_blocks(blocks, x, ...)              runs equal, stacked blocks one after another: a scan, or a pipeline
    attend(q, k, v, ...)                    attention: one kernel, a ring, heads exchanged
    convolve(x, kernel, ...)                a convolution: whole images, or shards that exchange their edges
    apart(function, shared, *arrays, ...)   rows that know nothing of each other: all at once, or each device its own

Without an active layout they are plain single-device code. With one (`with activate(layout):`) the layout decides what
each means on its mesh; the model does not change.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from parallel.attention import attention
from parallel.convolution import convolution
from parallel.parameters import Declared, param, stack
from parallel.randomness import Randomness, dropout
from parallel.sums import Sums

__all__ = [
    "Declared",
    "Randomness",
    "Sums",
    "activate",
    "apart",
    "attend",
    "convolve",
    "dropout",
    "param",
    "part",
    "run_blocks",
    "shard",
    "stack",
]

IMAGE_AXES = ("batch", "height", "width", "channels")


class ActiveLayout(Protocol):
    """What the verbs ask of a layout. Each method gets what the verb got, and the part of the model that it is in."""

    def constrain(self, x: jax.Array, names: tuple[str | None, ...], name: str, part: str) -> jax.Array: ...

    def use(self, weight: jax.Array, record: Declared, path: str) -> jax.Array: ...

    def run_blocks(
        self, body: Callable, x: Any, per_example: Any, layers: Any, num_layers: int, part: str
    ) -> tuple[Any, Sums]: ...

    def attend(self, q_BSNH: jax.Array, k_BTKH: jax.Array, v_BTKH: jax.Array, part: str, **options) -> jax.Array: ...

    def convolve(
        self, x_BHWC: jax.Array, kernel_HWIO: jax.Array, names: tuple[str, ...], name: str, part: str, **options
    ) -> jax.Array: ...

    def apart(
        self, function: Callable, shared: Any, arrays: tuple[jax.Array, ...], axis: str, name: str, part: str, **options
    ) -> Any: ...


_layout: contextvars.ContextVar[ActiveLayout | None] = contextvars.ContextVar("layout", default=None)
_part: contextvars.ContextVar[str] = contextvars.ContextVar("part", default="")


@contextlib.contextmanager
def activate(layout: ActiveLayout) -> Iterator[None]:
    """Within it the verbs mean what `layout` says. Tracing must happen inside."""
    token = _layout.set(layout)
    try:
        yield
    finally:
        _layout.reset(token)


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """Activations named within it belong to the part `name` of the model: a prefix of parameter paths, which may have
    rules of its own.
    """
    outer = _part.get()
    token = _part.set(f"{outer}.{name}" if outer else name)
    try:
        yield
    finally:
        _part.reset(token)


def shard(x: jax.Array, *names: str | None, name: str) -> jax.Array:
    """x, whose dimensions are the logical axes `names` (None: a dimension that is never split).

    `name` is the activation's own, by which remat policies keep it and rules may single it out.
    """
    assert len(names) == x.ndim, f"{name}: {len(names)} names for {x.ndim} dimensions"
    x = checkpoint_name(x, name)
    layout = _layout.get()
    return x if layout is None else layout.constrain(x, names, name, _part.get())


def run_blocks(
    blocks: nnx.Module, x: Any, *inputs: Any, randomness: Randomness | None = None, first_layer: int = 0
) -> tuple[Any, Sums]:
    """Runs the equal blocks stacked in `blocks` (see `stack`) one after another on x: (x, sums added over the blocks).

    x and each of `inputs` is an array [B, ...] or a pytree of them; a leaf of no dimension is everybody's. Each block is
    called as block(x, *inputs, randomness=its own stream) and returns (x of the same shapes and dtypes, sums), where
    sums are pairs (sum, weight) by name, or {}. A block sees nothing of the batch but x and inputs: a pipeline gives it
    a part of the batch at a time. `first_layer` numbers the layers' streams when `blocks` are not the model's first.
    """
    graph, state = nnx.split(blocks)
    num_layers = jax.tree.leaves(state)[0].shape[0]
    layout, stack_part = _layout.get(), _part.get()

    def body(layer, x, per_example):
        layer_state, index = layer
        inputs, randomness = per_example
        own = None if randomness is None else randomness.layer(index)
        if layout is not None:
            layer_state = _used(layer_state, layout, stack_part)
        return nnx.merge(graph, layer_state)(x, *inputs, randomness=own)

    layers = (state, first_layer + jnp.arange(num_layers))
    if layout is None:
        return scan_layers(body, x, (inputs, randomness), layers)
    return layout.run_blocks(body, x, (inputs, randomness), layers, num_layers, stack_part)


def _used(layer_state: nnx.State, layout: ActiveLayout, part: str) -> nnx.State:
    """One layer's weights as they are computed with."""
    flat = []
    for path, variable in nnx.to_flat_state(layer_state):
        record, name = variable.get_metadata()["declared"], ".".join(map(str, path))
        value = layout.use(variable.get_value(), record, f"{part}.{name}" if part else name)
        flat.append((path, variable.replace(value)))
    return nnx.from_flat_state(flat)


def scan_layers(body: Callable, x: Any, per_example: Any, layers: Any) -> tuple[Any, Sums]:
    """body(layer, x, per_example) -> (x, sums) over the leading dimension of `layers`, one after another; sums are added
    up.
    """
    x, sums = jax.lax.scan(lambda x, layer: body(layer, x, per_example), x, layers)
    return x, jax.tree.map(lambda s: s.sum(0), sums)


def attend(q_BSNH: jax.Array, k_BTKH: jax.Array, v_BTKH: jax.Array, **options) -> jax.Array:
    """Attention [B, S, N, H]; options and meaning as in parallel.attention.attention."""
    layout = _layout.get()
    if layout is None:
        return attention(q_BSNH, k_BTKH, v_BTKH, **options)
    return layout.attend(q_BSNH, k_BTKH, v_BTKH, part=_part.get(), **options)


def convolve(
    x_BHWC: jax.Array, kernel_HWIO: jax.Array, *, names: tuple[str, ...] = IMAGE_AXES, name: str, **options
) -> jax.Array:
    """A 2-D convolution [B, H', W', O]; options and meaning as in parallel.convolution.convolution.

    `names` are the logical axes of x, `name` is the result's own.
    """
    layout = _layout.get()
    if layout is None:
        return convolution(x_BHWC, kernel_HWIO, **options)
    return layout.convolve(x_BHWC, kernel_HWIO, names, name, _part.get(), **options)


def apart(
    function: Callable, shared: Any, *arrays: jax.Array, axis: str, name: str, what: str, whole: tuple[str, ...] = ()
) -> Any:
    """function(shared, *arrays), for what a partitioner can't cut, such as a sort over all rows.

    arrays and results are [rows, ...], rows being the logical `axis`; a result's row must depend on the same row of the
    arrays alone, whichever others there are. `name` is the result's own. Raises Mistake, beginning with `what` (such as
    "moe.dispatch: 'sorted'"), under a layout that can't have it: a pipeline, or one that splits any of the axes `whole`.
    """
    layout = _layout.get()
    if layout is None:
        return function(shared, *arrays)
    return layout.apart(function, shared, arrays, axis, name, _part.get(), what=what, whole=whole)
