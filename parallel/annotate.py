"""All that models may import from `parallel`: four verbs and what they speak of.

    param(shape, names, init)               declares a parameter whose dimensions have logical names
    shard(x, 'batch', 'length', 'embed')    says which logical axis each dimension of an activation is
    run_blocks(blocks, x, ...)              runs equal, stacked blocks one after another
    attend(q, k, v, ...)                    attention

Without an active layout they are plain single-device code. With one (`with activate(layout):`) the layout decides what
each
means on its mesh; the model does not change.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Protocol

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from parallel.attention import attention
from parallel.parameters import Declared, param, stack
from parallel.randomness import Randomness, dropout

__all__ = ["Declared", "Randomness", "activate", "attend", "dropout", "param", "part", "run_blocks", "shard", "stack"]


class ActiveLayout(Protocol):
    """What the verbs ask of a layout. Each method gets what the verb got."""

    def constrain(self, x: jax.Array, names: tuple[str, ...], name: str, part: str) -> jax.Array: ...

    def run_blocks(self, body: Callable, x: jax.Array, layers, num_layers: int) -> jax.Array: ...

    def attend(self, q_BSNH: jax.Array, k_BTKH: jax.Array, v_BTKH: jax.Array, **options) -> jax.Array: ...


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


def shard(x: jax.Array, *names: str, name: str) -> jax.Array:
    """x, whose dimensions are the logical axes `names`; `name` is the activation's own, by which remat policies keep
    it.
    """
    assert len(names) == x.ndim, f"{name}: {len(names)} names for {x.ndim} dimensions"
    x = checkpoint_name(x, name)
    layout = _layout.get()
    return x if layout is None else layout.constrain(x, names, name, _part.get())


def run_blocks(blocks: nnx.Module, x: jax.Array, *inputs, randomness: Randomness | None = None) -> jax.Array:
    """Runs the equal blocks stacked in `blocks` (see `stack`) one after another on x.

    Each is called as block(x, *inputs, randomness=its own stream) and must return the shape and dtype of x.
    """
    graph, state = nnx.split(blocks)
    num_layers = jax.tree.leaves(state)[0].shape[0]

    def body(x, layer):
        layer_state, index = layer
        block = nnx.merge(graph, layer_state)
        own = None if randomness is None else randomness.layer(index)
        return block(x, *inputs, randomness=own)

    layers = (state, jax.numpy.arange(num_layers))
    layout = _layout.get()
    if layout is None:
        return jax.lax.scan(lambda x, layer: (body(x, layer), None), x, layers)[0]
    return layout.run_blocks(body, x, layers, num_layers)


def attend(q_BSNH: jax.Array, k_BTKH: jax.Array, v_BTKH: jax.Array, **options) -> jax.Array:
    """Attention [B, S, N, H]; options and meaning as in parallel.attention.attention."""
    layout = _layout.get()
    return (attention if layout is None else layout.attend)(q_BSNH, k_BTKH, v_BTKH, **options)
