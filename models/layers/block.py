"""One Transformer block, post-LN as published or pre-LN as large models need."""

from collections.abc import Callable

import jax
from flax import nnx

from models.layers.attention import Context, SelfAttention
from models.layers.dense import FeedForward
from models.layers.moe import ExpertLayer
from models.layers.norm import LayerNorm
from parallel.annotate import Randomness, Sums, dropout, shard


class TransformerBlock(nnx.Module):
    """Attention, then feed-forward, each with its residual. [B, S, D] -> ([B, S, D], the sums of a mixture of experts).

    mlp: a feed-forward layer, or a mixture. make_norm: the norm of a width; None is LayerNorm.
    pre_norm=False: x = norm(x + f(x)) (Vaswani et al. 2017, BERT); True: x = x + f(norm(x)) (Xiong et al. 2020).
    """

    def __init__(
        self,
        attention: SelfAttention,
        mlp: FeedForward | ExpertLayer,
        *,
        width: int,
        pre_norm: bool,
        epsilon: float,
        bias: bool,
        dropout_rate: float,
        make_norm: Callable[[int], nnx.Module] | None = None,
    ):
        self.attention, self.mlp = attention, mlp
        make_norm = make_norm or (lambda width: LayerNorm(width, epsilon=epsilon, bias=bias))
        self.attention_norm, self.mlp_norm = make_norm(width), make_norm(width)
        self.pre_norm, self.dropout_rate = pre_norm, dropout_rate

    def __call__(
        self, x_BSD: jax.Array, context: Context, randomness: Randomness | None = None
    ) -> tuple[jax.Array, Sums]:
        sums: Sums = {}

        def attention(x_BSD):
            out_BSD = self.attention(x_BSD, context, randomness)
            return self._out(out_BSD, "attention_out", randomness)

        def mlp(x_BSD):
            if isinstance(self.mlp, ExpertLayer):
                out_BSD, own = self.mlp(x_BSD, context.segments_BS, randomness)
                sums.update(own)
            else:
                out_BSD = self.mlp(x_BSD)
            return self._out(out_BSD, "mlp_out", randomness)

        for norm, layer in ((self.attention_norm, attention), (self.mlp_norm, mlp)):
            x_BSD = x_BSD + layer(norm(x_BSD)) if self.pre_norm else norm(x_BSD + layer(x_BSD))
            x_BSD = shard(x_BSD, "batch", "length", "embed", name="residual")
        return x_BSD, sums

    def _out(self, x_BSD: jax.Array, name: str, randomness: Randomness | None) -> jax.Array:
        return dropout(shard(x_BSD, "batch", "length", "embed", name=name), self.dropout_rate, randomness, name)
