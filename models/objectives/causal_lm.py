"""Causal language modelling: predict the token that comes next."""

import gin
import jax
import jax.numpy as jnp
from flax import nnx

from mistake import Mistake
from models.objectives.cross_entropy import accuracy, cross_entropy
from models.objectives.given import check_label_smoothing, check_model
from parallel.annotate import Randomness, Sums, part

# Coefficients of the auxiliary losses where nothing is said.
_AUXILIARY = {"balance_loss": 0.01, "router_z_loss": 0.001}


@gin.configurable("causal_lm")
class CausalLM(nnx.Module):
    """Cross-entropy of the next token, and, for a mixture of experts, its auxiliary losses.

    Args:
      decoder: a model such as `@lm()`.
      label_smoothing: see cross_entropy.
      balance_loss, router_z_loss: their coefficients; each loss is a mean over its own groups and tokens, by layer.

    Batches: tokens, segment_ids, positions, targets int32 [B, S]; loss_weights float32 [B, S].
    """

    def __init__(
        self,
        decoder: nnx.Module = gin.REQUIRED,
        label_smoothing: float = 0.0,
        balance_loss: float = _AUXILIARY["balance_loss"],
        router_z_loss: float = _AUXILIARY["router_z_loss"],
    ):
        check_model("causal_lm.decoder", decoder, ("logits", "moe"), "@lm()")
        check_label_smoothing("causal_lm", label_smoothing)
        self.decoder, self.label_smoothing = decoder, label_smoothing
        auxiliary = {"balance_loss": balance_loss, "router_z_loss": router_z_loss}
        for name, value in auxiliary.items():
            if value < 0:
                raise Mistake(f"causal_lm.{name}: {value}. A loss has a coefficient of 0 or more.")
            if not decoder.moe and value != _AUXILIARY[name]:
                raise Mistake(
                    f"causal_lm.{name}: {value} has no effect without a mixture of experts. Set lm.moe = @moe(), "
                    "or leave it out."
                )
        self.minimized = {"loss": 1.0} | (auxiliary if decoder.moe else {})

    def weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        found = {"loss": batch["loss_weights"].sum()}
        if self.decoder.moe:
            segments_BS = batch["segment_ids"]
            layers = self.decoder.num_mixtures
            found["balance_loss"] = layers * self.decoder.moe.num_groups(segments_BS)
            found["router_z_loss"] = layers * jnp.sum((segments_BS > 0).astype(jnp.float32))
        return found

    def losses(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> Sums:
        x_BSD, sums = self.decoder(batch["tokens"], batch["segment_ids"], batch["positions"], randomness)
        with part("head"):
            logits_BSV = self.decoder.logits(x_BSD)
        targets_BS, weights_BS = batch["targets"], batch["loss_weights"]
        return {
            "loss": cross_entropy(logits_BSV, targets_BS, weights_BS, self.label_smoothing),
            "accuracy": accuracy(logits_BSV, targets_BS, weights_BS),
        } | sums
