"""Classification of whole images, alone or with sound: of whatever the encoder pools of an example."""

from typing import ClassVar

import gin
import jax
from flax import nnx

from models.layers.dense import Dense
from models.layers.initializers import TruncatedNormal
from models.layers.sizes import check_positive, check_rates
from models.objectives.cross_entropy import accuracy, cross_entropy
from models.objectives.given import check_label_smoothing, check_model
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
        check_model("image_classification.encoder", encoder, ("pooled",), "@vit() or @mbt()")
        check_positive("image_classification", num_classes=num_classes)
        check_rates("image_classification", dropout=dropout)
        check_label_smoothing("image_classification", label_smoothing)
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
