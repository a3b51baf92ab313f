"""Vision Transformers (Dosovitskiy et al. 2020, 'An Image is Worth 16x16 Words')."""

from typing import Literal

import gin
import jax
import jax.numpy as jnp
from flax import nnx

from mistake import Mistake
from models.layers.attention import Context, SelfAttention
from models.layers.block import TransformerBlock
from models.layers.dense import FeedForward, activation
from models.layers.initializers import TruncatedNormal
from models.layers.norm import LayerNorm
from models.layers.patches import PatchEmbedding, pair
from models.layers.sizes import check_above_zero, check_positive, check_rates
from models.layers.stack import build_stacks, run_stacks
from parallel.annotate import Randomness, part, shard

IMAGE_AXES = ("batch", "height", "width", "channels")


@gin.configurable("vit")
class Vit(nnx.Module):
    """Images to hidden states: [B, H, W, C] -> [B, S, D], dtype `dtype`.

    Args:
      num_layers, width, num_heads, mlp_width: the shape.
      image_size: rows and columns of the images, or one number for both.
      patch_size: of a patch, likewise.
      channels: of the images.
      positions: 'learned', a table for images of `image_size`; 'sincos', fixed sines and cosines of row and column.
      pool: what `pooled` gives: the state of the class 'token', which then comes first, or the 'mean' of all patches'.
      activation: of the feed-forward blocks.
      parts: {'early': 8, 'late': 4} cuts the layers into named parts, which may have rules of their own.
      dropout, attention_dropout: rates.
      initializer_stddev: of the truncated normal that draws every kernel and table; None draws kernels with variance
        1/fan_in, tables with 0.02.
      dtype: of the computation, 'float32' or 'bfloat16'. Parameters are float32 always, and so are softmax, norms'
        statistics and logits.

    Raises Mistake for sizes that don't go together.
    """

    def __init__(
        self,
        num_layers: int = gin.REQUIRED,
        width: int = gin.REQUIRED,
        num_heads: int = gin.REQUIRED,
        mlp_width: int = gin.REQUIRED,
        image_size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] = 16,
        channels: int = 3,
        positions: Literal["learned", "sincos"] = "learned",
        pool: Literal["token", "mean"] = "token",
        norm_epsilon: float = 1e-6,
        activation: str = "gelu",
        parts: dict[str, int] | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        initializer_stddev: float | None = None,
        dtype: Literal["float32", "bfloat16"] = "float32",
    ):
        check_positive("vit", num_layers=num_layers, width=width, num_heads=num_heads, mlp_width=mlp_width)
        check_positive("vit", channels=channels)
        check_rates("vit", dropout=dropout, attention_dropout=attention_dropout)
        check_above_zero("vit", norm_epsilon=norm_epsilon, initializer_stddev=initializer_stddev)
        init = None if initializer_stddev is None else TruncatedNormal(initializer_stddev)
        self.width, self.pool_kind, self.dtype = width, pool, jnp.dtype(dtype)
        self.embeddings = PatchEmbedding(
            size=pair(image_size, "vit.image_size"),
            patch=pair(patch_size, "vit.patch_size"),
            channels=channels,
            width=width,
            class_token=pool == "token",
            positions=positions,
            dropout_rate=dropout,
            names=IMAGE_AXES,
            bindings=("vit.image_size", "vit.channels", "vit.width"),
            init=init,
        )
        self.final_norm = LayerNorm(width, epsilon=norm_epsilon)
        block = block_maker(
            "vit", width, num_heads, mlp_width, activation, norm_epsilon, dropout, attention_dropout, init
        )
        self.cuts = build_stacks(self, block, num_layers, parts, "vit.parts")

    def __call__(self, image_BHWC: jax.Array, randomness: Randomness | None = None) -> jax.Array:
        """Hidden states [B, S, D] of float images, after the final norm; the class token's first, then patches by row.

        Raises Mistake for images of a size or with channels that the model isn't for.
        """
        with part("encoder"):
            x_BSD = self.embeddings(image_BHWC, self.dtype, randomness)
            x_BSD, _ = run_stacks(self, self.cuts, x_BSD, one_document(x_BSD), randomness=randomness)
            return self.final_norm(x_BSD)

    def pool(self, x_BSD: jax.Array) -> jax.Array:
        """What stands for the whole image, [B, D], of the hidden states."""
        if self.pool_kind == "token":
            pooled_BD = x_BSD[:, 0]
        else:
            pooled_BD = x_BSD.mean(1, dtype=jnp.float32).astype(x_BSD.dtype)
        with part("encoder"):
            return shard(pooled_BD, "batch", "embed", name="pooled")

    def pooled(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> jax.Array:
        """[B, D] of a batch's 'image', float32 [B, H, W, C]: what a classifier reads."""
        return self.pool(self(batch["image"], randomness))


def block_maker(
    family: str,
    width: int,
    num_heads: int,
    mlp_width: int,
    act: str,
    epsilon: float,
    dropout_rate: float,
    attention_dropout: float,
    init,
):
    """A function that makes one pre-LN block of a ViT; Mistake, beginning with the `family`'s bindings, for no shape."""
    if width % num_heads:
        fits = [n for n in range(1, width + 1) if width % n == 0]
        close = sorted(sorted(fits, key=lambda n: abs(n - num_heads))[:4])
        raise Mistake(
            f"{family}.num_heads: {num_heads} does not divide {family}.width {width}. Near ones that do: {close}."
        )
    function = activation(act, f"{family}.activation")

    def make() -> TransformerBlock:
        return TransformerBlock(
            SelfAttention(width, num_heads, dropout_rate=attention_dropout, init=init),
            FeedForward(width, mlp_width, act=function, gated=False, bias=True, init=init),
            width=width,
            pre_norm=True,
            epsilon=epsilon,
            bias=True,
            dropout_rate=dropout_rate,
        )

    return make


def one_document(x_BSD: jax.Array) -> Context:
    """The context in which every token of an example sees every other."""
    batch, length = x_BSD.shape[:2]
    whole_BS = jnp.ones((batch, length), jnp.int32)
    return Context(whole_BS, jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), (batch, length)))
