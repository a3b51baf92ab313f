"""Masked language modelling (Devlin et al. 2018): predict the tokens that were masked, through the tied embedding."""

from typing import ClassVar, Literal

import gin
import jax
import jax.numpy as jnp
from flax import nnx

from models.layers.dense import Dense
from models.layers.initializers import ZEROS, TruncatedNormal
from models.layers.norm import LayerNorm
from models.objectives.cross_entropy import accuracy, cross_entropy
from models.objectives.given import check_label_smoothing, check_model
from parallel.annotate import Randomness, Sums, param, part, shard


@gin.configurable("masked_lm")
class MaskedLM(nnx.Module):
    """An encoder with the masked LM head: logits = norm(act(dense(x))) @ token table + bias.

    Args:
      encoder: a model such as `@bert()`.
      transform: whether the head has its dense layer and norm (BERT has; the MLPerf encoders don't).
      bias: whether the logits have a bias a token.
      label_smoothing: see cross_entropy.
      logits_at: 'masked' computes logits at the masked positions only; 'all' at every position, as some other systems
        do (same loss, more work: for comparisons).

    Batches: tokens, segment_ids, positions, token_types int32 [B, S]; masked_positions, masked_labels int32 [B, P];
    masked_weights float32 [B, P].
    """

    minimized: ClassVar[dict[str, float]] = {"loss": 1.0}

    def __init__(
        self,
        encoder: nnx.Module = gin.REQUIRED,
        transform: bool = True,
        bias: bool = True,
        label_smoothing: float = 0.0,
        logits_at: Literal["masked", "all"] = "masked",
    ):
        check_model("masked_lm.encoder", encoder, ("embeddings", "vocab_size", "act", "norm_epsilon"), "@bert()")
        check_label_smoothing("masked_lm", label_smoothing)
        self.encoder, self.label_smoothing, self.logits_at = encoder, label_smoothing, logits_at
        self.head = Head(encoder, transform=transform, bias=bias)

    def weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"loss": batch["masked_weights"].sum()}

    def losses(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> Sums:
        x_BSD = self.encoder(
            batch["tokens"], batch["segment_ids"], batch["positions"], batch["token_types"], randomness
        )
        labels_BP, weights_BP, at_BP = batch["masked_labels"], batch["masked_weights"], batch["masked_positions"]
        with part("head"):
            if self.logits_at == "masked":
                x_BPD = shard(
                    jnp.take_along_axis(x_BSD, at_BP[..., None], axis=1),
                    "batch",
                    "predictions",
                    "embed",
                    name="masked_states",
                )
                logits_BPV = shard(self.logits(x_BPD), "batch", "predictions", "vocab", name="logits")
            else:
                logits_BSV = shard(self.logits(x_BSD), "batch", "length", "vocab", name="logits")
                logits_BPV = jnp.take_along_axis(logits_BSV, at_BP[..., None], axis=1)
        loss = cross_entropy(logits_BPV, labels_BP, weights_BP, self.label_smoothing)
        return {"loss": loss, "masked_accuracy": accuracy(logits_BPV, labels_BP, weights_BP)}

    def logits(self, x: jax.Array) -> jax.Array:
        """Hidden states [..., D] -> float32 logits [..., V]."""
        return self.head(x, self.encoder.embeddings.token)


class Head(nnx.Module):
    """BERT's masked LM head over the encoder's token table, with the encoder's activation and norm epsilon."""

    def __init__(self, encoder: nnx.Module, *, transform: bool, bias: bool):
        width = encoder.width
        self.act = encoder.act
        self.transform = (
            Dense({"embed": width}, {"transformed": width}, init=TruncatedNormal(0.02)) if transform else None
        )
        self.norm = LayerNorm(width, epsilon=encoder.norm_epsilon) if transform else None
        self.bias = param((encoder.vocab_size,), ("vocab",), ZEROS) if bias else None

    def __call__(self, x: jax.Array, token) -> jax.Array:
        if self.transform is not None:
            x = self.norm(self.act(self.transform(x)))
        logits = token.logits(x)
        return logits if self.bias is None else logits + self.bias[...]
