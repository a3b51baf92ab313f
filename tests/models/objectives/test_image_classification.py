"""Classification of what an encoder pools, against NumPy."""

import jax
import numpy as np
import pytest
from flax import nnx

from mistake import Mistake
from models.layers.initializers import TruncatedNormal
from models.objectives.image_classification import ImageClassification
from parallel.annotate import param
from parallel.parameters import bind, declared
from parallel.randomness import Randomness

RNG = np.random.default_rng(0)
BATCH = {
    "image": RNG.normal(size=(5, 2, 3, 1)).astype("f4"),
    "label": np.array([2, 0, 1, 0, 2], "i4"),
    "weight": np.array([1, 1, 0.5, 0, 1], "f4"),
}


class Linear(nnx.Module):
    """Pools an image of six pixels as a matrix times them."""

    width = 4

    def __init__(self):
        self.matrix = param((6, 4), ("channels", "embed"), TruncatedNormal(1.0))

    def pooled(self, batch, randomness=None):
        return batch["image"].reshape(-1, 6) @ self.matrix[...]


def built(**options):
    model = ImageClassification(Linear(), num_classes=3, **options)
    rng = np.random.default_rng(1)
    return model, {path: rng.normal(size=d.shape).astype("f4") for path, d in declared(model).items()}


def losses(model, values, batch=BATCH, randomness=None):
    return jax.jit(lambda v, b, r: bind(model, v).losses(b, r))(values, batch, randomness)


def expected(p, smoothing):
    """(loss, right, weight), one example and one class at a time."""
    total = right = 0.0
    for pixels, label, weight in zip(BATCH["image"].reshape(-1, 6), BATCH["label"], BATCH["weight"], strict=True):
        z = (pixels @ p["encoder.matrix"] @ p["head.kernel"] + p["head.bias"]).astype("f8")
        log_p = np.log(np.exp(z) / np.exp(z).sum())
        target = [(1 - smoothing) * (c == label) + smoothing / 3 for c in range(3)]
        total -= weight * np.dot(target, log_p)
        right += weight * (z.argmax() == label)
    return total, right, BATCH["weight"].sum()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_loss_and_accuracy_are_weighted_sums_over_the_examples(smoothing):
    model, values = built(label_smoothing=smoothing)
    sums = losses(model, values)
    loss, right, weight = expected(values, smoothing)
    np.testing.assert_allclose(sums["loss"], (loss, weight), rtol=1e-5)
    np.testing.assert_allclose(sums["accuracy"], (right, weight), rtol=1e-6)


def test_the_weight_of_what_is_minimized_is_known_from_the_batch_alone():
    model, values = built()
    sums = losses(model, values)
    assert model.minimized == {"loss": 1.0}
    assert {name: float(w) for name, w in model.weights(BATCH).items()} == {"loss": float(sums["loss"][1])}


def test_dropout_applies_in_training_only():
    model, values = built(dropout=0.5)
    plain = losses(*built())["loss"][0]
    assert losses(model, values)["loss"][0] == plain
    assert losses(model, values, randomness=Randomness.for_step(0, 0, 5))["loss"][0] != plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"encoder": nnx.Module()},
            "image_classification.encoder: Module is not a model that this objective can train. Give it @vit() or @mbt().",
        ),
        ({"num_classes": 0}, "image_classification.num_classes: 0. It must be at least 1."),
        ({"dropout": -0.1}, "image_classification.dropout: -0.1 is not a rate. It must be at least 0 and below 1."),
        ({"label_smoothing": 1.0}, "image_classification.label_smoothing: 1.0. It must be at least 0 and below 1."),
    ],
    ids=str,
)
def test_what_cannot_be_is_a_mistake(options, message):
    with pytest.raises(Mistake) as caught:
        ImageClassification(**{"encoder": Linear(), "num_classes": 3} | options)
    assert str(caught.value).startswith(message)
