"""One step: gradients are those of the big batch, token-weighted; a step that is not finite changes no weight."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from training.state import TrainState
from training.step import differentiate, gradients, make_step, seeds

RNG = np.random.default_rng(0)


def losses(params, batch, randomness):
    """Weighted squared error of a linear model: sum and weight, as an objective gives them."""
    error = batch["x"] @ params["w"] - batch["y"]
    return {"loss": (jnp.sum(batch["weight"] * error**2), jnp.sum(batch["weight"]))}


def weights_of(batch):
    return {"loss": jnp.sum(batch["weight"])}


def gradients_of(params, batch, accumulation):
    each = seeds({"loss": 1.0}, weights_of(batch))
    return gradients(differentiate(losses), params, batch, None, each, accumulation)


def batch_of(weights):
    n = len(weights)
    return {
        "x": RNG.normal(size=(n, 3)).astype(np.float32),
        "y": RNG.normal(size=n).astype(np.float32),
        "weight": np.array(weights, np.float32),
    }


def closed_form(w, batch):
    """d/dw of sum(weight * (xw - y)^2) / sum(weight), in float64."""
    x, y, weight = (batch[name].astype(np.float64) for name in ("x", "y", "weight"))
    return 2 * x.T @ (weight * (x @ w - y)) / weight.sum()


def optimizer():
    return optax.named_chain(("rate", optax.scale_by_learning_rate(lambda count: 0.5)))


def state_of(w):
    params = {"w": jnp.array(w)}
    zero = jnp.zeros((), jnp.int32)
    return TrainState(zero, params, optimizer().init(params), None, zero, jnp.zeros((), bool))


def unjitted_step(of=losses, **options):
    defaults = {
        "seed": 0,
        "accumulation": 1,
        "clip_norm": None,
        "ema_decay": None,
        "non_finite": "stop",
        "rate": lambda count: 0.5,
        "minimized": {"loss": 1.0},
        "weights": weights_of,
    }
    return make_step(differentiate(of), optimizer(), **(defaults | options))


def step_with(**options):
    return jax.jit(unjitted_step(**options))


@pytest.mark.parametrize("accumulation", [1, 2, 3, 6])
def test_accumulated_gradients_are_those_of_the_big_batch_though_microbatches_weigh_differently(accumulation):
    w = np.array([0.3, -1.2, 0.7], np.float32)
    # With accumulation 6 one microbatch weighs nothing at all, and none weighs as much as another.
    batch = batch_of([0, 5, 1, 0, 0, 2, 0, 0, 4, 0, 0.5, 3])
    grads, sums = jax.jit(lambda p, b: gradients_of(p, b, accumulation))({"w": w}, batch)
    np.testing.assert_allclose(grads["w"], closed_form(w, batch), rtol=1e-5)
    np.testing.assert_allclose(sums["loss"][1], 15.5)


def test_a_batch_of_padding_alone_has_gradient_zero():
    grads, _ = gradients_of({"w": np.ones(3, np.float32)}, batch_of([0, 0]), 1)
    np.testing.assert_array_equal(grads["w"], np.zeros(3))


@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_each_minimized_sum_is_divided_by_its_own_weight_however_the_batch_is_split(accumulation):
    """An auxiliary loss reaches the gradient once: d/dw of sum(weight * e^2) / sum(weight) + 0.3 * sum(n * w^2) / sum(n)."""

    def both(params, batch, randomness):
        n = jnp.sum(batch["group"])
        return losses(params, batch, randomness) | {"balance": (n * jnp.sum(params["w"] ** 2), n)}

    w, batch = np.array([0.3, -1.2, 0.7], np.float32), batch_of([0, 5, 1, 0, 0, 2, 3, 1])
    batch["group"] = np.array([1, 0, 0, 2, 0, 0, 0, 5], np.float32)
    each = seeds({"loss": 1.0, "balance": 0.3}, weights_of(batch) | {"balance": jnp.sum(batch["group"])})
    grads, sums = gradients(differentiate(both), {"w": w}, batch, None, each, accumulation)
    np.testing.assert_allclose(grads["w"], closed_form(w, batch) + 0.3 * 2 * w, rtol=1e-5)
    np.testing.assert_allclose(sums["balance"][1], 8)


def test_clipping_is_by_the_global_norm_and_the_norm_reported_is_the_one_before():
    w, batch = np.zeros(3, np.float32), batch_of([1, 1, 1])
    expected = closed_form(w, batch)
    state, sums, _ = step_with(clip_norm=0.1)(state_of(w), batch)
    np.testing.assert_allclose(state.params["w"], -0.5 * expected * 0.1 / np.linalg.norm(expected), rtol=1e-5)
    np.testing.assert_allclose(sums["gradient_norm"][0], np.linalg.norm(expected), rtol=1e-5)


def test_stop_halts_at_the_first_step_that_is_not_finite_and_keeps_its_state():
    step, state, good = step_with(), state_of(np.ones(3, np.float32)), batch_of([1, 1])
    bad = good | {"y": np.array([np.inf, 0], np.float32)}
    state, _, _ = step(state, good)
    before = np.asarray(state.params["w"])
    for batch in (bad, good):
        state, _, _ = step(state, batch)
        np.testing.assert_array_equal(state.params["w"], before)
        assert int(state.step) == 1 and bool(state.halted)


def test_skip_leaves_the_weights_counts_the_step_and_goes_on():
    step, good = step_with(non_finite="skip"), batch_of([1, 1])
    start = state_of(np.ones(3, np.float32))
    state, sums, _ = step(start, good | {"y": np.array([np.nan, 0], np.float32)})
    np.testing.assert_array_equal(state.params["w"], start.params["w"])
    assert int(state.step) == 1 and int(state.skipped) == 1 and float(sums["finite"][0]) == 0
    state, sums, _ = step(state, good)
    np.testing.assert_allclose(state.params["w"], 1 - 0.5 * closed_form(np.ones(3), good), rtol=1e-5)
    assert int(state.opt_state["rate"].count) == 1 and float(sums["finite"][0]) == 1


def test_noise_does_not_depend_on_how_the_batch_is_split():
    def noisy(params, batch, randomness):
        keep = randomness.named("x").keep(0.5, batch["x"].shape)
        return losses(params, batch | {"x": jnp.where(keep, batch["x"], 0)}, None)

    batch, w = batch_of(range(1, 13)), np.array([0.3, -1.2, 0.7], np.float32)
    results = [unjitted_step(noisy, seed=3, accumulation=n)(state_of(w), batch)[0].params["w"] for n in (1, 2, 4)]
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-5, atol=1e-6)
    clean = 0.5 * closed_form(w, batch)
    assert np.abs(np.asarray(results[0]) - (w - clean)).max() > 0.01
