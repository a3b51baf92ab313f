"""Cross-entropy and accuracy against loops in float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from models.objectives.cross_entropy import accuracy, cross_entropy

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 3, (4, 5, 16)).astype("f4")
LABELS = RNG.integers(0, 16, (4, 5)).astype("i4")
WEIGHTS = RNG.choice([0.0, 0.5, 1.0], (4, 5)).astype("f4")


def loops(smoothing):
    """-sum over v of target(v) log softmax(v), with target = (1 - e) at the label + e/V everywhere."""
    total = 0.0
    for at in np.ndindex(LABELS.shape):
        z = LOGITS[at].astype("f8")
        log_sum = math.log(sum(math.exp(v) for v in z))
        for v in range(16):
            target = (1 - smoothing) * (v == LABELS[at]) + smoothing / 16
            total -= WEIGHTS[at] * target * (z[v] - log_sum)
    return total


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_the_sum_is_that_of_a_loop_and_the_weight_that_of_the_weights(smoothing):
    total, weight = cross_entropy(LOGITS, LABELS, WEIGHTS, smoothing)
    np.testing.assert_allclose(total, loops(smoothing), rtol=1e-5)
    np.testing.assert_allclose(weight, WEIGHTS.sum(dtype="f8"), rtol=1e-6)


def test_the_gradient_is_softmax_minus_one_hot_times_weight():
    gradient = jax.grad(lambda logits: cross_entropy(logits, LABELS, WEIGHTS)[0])(LOGITS)
    softmax = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    np.testing.assert_allclose(gradient, (softmax - np.eye(16)[LABELS]) * WEIGHTS[..., None], rtol=1e-4, atol=1e-6)


def test_logits_too_large_to_exponentiate_give_a_finite_loss():
    total, _ = cross_entropy(jnp.array([[1e4, -1e4, 0.0]]), jnp.array([1]), jnp.ones(1))
    np.testing.assert_allclose(total, 2e4)


def test_the_sums_of_two_halves_are_the_sum_of_the_whole():
    halves = [cross_entropy(LOGITS[rows], LABELS[rows], WEIGHTS[rows]) for rows in (slice(2), slice(2, 4))]
    np.testing.assert_allclose(np.sum(halves, 0), cross_entropy(LOGITS, LABELS, WEIGHTS), rtol=1e-5)


def test_accuracy_counts_the_weight_of_the_positions_that_are_right_and_ties():
    logits = np.array([[1, 2, 0], [3, 1, 0], [0, 5, 5], [0, 0, 9]], "f4")
    right, weight = accuracy(logits, np.array([1, 1, 1, 2], "i4"), np.array([1.0, 1.0, 0.5, 0.0], "f4"))
    assert (float(right), float(weight)) == (1.5, 2.5)


def test_logits_split_over_classes_give_the_same_sums_and_are_never_gathered():
    mesh = jax.make_mesh((2, 4), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    place = NamedSharding(mesh, PartitionSpec("data", None, "tensor"))
    step = jax.jit(
        lambda logits: (cross_entropy(logits, LABELS, WEIGHTS, 0.1), accuracy(logits, LABELS, WEIGHTS)),
        in_shardings=place,
    )
    compiled = step.lower(LOGITS).compile()
    assert "all-gather" not in compiled.as_text()
    (total, _), (right, _) = step(jax.device_put(LOGITS, place))
    np.testing.assert_allclose(total, loops(0.1), rtol=1e-5)
    np.testing.assert_allclose(right, WEIGHTS[LOGITS.argmax(-1) == LABELS].sum())
