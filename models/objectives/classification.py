"""Classification of whole sequences and of single tokens."""

from typing import ClassVar

import gin
import jax
from flax import nnx

from mistake import Mistake
from models.layers.dense import Dense
from models.layers.initializers import TruncatedNormal
from models.layers.sizes import check_positive, check_rates
from models.objectives.cross_entropy import accuracy, cross_entropy
from models.objectives.given import check_model
from parallel.annotate import Randomness, Sums, dropout, part, shard


@gin.configurable("sequence_classification")
class SequenceClassification(nnx.Module):
    """One of `num_classes` for each sequence, from the encoder's pooled first token (needs bert.pooler = True).

    Batches: tokens, segment_ids, positions, token_types int32 [B, S]; label int32 [B]; weight float32 [B].
    """

    minimized: ClassVar[dict[str, float]] = {"loss": 1.0}

    def __init__(self, encoder: nnx.Module = gin.REQUIRED, num_classes: int = gin.REQUIRED, dropout: float = 0.1):
        check_model("sequence_classification.encoder", encoder, ("pooler", "pool"), "@bert()")
        check_positive("sequence_classification", num_classes=num_classes)
        check_rates("sequence_classification", dropout=dropout)
        if encoder.pooler is None:
            raise Mistake("bert.pooler: sequence_classification reads the pooled first token. Set bert.pooler = True.")
        self.encoder, self.num_classes, self.dropout_rate = encoder, num_classes, dropout
        self.head = Dense({"embed": encoder.width}, {"classes": num_classes}, init=TruncatedNormal(0.02))

    def weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"loss": batch["weight"].sum()}

    def losses(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> Sums:
        logits_BC = self.logits(batch, randomness)
        label_B, weight_B = batch["label"], batch["weight"]
        return {"loss": cross_entropy(logits_BC, label_B, weight_B), "accuracy": accuracy(logits_BC, label_B, weight_B)}

    def logits(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> jax.Array:
        """float32 [B, C]."""
        x_BSD = self.encoder(
            batch["tokens"], batch["segment_ids"], batch["positions"], batch["token_types"], randomness
        )
        pooled_BD = dropout(self.encoder.pool(x_BSD), self.dropout_rate, randomness, "pooled")
        with part("head"):
            return shard(self.head(pooled_BD).astype("float32"), "batch", "classes", name="logits")


@gin.configurable("token_classification")
class TokenClassification(nnx.Module):
    """One of `num_classes` for each token that has a weight.

    Batches: tokens, segment_ids, positions, token_types, labels int32 [B, S]; label_weights float32 [B, S].
    """

    minimized: ClassVar[dict[str, float]] = {"loss": 1.0}

    def __init__(self, encoder: nnx.Module = gin.REQUIRED, num_classes: int = gin.REQUIRED, dropout: float = 0.1):
        check_model("token_classification.encoder", encoder, ("embeddings",), "@bert()")
        check_positive("token_classification", num_classes=num_classes)
        check_rates("token_classification", dropout=dropout)
        self.encoder, self.num_classes, self.dropout_rate = encoder, num_classes, dropout
        self.head = Dense({"embed": encoder.width}, {"classes": num_classes}, init=TruncatedNormal(0.02))

    def weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"loss": batch["label_weights"].sum()}

    def losses(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> Sums:
        logits_BSC = self.logits(batch, randomness)
        labels_BS, weights_BS = batch["labels"], batch["label_weights"]
        return {
            "loss": cross_entropy(logits_BSC, labels_BS, weights_BS),
            "accuracy": accuracy(logits_BSC, labels_BS, weights_BS),
        }

    def logits(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> jax.Array:
        """float32 [B, S, C]."""
        x_BSD = self.encoder(
            batch["tokens"], batch["segment_ids"], batch["positions"], batch["token_types"], randomness
        )
        x_BSD = dropout(x_BSD, self.dropout_rate, randomness, "token_states")
        with part("head"):
            return shard(self.head(x_BSD).astype("float32"), "batch", "length", "classes", name="logits")
