"""Causal decoders: a Transformer that sees only what came before, dense or with mixtures of experts (GShard)."""

from typing import Literal

import gin
import jax
import jax.numpy as jnp
from flax import nnx

from mistake import Mistake
from models.layers.attention import Context, SelfAttention
from models.layers.block import TransformerBlock
from models.layers.dense import Dense, FeedForward, activation
from models.layers.embedding import Embedding
from models.layers.initializers import TruncatedNormal
from models.layers.moe import MoE
from models.layers.norm import LayerNorm, RMSNorm
from models.layers.positions import sinusoidal
from models.layers.sizes import check_above_zero, check_heads, check_positive, check_rates
from models.layers.stack import build_stacks, run_stacks
from parallel.annotate import Randomness, Sums, dropout, part, shard


@gin.configurable("lm")
class DecoderLM(nnx.Module):
    """Tokens to the states that predict the next ones, [B, S] -> ([B, S, D], sums), pre-LN.

    Args:
      num_layers, width, num_heads, mlp_width, vocab_size: the shape.
      max_length: rows of the learned position table, and the longest sequence in every case.
      num_kv_heads: key/value heads; None is num_heads, 1 multi-query, between them grouped-query.
      head_dim: None is width / num_heads.
      padded_heads: see SelfAttention; for a number of heads that the mesh does not divide.
      positions: 'learned', 'sinusoidal' (added to the embedding), 'rotary', 'relative' (T5's, 32 buckets a layer,
        behind the query only).
      rotary_base: of the wavelengths.
      norm, norm_epsilon: 'layer' or 'rms'.
      activation, gated_mlp: act(up) or act(gate) * up.
      attention_bias, mlp_bias, norm_bias: whether those layers have biases.
      per_dim_scale, logit_cap: see SelfAttention.
      tied: logits through the token table; False has an output kernel of its own.
      moe: such as `@moe()`: every `moe_every`-th layer is a mixture of experts.
      dropout, attention_dropout: rates.
      initializer_stddev: of the truncated normal that draws every kernel and table; None draws kernels with variance
        1/fan_in.
      dtype: of the computation, 'float32' or 'bfloat16'. Routers, softmax, norms' statistics and logits are float32
        always.
      parts: {'early': 8, 'late': 4} cuts the stack into named parts, which may have rules of their own. With a
        mixture the blocks counted are of `moe_every` layers each.

    Raises Mistake for sizes that don't go together.
    """

    def __init__(
        self,
        num_layers: int = gin.REQUIRED,
        width: int = gin.REQUIRED,
        num_heads: int = gin.REQUIRED,
        mlp_width: int = gin.REQUIRED,
        vocab_size: int = gin.REQUIRED,
        max_length: int = 1024,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        padded_heads: int | None = None,
        positions: Literal["learned", "sinusoidal", "rotary", "relative"] = "rotary",
        rotary_base: float = 10000.0,
        norm: Literal["layer", "rms"] = "rms",
        norm_epsilon: float = 1e-6,
        activation: str = "silu",
        gated_mlp: bool = True,
        attention_bias: bool = False,
        mlp_bias: bool = False,
        norm_bias: bool = False,
        per_dim_scale: bool = False,
        logit_cap: float | None = None,
        tied: bool = True,
        moe: MoE | None = None,
        moe_every: int = 2,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        initializer_stddev: float | None = 0.02,
        dtype: Literal["float32", "bfloat16"] = "float32",
        parts: dict[str, int] | None = None,
    ):
        check_positive("lm", num_layers=num_layers, width=width, num_heads=num_heads, num_kv_heads=num_kv_heads)
        check_positive("lm", head_dim=head_dim, mlp_width=mlp_width, vocab_size=vocab_size, max_length=max_length)
        check_heads("lm", width, num_heads, num_kv_heads, head_dim, positions)
        check_rates("lm", dropout=dropout, attention_dropout=attention_dropout)
        check_above_zero("lm", norm_epsilon=norm_epsilon, logit_cap=logit_cap, initializer_stddev=initializer_stddev)
        check_above_zero("lm", rotary_base=rotary_base)
        if norm == "rms" and norm_bias:
            raise Mistake("lm.norm_bias: an 'rms' norm has none. Leave it out, or take lm.norm = 'layer'.")
        _check_moe(moe, moe_every, num_layers)
        init = None if initializer_stddev is None else TruncatedNormal(initializer_stddev)
        self.width, self.vocab_size, self.max_length, self.positions = width, vocab_size, max_length, positions
        self.dropout_rate, self.dtype = dropout, jnp.dtype(dtype)
        self.moe, self.num_mixtures = moe, num_layers // moe_every if moe else 0
        act = _activation(activation)
        make_norm = lambda width: (
            RMSNorm(width, epsilon=norm_epsilon)
            if norm == "rms"
            else LayerNorm(width, epsilon=norm_epsilon, bias=norm_bias)
        )

        def make_layer(mixture: bool) -> TransformerBlock:
            attention = SelfAttention(
                width,
                num_heads,
                num_kv_heads=num_kv_heads,
                head_dim=head_dim,
                padded_heads=padded_heads,
                bias=attention_bias,
                positions=positions if positions in ("rotary", "relative") else None,
                rotary_base=rotary_base,
                causal=True,
                logit_cap=logit_cap,
                per_dim_scale=per_dim_scale,
                dropout_rate=attention_dropout,
                init=init,
            )
            if mixture:
                mlp = moe.layer(width, mlp_width, act=act, gated=gated_mlp, bias=mlp_bias, init=init)
            else:
                mlp = FeedForward(width, mlp_width, act=act, gated=gated_mlp, bias=mlp_bias, init=init)
            return TransformerBlock(
                attention,
                mlp,
                width=width,
                pre_norm=True,
                epsilon=norm_epsilon,
                bias=norm_bias,
                dropout_rate=dropout,
                make_norm=make_norm,
            )

        table = init or TruncatedNormal(1.0)
        self.token = Embedding(vocab_size, width, rows_name="vocab", init=table)
        self.position = (
            Embedding(max_length, width, rows_name="position", init=table) if positions == "learned" else None
        )
        make_block = (lambda: MixtureBlock(make_layer, moe_every)) if moe else (lambda: make_layer(False))
        self.final_norm = make_norm(width)
        self.output = None if tied else Dense({"embed": width}, {"vocab": vocab_size}, bias=False, init=init)
        # Last: a part may have none of the names above.
        self.cuts = build_stacks(self, make_block, num_layers // moe_every if moe else num_layers, parts, "lm.parts")

    def __call__(
        self,
        tokens_BS: jax.Array,
        segment_ids_BS: jax.Array,
        positions_BS: jax.Array,
        randomness: Randomness | None = None,
    ) -> tuple[jax.Array, Sums]:
        """(states [B, S, D], the mixtures' sums over layers) of int32 inputs [B, S]. Segment id 0 is padding: no token
        sees it, and its own state means nothing.
        """
        if tokens_BS.shape[1] > self.max_length:
            length = tokens_BS.shape[1]
            raise Mistake(f"lm.max_length: {self.max_length}, and the batch has sequences of {length}. Set it to that.")
        with part("decoder"):
            x_BSD = self.token(tokens_BS, self.dtype)
            if self.position is not None:
                x_BSD += self.position(positions_BS, self.dtype)
            if self.positions == "sinusoidal":
                x_BSD += sinusoidal(positions_BS, self.width, self.dtype)
            x_BSD = dropout(x_BSD, self.dropout_rate, randomness, "embeddings")
            x_BSD = shard(x_BSD, "batch", "length", "embed", name="embeddings")
            context = Context(segment_ids_BS, positions_BS)
            x_BSD, sums = run_stacks(self, self.cuts, x_BSD, context, randomness=randomness)
            return self.final_norm(x_BSD), sums

    def logits(self, x_BSD: jax.Array) -> jax.Array:
        """float32 [B, S, V], split by vocabulary where rules say so, and never gathered."""
        logits = self.token.logits(x_BSD) if self.output is None else self.output(x_BSD).astype(jnp.float32)
        return shard(logits, "batch", "length", "vocab", name="logits")


class MixtureBlock(nnx.Module):
    """`count` layers, of which the last is a mixture of experts (GShard: every other one)."""

    def __init__(self, make_layer, count: int):
        self.dense = nnx.List([make_layer(False) for _ in range(count - 1)])
        self.mixture = make_layer(True)

    def __call__(
        self, x_BSD: jax.Array, context: Context, randomness: Randomness | None = None
    ) -> tuple[jax.Array, Sums]:
        for index, layer in enumerate(self.dense):
            x_BSD, _ = layer(x_BSD, context, None if randomness is None else randomness.named(f"dense{index}"))
        return self.mixture(x_BSD, context, None if randomness is None else randomness.named("mixture"))


def _activation(name: str):
    return activation(name, "lm.activation")


def _check_moe(moe: MoE | None, moe_every: int, num_layers: int) -> None:
    if moe is None:
        if moe_every != 2:
            raise Mistake(f"lm.moe_every: {moe_every} has no effect without a mixture of experts. Set lm.moe = @moe().")
        return
    if not isinstance(moe, MoE):
        raise Mistake(f"lm.moe: {moe!r} is not a mixture of experts. Write @moe(), with its parentheses.")
    if moe.routing == "expert_choice":
        raise Mistake(
            "moe.routing: 'expert_choice' looks at tokens that come later, so a causal decoder can't have it. "
            "Take 'top2' or 'top1'."
        )
    if moe_every < 1 or num_layers % moe_every:
        fits = [n for n in range(1, num_layers + 1) if num_layers % n == 0]
        raise Mistake(
            f"lm.moe_every: {moe_every} of {num_layers} layers leaves no mixture of experts, or some layers over. "
            f"These fit: {', '.join(map(str, fits))}."
        )
