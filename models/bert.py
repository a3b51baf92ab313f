"""BERT-like encoders: BERT as published (Devlin et al. 2018), and the switches that large encoders need."""

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
from models.layers.initializers import FanIn, TruncatedNormal
from models.layers.norm import LayerNorm
from models.layers.positions import sinusoidal
from models.layers.sizes import check_above_zero, check_heads, check_positive, check_rates
from models.layers.stack import build_stacks, run_stacks
from parallel.annotate import Randomness, dropout, part, shard


@gin.configurable("bert")
class Bert(nnx.Module):
    """Tokens to hidden states, [B, S] -> [B, S, D], dtype `dtype`.

    Args:
      num_layers, width, num_heads, mlp_width, vocab_size: the shape.
      max_length: rows of the learned position table, and the longest sequence in every case.
      num_kv_heads: key/value heads; None is num_heads, 1 multi-query, between them grouped-query.
      head_dim: None is width / num_heads.
      token_types: rows of the segment table; 0 leaves segments out.
      positions: 'learned', 'sinusoidal' (added to the embedding), 'rotary', 'relative' (in attention; T5's, 32 buckets
        a layer).
      pre_norm: x + f(norm(x)) and a final norm in place of norm(x + f(x)) and a norm of the embeddings.
      activation, gated_mlp: act(up) or act(gate) * up.
      attention_bias, mlp_bias, norm_bias: whether those layers have biases.
      per_dim_scale, logit_cap: see SelfAttention.
      pooler: a dense tanh layer over the first token (`pool`), which sequence classification reads.
      dropout, attention_dropout: rates.
      initializer_stddev: of the truncated normal that draws every kernel and table; None draws kernels with variance
        1/fan_in.
      dtype: of the computation, 'float32' or 'bfloat16'. Parameters are float32 always, and so are softmax, norms'
        statistics and logits.
      parts: {'early': 8, 'late': 4} cuts the stack of layers into named parts, which may have rules of their own.

    Raises Mistake for sizes that don't go together.
    """

    def __init__(
        self,
        num_layers: int = gin.REQUIRED,
        width: int = gin.REQUIRED,
        num_heads: int = gin.REQUIRED,
        mlp_width: int = gin.REQUIRED,
        vocab_size: int = gin.REQUIRED,
        max_length: int = 512,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        token_types: int = 2,
        positions: Literal["learned", "sinusoidal", "rotary", "relative"] = "learned",
        pre_norm: bool = False,
        norm_epsilon: float = 1e-12,
        activation: str = "gelu",
        gated_mlp: bool = False,
        attention_bias: bool = True,
        mlp_bias: bool = True,
        norm_bias: bool = True,
        per_dim_scale: bool = False,
        logit_cap: float | None = None,
        pooler: bool = False,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        initializer_stddev: float | None = 0.02,
        dtype: Literal["float32", "bfloat16"] = "float32",
        parts: dict[str, int] | None = None,
    ):
        check_positive("bert", num_layers=num_layers, width=width, num_heads=num_heads, num_kv_heads=num_kv_heads)
        check_positive("bert", head_dim=head_dim, mlp_width=mlp_width, vocab_size=vocab_size, max_length=max_length)
        check_heads("bert", width, num_heads, num_kv_heads, head_dim, positions)
        check_rates("bert", dropout=dropout, attention_dropout=attention_dropout)
        check_above_zero("bert", norm_epsilon=norm_epsilon, logit_cap=logit_cap, initializer_stddev=initializer_stddev)
        if token_types < 0:
            raise Mistake(f"bert.token_types: {token_types}. It must be at least 0, which leaves segments out.")
        init = None if initializer_stddev is None else TruncatedNormal(initializer_stddev)
        self.width, self.vocab_size, self.max_length = width, vocab_size, max_length
        self.positions, self.token_types, self.dropout_rate = positions, token_types, dropout
        self.norm_epsilon, self.act = norm_epsilon, _activation(activation)
        self.dtype = jnp.dtype(dtype)

        table = init or TruncatedNormal(1.0)
        self.embeddings = Embeddings(
            width=width,
            vocab_size=vocab_size,
            learned_positions=max_length if positions == "learned" else 0,
            token_types=token_types,
            epsilon=None if pre_norm else norm_epsilon,
            norm_bias=norm_bias,
            init=table,
        )
        make_block = lambda: TransformerBlock(
            SelfAttention(
                width,
                num_heads,
                num_kv_heads=num_kv_heads,
                head_dim=head_dim,
                bias=attention_bias,
                positions=positions if positions in ("rotary", "relative") else None,
                logit_cap=logit_cap,
                per_dim_scale=per_dim_scale,
                dropout_rate=attention_dropout,
                init=init,
            ),
            FeedForward(width, mlp_width, act=self.act, gated=gated_mlp, bias=mlp_bias, init=init),
            width=width,
            pre_norm=pre_norm,
            epsilon=norm_epsilon,
            bias=norm_bias,
            dropout_rate=dropout,
        )
        self.final_norm = LayerNorm(width, epsilon=norm_epsilon, bias=norm_bias) if pre_norm else None
        self.pooler = Dense({"embed": width}, {"pooled": width}, init=init or FanIn()) if pooler else None
        # Last: a part may have none of the names above.
        self.cuts = build_stacks(self, make_block, num_layers, parts, "bert.parts")

    def __call__(
        self,
        tokens_BS: jax.Array,
        segment_ids_BS: jax.Array,
        positions_BS: jax.Array,
        token_types_BS: jax.Array,
        randomness: Randomness | None = None,
    ) -> jax.Array:
        """Hidden states [B, S, D] of int32 inputs [B, S]. Segment id 0 is padding: no token sees it, and its own state
        means nothing.
        """
        if tokens_BS.shape[1] > self.max_length:
            length = tokens_BS.shape[1]
            raise Mistake(
                f"bert.max_length: {self.max_length}, and the batch has sequences of {length}. Set it to that."
            )
        with part("encoder"):
            x_BSD = self.embeddings(tokens_BS, positions_BS, token_types_BS, self.dtype)
            if self.positions == "sinusoidal":
                x_BSD += sinusoidal(positions_BS, self.width, self.dtype)
            x_BSD = dropout(x_BSD, self.dropout_rate, randomness, "embeddings")
            x_BSD = shard(x_BSD, "batch", "length", "embed", name="embeddings")
            context = Context(segment_ids_BS, positions_BS)
            x_BSD, _ = run_stacks(self, self.cuts, x_BSD, context, randomness=randomness)
            return x_BSD if self.final_norm is None else self.final_norm(x_BSD)

    def pool(self, x_BSD: jax.Array) -> jax.Array:
        """tanh(dense(first token)), [B, D]."""
        assert self.pooler is not None
        with part("encoder"):
            return shard(jnp.tanh(self.pooler(x_BSD[:, 0])), "batch", "pooled", name="pooled")


class Embeddings(nnx.Module):
    """The sum of token, position and segment tables, then a norm (epsilon None: no norm). int32 [B, S] -> [B, S, D]."""

    def __init__(self, *, width, vocab_size, learned_positions, token_types, epsilon, norm_bias, init):
        self.token = Embedding(vocab_size, width, rows_name="vocab", init=init)
        self.position = (
            Embedding(learned_positions, width, rows_name="position", init=init) if learned_positions else None
        )
        self.token_type = Embedding(token_types, width, rows_name="token_type", init=init) if token_types else None
        self.norm = LayerNorm(width, epsilon=epsilon, bias=norm_bias) if epsilon is not None else None

    def __call__(
        self, tokens_BS: jax.Array, positions_BS: jax.Array, token_types_BS: jax.Array, dtype: jnp.dtype
    ) -> jax.Array:
        x_BSD = self.token(tokens_BS, dtype)
        if self.token_type is not None:
            x_BSD += self.token_type(token_types_BS, dtype)
        if self.position is not None:
            x_BSD += self.position(positions_BS, dtype)
        return x_BSD if self.norm is None else self.norm(x_BSD)


def _activation(name: str):
    return activation(name, "bert.activation")
