"""Multimodal Bottleneck Transformers (Nagrani et al. 2021, 'Attention Bottlenecks for Multimodal Fusion'): a ViT tower of
images and one of sound, which in the upper layers exchange what they know through a few tokens alone.
"""

from typing import Literal

import gin
import jax
import jax.numpy as jnp
from flax import nnx

from mistake import Mistake
from models.layers.attention import Context
from models.layers.block import TransformerBlock
from models.layers.initializers import TruncatedNormal
from models.layers.norm import LayerNorm
from models.layers.patches import PatchEmbedding, pair
from models.layers.sizes import check_above_zero, check_positive, check_rates
from models.vit import IMAGE_AXES, block_maker
from parallel.annotate import Randomness, Sums, param, part, run_blocks, shard, stack

AUDIO_AXES = ("batch", "frames", "mels", "channels")
TOWERS = ("image", "audio")


@gin.configurable("mbt")
class Mbt(nnx.Module):
    """Images and log-mel spectrograms to what stands for both, [B, D], dtype `dtype`.

    The parts 'image' and 'audio' hold all of a tower's parameters, those in the fusion layers too, so that
    `image/rules.weights` and `audio/rules.weights` may spread them differently.

    Args:
      num_layers, width, num_heads, mlp_width: the shape of each tower.
      fusion_layer: how many layers each tower has to itself; in the num_layers - fusion_layer others they exchange.
      bottleneck_tokens: the tokens through which they do.
      image_size, image_channels: rows and columns of the images, or one number for both; their channels.
      audio_size, audio_channels: frames and mel bins of the spectrograms; their channels.
      patch_size: rows and columns, or frames and bins, of a patch; one number for both.
      positions: 'learned', a table for each tower; 'sincos', fixed sines and cosines of row and column.
      activation, dropout, attention_dropout, initializer_stddev, dtype: as in `vit`.

    Raises Mistake for sizes that don't go together.
    """

    def __init__(
        self,
        num_layers: int = gin.REQUIRED,
        width: int = gin.REQUIRED,
        num_heads: int = gin.REQUIRED,
        mlp_width: int = gin.REQUIRED,
        fusion_layer: int = gin.REQUIRED,
        bottleneck_tokens: int = 4,
        image_size: int | tuple[int, int] = 224,
        image_channels: int = 3,
        audio_size: int | tuple[int, int] = (800, 128),
        audio_channels: int = 1,
        patch_size: int | tuple[int, int] = 16,
        audio_patch_size: int | tuple[int, int] | None = None,
        positions: Literal["learned", "sincos"] = "learned",
        norm_epsilon: float = 1e-6,
        activation: str = "gelu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        initializer_stddev: float | None = None,
        dtype: Literal["float32", "bfloat16"] = "float32",
    ):
        check_positive("mbt", num_layers=num_layers, width=width, num_heads=num_heads, mlp_width=mlp_width)
        check_positive("mbt", image_channels=image_channels, audio_channels=audio_channels)
        check_positive("mbt", fusion_layer=fusion_layer, bottleneck_tokens=bottleneck_tokens)
        check_rates("mbt", dropout=dropout, attention_dropout=attention_dropout)
        check_above_zero("mbt", norm_epsilon=norm_epsilon, initializer_stddev=initializer_stddev)
        if fusion_layer >= num_layers:
            raise Mistake(
                f"mbt.fusion_layer: {fusion_layer} leaves none of mbt.num_layers = {num_layers} for the fusion. "
                f"It must be at most {num_layers - 1}."
            )
        init = None if initializer_stddev is None else TruncatedNormal(initializer_stddev)
        self.width, self.dtype = width, jnp.dtype(dtype)
        make_block = block_maker(
            "mbt", width, num_heads, mlp_width, activation, norm_epsilon, dropout, attention_dropout, init
        )

        def tower(size, size_binding, channels, channels_binding, patch, names) -> Tower:
            embeddings = PatchEmbedding(
                size=pair(size, size_binding),
                patch=patch,
                channels=channels,
                width=width,
                class_token=True,
                positions=positions,
                dropout_rate=dropout,
                names=names,
                bindings=(size_binding, channels_binding, "mbt.width"),
                init=init,
            )
            return Tower(embeddings, stack(make_block(), fusion_layer), LayerNorm(width, epsilon=norm_epsilon))

        image_patch = pair(patch_size, "mbt.patch_size")
        self.audio_patch = image_patch if audio_patch_size is None else pair(audio_patch_size, "mbt.audio_patch_size")
        self.image = tower(image_size, "mbt.image_size", image_channels, "mbt.image_channels", image_patch, IMAGE_AXES)
        self.audio = tower(
            audio_size, "mbt.audio_size", audio_channels, "mbt.audio_channels", self.audio_patch, AUDIO_AXES
        )
        table = init or TruncatedNormal(0.02)
        self.bottleneck = param((bottleneck_tokens, width), ("bottleneck", "embed"), table)
        self.fusion_layer = fusion_layer
        self.fusion = stack(FusionBlock(make_block(), make_block()), num_layers - fusion_layer)

    def __call__(
        self,
        image_BHWC: jax.Array,
        audio_BTMC: jax.Array,
        frames_B: jax.Array,
        randomness: Randomness | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Hidden states of both towers, [B, S, D] and [B, U, D], after their final norms, class tokens first.

        frames_B, int32: how many frames of audio each example has. Patches wholly beyond are padding: no token sees
        them, and their own states mean nothing. Frames beyond count as zero.
        """
        real_BT = jnp.arange(audio_BTMC.shape[1]) < frames_B[:, None]
        audio_BTMC = jnp.where(real_BT[..., None, None], audio_BTMC, 0)
        streams = {name: None if randomness is None else randomness.named(name) for name in TOWERS}
        with part("encoder"):
            with part("image"):
                image_BSD = self.image.embeddings(image_BHWC, self.dtype, streams["image"])
                image_context = _context(jnp.ones(image_BSD.shape[:2], jnp.int32))
                image_BSD, _ = self.image.run(image_BSD, image_context, streams["image"])
            with part("audio"):
                audio_BUD = self.audio.embeddings(audio_BTMC, self.dtype, streams["audio"])
                audio_context = _context(self._audio_segments(frames_B, audio_BTMC.shape[1:3]))
                audio_BUD, _ = self.audio.run(audio_BUD, audio_context, streams["audio"])
            with part("fusion"):
                tokens_KD = self.bottleneck[...].astype(self.dtype)
                tokens_BKD = jnp.broadcast_to(tokens_KD, (image_BSD.shape[0], *tokens_KD.shape))
                (image_BSD, audio_BUD, _), _ = run_blocks(
                    self.fusion,
                    (image_BSD, audio_BUD, tokens_BKD),
                    _with_bottleneck(image_context, len(tokens_KD)),
                    _with_bottleneck(audio_context, len(tokens_KD)),
                    randomness=randomness,
                    first_layer=self.fusion_layer,
                )
            with part("image"):
                image_BSD = self.image.final_norm(image_BSD)
            with part("audio"):
                audio_BUD = self.audio.final_norm(audio_BUD)
            return image_BSD, audio_BUD

    def pooled(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> jax.Array:
        """[B, D] of a batch's 'image', 'audio' and 'audio_frames': the mean of both class tokens.

        A linear classifier gives it the mean of the logits that it gives each, which are what the paper averages.
        """
        image_BSD, audio_BUD = self(batch["image"], batch["audio"], batch["audio_frames"], randomness)
        with part("encoder"):
            return shard((image_BSD[:, 0] + audio_BUD[:, 0]) / 2, "batch", "embed", name="pooled")

    def _audio_segments(self, frames_B: jax.Array, size: tuple[int, int]) -> jax.Array:
        """int32 [B, U]: 1 for the class token and for patches that begin before the end, 0 for padding."""
        rows, columns = self.audio.embeddings.grid(size)
        starts_u = jnp.repeat(jnp.arange(rows) * self.audio_patch[0], columns)
        real_Bu = (starts_u < frames_B[:, None]).astype(jnp.int32)
        return jnp.pad(real_Bu, ((0, 0), (1, 0)), constant_values=1)


class Tower(nnx.Module):
    """What one modality has to itself: its embeddings, the layers below the fusion, and its final norm."""

    def __init__(self, embeddings: PatchEmbedding, blocks: TransformerBlock, final_norm: LayerNorm):
        self.embeddings, self.blocks, self.final_norm = embeddings, blocks, final_norm

    def run(self, x_BSD: jax.Array, context: Context, randomness: Randomness | None) -> tuple[jax.Array, Sums]:
        """The layers below the fusion."""
        with part("blocks"):
            return run_blocks(self.blocks, x_BSD, context, randomness=randomness)


class FusionBlock(nnx.Module):
    """One layer of both towers. Each attends to its own tokens and the bottleneck's; the bottleneck goes on as the mean of
    what the two make of it (the paper's equations 8 and 9).
    """

    def __init__(self, image: TransformerBlock, audio: TransformerBlock):
        self.image, self.audio = image, audio

    def __call__(
        self,
        x: tuple[jax.Array, jax.Array, jax.Array],
        image_context: Context,
        audio_context: Context,
        randomness: Randomness | None = None,
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], Sums]:
        """x: tokens of the image [B, S, D] and of the audio [B, U, D], and the bottleneck's [B, K, D]."""
        *towers, bottleneck_BKD = x
        contexts = (image_context, audio_context)
        out, updates = [], []
        for name, block, tokens_BSD, context in zip(TOWERS, (self.image, self.audio), towers, contexts, strict=True):
            own = None if randomness is None else randomness.named(name)
            with part(name):
                both_BRD, _ = block(jnp.concatenate([tokens_BSD, bottleneck_BKD], axis=1), context, own)
                length = tokens_BSD.shape[1]
                out.append(shard(both_BRD[:, :length], "batch", "length", "embed", name="tokens"))
                updates.append(both_BRD[:, length:])
        mean_BKD = shard((updates[0] + updates[1]) / 2, "batch", None, "embed", name="bottleneck")
        return (*out, mean_BKD), {}


def _context(segments_BS: jax.Array) -> Context:
    places_S = jnp.arange(segments_BS.shape[1], dtype=jnp.int32)
    return Context(segments_BS, jnp.broadcast_to(places_S, segments_BS.shape))


def _with_bottleneck(context: Context, num_tokens: int) -> Context:
    """The context of a tower's tokens with `num_tokens` real ones after them."""
    return _context(jnp.pad(context.segments_BS, ((0, 0), (0, num_tokens)), constant_values=1))
