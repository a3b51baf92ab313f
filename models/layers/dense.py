"""Linear maps over named dimensions, and the feed-forward block."""

import jax
import jax.numpy as jnp
from flax import nnx

from mistake import Mistake, nearest
from models.layers.initializers import ZEROS, FanIn
from parallel.annotate import param, shard

ACTIVATIONS = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


def activation(name: str, binding: str):
    """The activation function called `name`; Mistake, beginning with `binding`, when there is none."""
    if name not in ACTIVATIONS:
        raise Mistake(
            f"{binding}: {name!r} is not an activation. {nearest(name, ACTIVATIONS)} All: {', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[name]


class Dense(nnx.Module):
    """y = x @ kernel + bias over named dimensions, computed in the dtype of x.

    The kernel has shape (*inputs, *outputs); the last len(inputs) dimensions of x are contracted. Parameters are
    float32.
    """

    def __init__(self, inputs: dict[str, int], outputs: dict[str, int], *, bias: bool = True, init=None):
        init = init or FanIn(len(inputs))
        self.inputs, self.outputs = tuple(inputs.values()), tuple(outputs.values())
        self.kernel = param((*self.inputs, *self.outputs), (*inputs, *outputs), init)
        self.bias = param(self.outputs, tuple(outputs), ZEROS) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        n = len(self.inputs)
        # One 2-D matmul: backends choose their best kernel for it more surely than for a general contraction.
        kernel = self.kernel[...].astype(x.dtype)
        y = jax.lax.dot_general(x, kernel, ((tuple(range(x.ndim - n, x.ndim)), tuple(range(n))), ((), ())))
        return y if self.bias is None else y + self.bias[...].astype(x.dtype)


class FeedForward(nnx.Module):
    """down(act(up(x))), or with `gated` down(act(gate(x)) * up(x)) (Shazeer 2020, 'GLU variants improve Transformer').
    [B, S, D] -> [B, S, D].
    """

    def __init__(self, width: int, hidden: int, *, act, gated: bool, bias: bool, init=None):
        self.act = act
        self.gate = Dense({"embed": width}, {"mlp": hidden}, bias=bias, init=init) if gated else None
        self.up = Dense({"embed": width}, {"mlp": hidden}, bias=bias, init=init)
        self.down = Dense({"mlp": hidden}, {"embed": width}, bias=bias, init=init)

    def __call__(self, x_BSD: jax.Array) -> jax.Array:
        up_BSF = shard(self.up(x_BSD), "batch", "length", "mlp", name="mlp_up")
        if self.gate is None:
            hidden_BSF = self.act(up_BSF)
        else:
            hidden_BSF = self.act(shard(self.gate(x_BSD), "batch", "length", "mlp", name="mlp_gate")) * up_BSF
        return self.down(shard(hidden_BSF, "batch", "length", "mlp", name="mlp_hidden"))
