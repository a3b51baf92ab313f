"""Rates at the first, the warm-up's, and the last update, by hand and for any numbers."""

import math

import gin
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistake import Mistake
from training.schedules import constant, cosine, inverse_sqrt, linear, stages

UPDATES = jnp.arange(64)  # one shape, so that nothing is compiled twice


def rates(schedule, count):
    return [float(schedule(i)) for i in range(count)]


def test_warmup_starts_above_zero_and_its_last_update_has_the_peak():
    assert rates(constant(2.0, warmup=4), 6) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    assert rates(linear(1.0, steps=6, warmup=2), 2) == [0.5, 1.0]
    assert rates(cosine(1.0, steps=6, warmup=2), 2) == [0.5, 1.0]
    assert rates(inverse_sqrt(1.0, warmup=2), 2) == [0.5, 1.0]


@pytest.mark.parametrize(
    "schedule",
    [
        lambda warmup: constant(0.3, warmup),
        lambda warmup: linear(0.3, 7, warmup, end=0.1),
        lambda warmup: cosine(0.3, 7, warmup),
        lambda warmup: inverse_sqrt(0.3, warmup),
    ],
)
def test_warmup_of_0_and_of_1_start_at_the_peak_and_are_the_same(schedule):
    assert float(schedule(0)(0)) == np.float32(0.3)
    assert rates(schedule(0), 9) == rates(schedule(1), 9)


def test_linear_is_one_step_short_of_its_end_at_the_last_update_and_stays_at_the_end():
    np.testing.assert_allclose(rates(linear(1.0, steps=4), 6), [1.0, 0.75, 0.5, 0.25, 0.0, 0.0], rtol=1e-6)
    expected = [0.25, 0.5, 0.75, 1.0, 0.8, 0.6, 0.4, 0.2, 0.0, 0.0]
    np.testing.assert_allclose(rates(linear(1.0, steps=8, warmup=4), 10), expected, rtol=1e-6)
    np.testing.assert_allclose(rates(linear(3.0, steps=4, end=1.0), 6), [3.0, 2.5, 2.0, 1.5, 1.0, 1.0], rtol=1e-6)


def test_cosine_follows_half_a_cosine_from_the_peak_to_its_end():
    expected = [0.1, 0.2] + [0.02 + 0.18 * 0.5 * (1 + math.cos(math.pi * k / 5)) for k in (1, 2, 3, 4, 5)] + [0.02]
    np.testing.assert_allclose(rates(cosine(0.2, steps=6, warmup=2, end=0.02), 8), expected, rtol=1e-6)


def test_cosine_keeps_its_digits_at_the_last_of_many_updates():
    expected = 0.5 * (1 + math.cos(math.pi * (1 - 1e-6)))
    # In float32 1 + cos would be 0 here.
    np.testing.assert_allclose(cosine(1.0, steps=1_000_000)(999_999), expected, rtol=1e-3)


def test_inverse_sqrt_halves_when_the_updates_done_are_four_times_the_warmup():
    schedule = inverse_sqrt(0.01, warmup=10)
    np.testing.assert_allclose([schedule(i) for i in (9, 39, 89, 999)], [0.01, 0.005, 0.01 / 3, 0.001], rtol=1e-6)


def test_warmup_as_long_as_the_run_ends_at_the_peak():
    assert rates(linear(1.0, steps=4, warmup=4), 5) == [0.25, 0.5, 0.75, 1.0, 0.0]
    assert rates(linear(1.0, steps=1), 2) == [1.0, 0.0]


def test_each_stage_restarts_from_0_with_its_own_warmup():
    schedule = stages([linear(1.0, steps=4, warmup=2), constant(3.0), linear(8.0, steps=2, warmup=2)], [3, 5])
    np.testing.assert_allclose(rates(schedule, 8), [0.5, 1.0, 2 / 3, 3.0, 3.0, 4.0, 8.0, 0.0], rtol=1e-6)


def test_a_traced_update_gives_the_rate_of_a_python_one_in_float32():
    for schedule in (constant(0.1, 3), linear(0.1, 9, 3), cosine(0.1, 9, 3), inverse_sqrt(0.1, 3)):
        traced = jax.jit(stages([schedule, schedule], [5]))(UPDATES)
        assert traced.dtype == jnp.float32
        np.testing.assert_allclose(traced[:12], rates(stages([schedule, schedule], [5]), 12), rtol=1e-6, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    form=st.sampled_from([linear, cosine]),
    peak=st.floats(1e-6, 10),
    low=st.just(0.0) | st.floats(1e-3, 1),
    steps=st.integers(1, 60),
    share=st.floats(0, 1),
)
def test_any_decay_rises_to_its_peak_and_falls_to_its_end(form, peak, low, steps, share):
    warmup, end = int(share * steps), low * peak
    rate = np.asarray(form(peak, steps=steps, warmup=warmup, end=end)(UPDATES))
    first, slack = max(warmup - 1, 0), 1e-6 * peak
    assert rate[first] == np.float32(peak)
    assert (rate[steps:] == np.float32(end)).all()
    assert (rate[:steps] > 0).all() and (rate <= peak + slack).all() and (rate[first:] >= end - slack).all()
    assert (np.diff(rate[: first + 1]) > 0).all() and (np.diff(rate[first:]) <= slack).all()


@settings(max_examples=30, deadline=None)
@given(peak=st.floats(1e-6, 10), warmup=st.integers(0, 60))
def test_inverse_sqrt_never_exceeds_its_peak_and_never_reaches_zero(peak, warmup):
    rate = np.asarray(inverse_sqrt(peak, warmup)(UPDATES))
    assert rate.argmax() == max(warmup - 1, 0) and rate.max() == np.float32(peak) and rate.min() > 0


@pytest.mark.parametrize(
    "build, binding",
    [
        (lambda: cosine(1.0, steps=10, warmup=11), "cosine.warmup: 11 is longer than cosine.steps 10"),
        (lambda: linear(1.0, steps=10, warmup=-1), "linear.warmup: -1"),
        (lambda: linear(-1.0, steps=10), "linear.peak: -1.0"),
        (lambda: linear(math.inf, steps=10), "linear.peak: inf"),
        (lambda: linear("1e-3", steps=10), "linear.peak: '1e-3'"),
        (lambda: linear(1.0, steps=0), "linear.steps: 0"),
        (lambda: cosine(1.0, steps=1e5), "cosine.steps: 100000.0"),
        (lambda: cosine(1.0, steps=10, end=2.0), "cosine.end: 2.0 is above cosine.peak 1.0"),
        (lambda: constant(math.nan), "constant.value: nan"),
        (lambda: inverse_sqrt(1.0, warmup=-5), "inverse_sqrt.warmup: -5"),
        (lambda: stages([constant(1.0)], [5]), "stages.boundaries: 1 for 1 schedules"),
        (lambda: stages([constant(1.0)] * 3, [5, 5]), "stages.boundaries: 5 follows 5"),
        (lambda: stages([constant(1.0)] * 2, [0]), "stages.boundaries: 0 follows 0"),
    ],
)
def test_a_schedule_that_cannot_be_meant_names_its_binding(build, binding):
    with pytest.raises(Mistake) as caught:
        build()
    assert str(caught.value).startswith(binding)


def test_two_stages_of_one_schedule_are_told_apart_by_their_gin_scopes():
    gin.parse_config("""
        stages.schedules = [@short/linear(), @long/linear()]
        stages.boundaries = [2]
        short/linear.peak = 4.0
        short/linear.steps = 2
        long/linear.peak = 2.0
        long/linear.steps = 4
    """)
    try:
        assert rates(stages(), 6) == [4.0, 2.0, 2.0, 1.5, 1.0, 0.5]
    finally:
        gin.clear_config()
