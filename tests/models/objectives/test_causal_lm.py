"""The loss of the next token by hand, and mixtures' auxiliary losses: each minimized once, over its own weight."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mistake import Mistake
from models.layers.embedding import Embedding
from models.layers.initializers import TruncatedNormal
from models.layers.moe import MoE
from models.lm import DecoderLM
from models.objectives.causal_lm import CausalLM
from parallel.parameters import bind, declared, initialize
from parallel.randomness import Randomness


class LookUp(nnx.Module):
    """States are tanh(table[token] + 0.1 position); logits are these times the table."""

    moe = None

    def __init__(self):
        self.token = Embedding(11, 6, rows_name="vocab", init=TruncatedNormal(1.0))

    def __call__(self, tokens_BS, segment_ids_BS, positions_BS, randomness=None):
        return jnp.tanh(self.token(tokens_BS, jnp.float32) + 0.1 * positions_BS[..., None]), {}

    def logits(self, x_BSD):
        return self.token.logits(x_BSD)


RNG = np.random.default_rng(0)
SEGMENTS = np.array([[1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 0, 0, 0, 0, 0, 0], [0] * 8, [1] * 8], "i4")
BATCH = {
    "tokens": RNG.integers(11, size=(4, 8)).astype("i4"),
    "segment_ids": SEGMENTS,
    "positions": np.tile(np.arange(8, dtype="i4"), (4, 1)),
    "targets": RNG.integers(11, size=(4, 8)).astype("i4"),
    "loss_weights": (SEGMENTS * (np.arange(8) % 3 != 2)).astype("f4"),
}


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_loss_and_accuracy_are_those_by_hand(smoothing):
    model = CausalLM(LookUp(), label_smoothing=smoothing)
    table = RNG.normal(size=(11, 6)).astype("f4")
    found = jax.jit(lambda batch: bind(model, {"decoder.token.table": table}).losses(batch))(BATCH)
    total = right = weight = 0.0
    for b, s in np.ndindex(4, 8):
        w = float(BATCH["loss_weights"][b, s])
        z = table.astype("f8") @ np.tanh(table[BATCH["tokens"][b, s]] + 0.1 * s)
        log_p = z - math.log(np.exp(z).sum())
        label = BATCH["targets"][b, s]
        total -= w * ((1 - smoothing) * log_p[label] + smoothing * log_p.mean())
        right += w * (z.argmax() == label)
        weight += w
    np.testing.assert_allclose(found["loss"], (total, weight), rtol=1e-4)
    np.testing.assert_allclose(found["accuracy"], (right, weight))
    assert found.keys() == {"loss", "accuracy"} and model.minimized == {"loss": 1.0}
    assert model.weights(BATCH) == {"loss": weight}


def mixture(**options):
    moe = MoE(num_experts=4, group_size=4, capacity_factor=0.5)
    return CausalLM(DecoderLM(4, 8, 2, 12, 11, moe=moe, moe_every=2), **options)


@pytest.mark.parametrize("noise", [False, True])
def test_what_a_mixture_minimizes_adds_up_to_weights_known_from_the_batch(noise):
    model = mixture(balance_loss=0.25, router_z_loss=0.5)
    assert model.minimized == {"loss": 1.0, "balance_loss": 0.25, "router_z_loss": 0.5}
    params = initialize(declared(model), 0)
    # Two mixtures. Groups of 4 with a real token: 2, 1, 0, 2. Real tokens: 7, 2, 0, 8.
    expected = {"loss": float(BATCH["loss_weights"].sum()), "balance_loss": 2 * 5, "router_z_loss": 2 * 17}
    assert jax.tree.map(float, model.weights(BATCH)) == expected
    whole = Randomness.for_step(0, 0, 4) if noise else None
    run = jax.jit(lambda batch, randomness: bind(model, params).losses(batch, randomness))
    total = dict.fromkeys(expected, 0.0)
    for rows in (np.array([0, 2]), np.array([1, 3])):
        own = None if whole is None else Randomness(whole.key, whole.example_B[rows])
        sums = run({name: array[rows] for name, array in BATCH.items()}, own)
        total = {name: total[name] + float(sums[name][1]) for name in total}
    assert total == expected
    assert sums["expert_load"][0].shape == (4,)


def test_a_coefficient_of_none_of_the_models_losses_is_a_mistake():
    with pytest.raises(Mistake, match=r"^causal_lm.balance_loss: 0.5 has no effect without a mixture of experts\."):
        CausalLM(LookUp(), balance_loss=0.5)
    with pytest.raises(Mistake, match=r"^causal_lm.router_z_loss: -1.0\. A loss has a coefficient of 0 or more\."):
        mixture(router_z_loss=-1.0)


def test_a_decoder_that_is_none_is_a_mistake():
    with pytest.raises(Mistake, match=r"^causal_lm.decoder: "):
        CausalLM(None)
