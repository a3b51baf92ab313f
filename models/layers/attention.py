"""Multi-head self-attention as one block needs it: projections, positions, and `attend`."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from mistake import Mistake
from models.layers.dense import Dense
from models.layers.initializers import ZEROS
from models.layers.positions import RelativeBias, rotate
from parallel.annotate import Randomness, attend, param, shard


@dataclasses.dataclass(frozen=True)
class Context:
    """What every layer of a stack sees beside the residual: segment ids [B, S] (0 = padding) and positions [B, S], both
    int32.
    """

    segments_BS: jax.Array
    positions_BS: jax.Array


jax.tree_util.register_dataclass(Context)


class SelfAttention(nnx.Module):
    """Attention of a sequence to itself. [B, S, D] -> [B, S, D].

    positions: 'rotary' turns queries and keys, 'relative' adds T5's bias, None leaves positions to the embedding.
    padded_heads: heads in all, where a mesh axis doesn't divide num_heads: those beyond num_heads have weights, and
      their answer is masked, so that they change nothing and get no gradient.
    per_dim_scale: queries are also multiplied by softplus(s)/log 2 with a learned s [H], 1 at the start (Lingvo's).
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        padded_heads: int | None = None,
        positions: str | None = None,
        rotary_base: float = 10000.0,
        causal: bool = False,
        logit_cap: float | None = None,
        per_dim_scale: bool = False,
        dropout_rate: float = 0.0,
        init=None,
    ):
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        head_dim = width // num_heads if head_dim is None else head_dim
        self.real_heads = num_heads
        if padded_heads is not None:
            _check_padded(padded_heads, num_heads, num_kv_heads)
            num_kv_heads = padded_heads if num_kv_heads == num_heads else num_kv_heads
            num_heads = padded_heads
        self.rotary_base = rotary_base
        self.positions, self.causal, self.logit_cap, self.dropout_rate = positions, causal, logit_cap, dropout_rate
        queries, keys = {"heads": num_heads, "head_dim": head_dim}, {"kv_heads": num_kv_heads, "head_dim": head_dim}
        self.query = Dense({"embed": width}, queries, bias=bias, init=init)
        self.key = Dense({"embed": width}, keys, bias=bias, init=init)
        self.value = Dense({"embed": width}, keys, bias=bias, init=init)
        self.out = Dense(queries, {"embed": width}, bias=bias, init=init)
        self.scale = param((head_dim,), ("head_dim",), ZEROS) if per_dim_scale else None
        self.relative = RelativeBias(num_heads, causal=causal) if positions == "relative" else None

    def __call__(self, x_BSD: jax.Array, context: Context, randomness: Randomness | None = None) -> jax.Array:
        q_BSNH = shard(self.query(x_BSD), "batch", "length", "heads", "head_dim", name="query")
        k_BSKH = shard(self.key(x_BSD), "batch", "length", "kv_heads", "head_dim", name="key")
        v_BSKH = shard(self.value(x_BSD), "batch", "length", "kv_heads", "head_dim", name="value")
        if self.scale is not None:
            q_BSNH *= (jax.nn.softplus(self.scale[...]) / jnp.log(2.0)).astype(q_BSNH.dtype)
        if self.positions == "rotary":
            turned = (rotate(x, context.positions_BS, self.rotary_base) for x in (q_BSNH, k_BSKH))
            q_BSNH, k_BSKH = turned
        out_BSNH = attend(
            q_BSNH,
            k_BSKH,
            v_BSKH,
            segments_BS=context.segments_BS,
            segments_BT=context.segments_BS,
            causal=self.causal,
            bias_NST=None if self.relative is None else self.relative(x_BSD.shape[1]),
            logit_cap=self.logit_cap,
            dropout_rate=self.dropout_rate,
            randomness=randomness,
        )
        if self.real_heads < out_BSNH.shape[2]:
            real_N1 = (jnp.arange(out_BSNH.shape[2]) < self.real_heads)[:, None]
            out_BSNH = jnp.where(real_N1, out_BSNH, jnp.zeros((), out_BSNH.dtype))
        return self.out(shard(out_BSNH, "batch", "length", "heads", "head_dim", name="attention"))


def _check_padded(padded_heads: int, num_heads: int, num_kv_heads: int) -> None:
    if padded_heads <= num_heads:
        raise Mistake(f"lm.padded_heads: {padded_heads} pads nothing, since there are {num_heads} heads. Leave it out.")
    if num_kv_heads not in (1, num_heads):
        raise Mistake(
            f"lm.padded_heads: {padded_heads} would give the {num_kv_heads} key/value heads other groups of query heads. "
            "It goes with one key/value head, or with as many as query heads."
        )
