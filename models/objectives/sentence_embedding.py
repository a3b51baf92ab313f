"""Sentence embeddings: the mean of a sentence's token states, trained so that the two of a pair are nearest among the
batch.
"""

from typing import ClassVar

import gin
import jax
import jax.numpy as jnp
from flax import nnx

from models.layers.sizes import check_above_zero
from models.objectives.given import check_model
from parallel.annotate import Randomness, Sums, shard


@gin.configurable("sentence_embedding")
class SentenceEmbedding(nnx.Module):
    """Multiple-negatives ranking over the global batch (Henderson et al. 2017): softmax over cosine similarity /
    temperature, both ways.

    Batches: tokens, segment_ids, positions, token_types int32 [B, S], the same of the other sentence with the prefix
      'pair_',
    and weight float32 [B]. The loss compares every example with every other, so a batch can't be split for
    accumulation.
    """

    whole_batch = True
    minimized: ClassVar[dict[str, float]] = {"loss": 1.0}

    def __init__(self, encoder: nnx.Module = gin.REQUIRED, temperature: float = 0.05):
        check_model("sentence_embedding.encoder", encoder, ("embeddings",), "@bert()")
        check_above_zero("sentence_embedding", temperature=temperature)
        self.encoder, self.temperature = encoder, temperature

    def weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"loss": batch["weight"].sum()}

    def losses(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> Sums:
        first_BD = self.embed(batch, None if randomness is None else randomness.named("first"))
        pair = {name: batch[f"pair_{name}"] for name in ("tokens", "segment_ids", "positions", "token_types")}
        second_BD = self.embed(pair, None if randomness is None else randomness.named("second"))
        weight_B = batch["weight"]
        scores_BB = jnp.einsum("bd,cd->bc", first_BD, second_BD) / self.temperature
        # An example that is padding is nobody's negative.
        scores_BB = jnp.where((weight_B > 0)[:, None] & (weight_B > 0)[None, :], scores_BB, jnp.finfo(jnp.float32).min)
        own_B = jnp.diagonal(scores_BB)
        # Each difference before the sum: a padding example's scores are the lowest float, and two of those overflow.
        loss_B = ((jax.nn.logsumexp(scores_BB, 1) - own_B) + (jax.nn.logsumexp(scores_BB, 0) - own_B)) / 2
        right_B = own_B >= scores_BB.max(1)
        weight = weight_B.sum()
        return {"loss": (jnp.sum(loss_B * weight_B), weight), "accuracy": (jnp.sum(right_B * weight_B), weight)}

    def embed(self, batch: dict[str, jax.Array], randomness: Randomness | None = None) -> jax.Array:
        """Unit vectors, float32 [B, D]: the mean of the states of real tokens."""
        x_BSD = self.encoder(
            batch["tokens"], batch["segment_ids"], batch["positions"], batch["token_types"], randomness
        )
        real_BS = (batch["segment_ids"] != 0).astype(jnp.float32)
        mean_BD = (
            jnp.einsum("bsd,bs->bd", x_BSD.astype(jnp.float32), real_BS) / jnp.maximum(real_BS.sum(1), 1.0)[:, None]
        )
        unit_BD = mean_BD * jax.lax.rsqrt(jnp.sum(jnp.square(mean_BD), -1, keepdims=True) + 1e-12)
        return shard(unit_BD, "batch", "embed", name="sentence")
