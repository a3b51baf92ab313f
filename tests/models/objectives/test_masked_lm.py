"""Masked language modelling against NumPy."""

import math

import jax
import numpy as np
import pytest

from models.objectives.masked_lm import MaskedLM
from parallel.parameters import bind, declared

RNG = np.random.default_rng(0)
BATCH = {
    "tokens": RNG.integers(1, 11, (3, 7)).astype("i4"),
    "segment_ids": np.ones((3, 7), "i4"),
    "positions": np.tile(np.arange(7, dtype="i4"), (3, 1)),
    "token_types": np.zeros((3, 7), "i4"),
    "masked_positions": np.array([[1, 4, 6], [2, 3, 0], [0, 0, 0]], "i4"),
    "masked_labels": np.array([[5, 1, 10], [7, 2, 0], [0, 0, 0]], "i4"),
    "masked_weights": np.array([[1, 1, 0.5], [1, 1, 0], [0, 0, 0]], "f4"),
}


@pytest.fixture
def build(encoder_class):
    def build(**options):
        model = MaskedLM(encoder_class(pooler=False), **options)
        rng = np.random.default_rng(1)
        # What the head normalizes is small, so that another epsilon than BERT's 1e-12 would show.
        size = {"head.transform.kernel": 1e-3, "head.transform.bias": 1e-3}
        values = {path: rng.normal(0, size.get(path, 1), d.shape) for path, d in declared(model).items()}
        return model, {path: value.astype("f4") for path, value in values.items()}

    return build


def losses(model, values, batch=BATCH):
    return jax.jit(lambda values, batch: bind(model, values).losses(batch))(values, batch)


def by_hand(p, smoothing=0.0):
    """(loss sum, right, weight), one prediction at a time."""
    table, total, right, weight = p["encoder.embeddings.token.table"].astype("f8"), 0.0, 0.0, 0.0
    for b, i in np.ndindex(3, 3):
        at, label, w = (BATCH[f"masked_{name}"][b, i] for name in ("positions", "labels", "weights"))
        h = np.tanh(table[BATCH["tokens"][b, at]] + 0.1 * at)
        if "head.transform.kernel" in p:
            h = h @ p["head.transform.kernel"] + p["head.transform.bias"]
            h = h * (1 + np.array([math.erf(v / math.sqrt(2)) for v in h])) / 2
            h = (h - h.mean()) / math.sqrt(h.var() + 1e-12) * p["head.norm.scale"] + p["head.norm.bias"]
        z = table @ h + p.get("head.bias", 0)
        log_p = z - math.log(np.exp(z).sum())
        total -= w * ((1 - smoothing) * log_p[label] + smoothing * log_p.mean())
        right += w * (z.argmax() == label)
        weight += w
    return total, right, weight


@pytest.mark.parametrize(
    "options",
    [{}, {"transform": False}, {"bias": False}, {"transform": False, "bias": False}, {"label_smoothing": 0.2}],
    ids=str,
)
@pytest.mark.parametrize("logits_at", ["masked", "all"])
def test_loss_and_accuracy_are_those_by_hand_wherever_logits_are_computed(build, options, logits_at):
    model, values = build(logits_at=logits_at, **options)
    total, right, weight = by_hand(values, options.get("label_smoothing", 0.0))
    found = losses(model, values)
    np.testing.assert_allclose(found["loss"], (total, weight), rtol=1e-4)
    np.testing.assert_allclose(found["masked_accuracy"], (right, weight))


def test_a_prediction_without_weight_contributes_nothing_whatever_it_holds(build):
    model, values = build()
    changed = {name: array.copy() for name, array in BATCH.items()}
    nothing = BATCH["masked_weights"] == 0
    changed["masked_positions"][nothing], changed["masked_labels"][nothing] = 5, 9
    changed["tokens"][2] = 3  # A row without predictions.
    assert jax.tree.all(jax.tree.map(np.array_equal, losses(model, values), losses(model, values, changed)))


def test_a_batch_without_weights_has_zero_sums_and_gradients(build):
    model, values = build()
    batch = BATCH | {"masked_weights": np.zeros((3, 3), "f4")}
    total, gradients = jax.value_and_grad(lambda values: losses(model, values, batch)["loss"][0])(values)
    assert total == 0
    assert not any(np.asarray(gradient).any() for gradient in gradients.values())


def test_the_output_is_tied_to_the_token_table_and_has_no_kernel_of_its_own(build):
    model, _ = build()
    assert {path: (d.shape, d.names) for path, d in declared(model).items()} == {
        "encoder.embeddings.token.table": ((11, 6), ("vocab", "embed")),
        "head.transform.kernel": ((6, 6), ("embed", "transformed")),
        "head.transform.bias": ((6,), ("transformed",)),
        "head.norm.scale": ((6,), ("embed",)),
        "head.norm.bias": ((6,), ("embed",)),
        "head.bias": ((11,), ("vocab",)),
    }
