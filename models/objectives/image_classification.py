"""Classification of whole images, alone or with sound: of whatever the encoder pools of an example."""

from typing import ClassVar

import gin
import jax
from flax import nnx

from mistake import Mistake
from models.layers.dense import Dense
from models.layers.initializers import TruncatedNormal
from models.objectives.cross_entropy import accuracy, cross_entropy
from parallel.annotate import Randomness, Sums, dropout, part, shard


@gin.configurable("image_classification")
class ImageClassification(nnx.Module):
    """One of `num_classes` for each example, from a linear layer over what the encoder pools.

    Args:
      encoder: `@vit()`, or `@mbt()` for images with sound.
      num_classes: of the data.
      dropout: of the pooled state.
      label_smoothing: see cross_entropy.

    Batches: what the encoder reads (image float32 [B, H, W, C]; mbt also audio float32 [B, T, M, 1] and audio_frames
    int32 [B]); label int32 [B]; weight float32 [B].
    """

    minimized: ClassVar[dict[str, float]] = {"loss": 1.0}

    def __init__(
        self,
        encoder: nnx.Module = gin.REQUIRED,
        num_classes: int = gin.REQUIRED,
        dropout: float = 0.0,
        label_smoothing: float = 0.0,
    ):
        if not hasattr(encoder, "pooled"):
            raise Mistake(
                f"image_classification.encoder: {type(encoder).__name__} pools no images. Give it @vit() or @mbt()."
            )
        if num_classes < 1:
            raise Mistake(f"image_classification.num_classes: {num_classes}. It must be at least 1.")
        if not 0.0 <= label_smoothing < 1.0:
            raise Mistake(
                f"image_classification.label_smoothing: {label_smoothing}. It must be at least 0 and below 1."
            )
        self.encoder, self.num_classes = encoder, num_classes
        self.dropout_rate, self.label_smoothing = dropout, label_smoothing
        self.head = Dense({"embed": encoder.width}, {"classes": num_classes}, init=TruncatedNormal(0.02))

    def weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"loss": batch["weight"].sum()}

    def losses(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> Sums:
        logits_BC = self.logits(batch, randomness)
        label_B, weight_B = batch["label"], batch["weight"]
        return {
            "loss": cross_entropy(logits_BC, label_B, weight_B, self.label_smoothing),
            "accuracy": accuracy(logits_BC, label_B, weight_B),
        }

    def logits(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> jax.Array:
        """float32 [B, C]."""
        pooled_BD = dropout(self.encoder.pooled(batch, randomness), self.dropout_rate, randomness, "pooled")
        with part("head"):
            return shard(self.head(pooled_BD).astype("float32"), "batch", "classes", name="logits")
