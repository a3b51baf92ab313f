"""One Transformer block, post-LN as published or pre-LN as large models need."""

import jax
from flax import nnx

from models.layers.attention import Context, SelfAttention
from models.layers.dense import FeedForward
from models.layers.norm import LayerNorm
from parallel.annotate import Randomness, Sums, dropout, shard


class TransformerBlock(nnx.Module):
    """Attention, then feed-forward, each with its residual. [B, S, D] -> [B, S, D].

    pre_norm=False: x = norm(x + f(x)) (Vaswani et al. 2017, BERT); True: x = x + f(norm(x)) (Xiong et al. 2020).
    """

    def __init__(
        self,
        attention: SelfAttention,
        mlp: FeedForward,
        *,
        width: int,
        pre_norm: bool,
        epsilon: float,
        bias: bool,
        dropout_rate: float,
    ):
        self.attention, self.mlp = attention, mlp
        self.attention_norm = LayerNorm(width, epsilon=epsilon, bias=bias)
        self.mlp_norm = LayerNorm(width, epsilon=epsilon, bias=bias)
        self.pre_norm, self.dropout_rate = pre_norm, dropout_rate

    def __call__(
        self, x_BSD: jax.Array, context: Context, randomness: Randomness | None = None
    ) -> tuple[jax.Array, Sums]:
        def attention(x_BSD):
            out_BSD = shard(
                self.attention(x_BSD, context, randomness), "batch", "length", "embed", name="attention_out"
            )
            return dropout(out_BSD, self.dropout_rate, randomness, "attention_out")

        def mlp(x_BSD):
            out_BSD = shard(self.mlp(x_BSD), "batch", "length", "embed", name="mlp_out")
            return dropout(out_BSD, self.dropout_rate, randomness, "mlp_out")

        for norm, layer in ((self.attention_norm, attention), (self.mlp_norm, mlp)):
            x_BSD = x_BSD + layer(norm(x_BSD)) if self.pre_norm else norm(x_BSD + layer(x_BSD))
            x_BSD = shard(x_BSD, "batch", "length", "embed", name="residual")
        return x_BSD, {}
