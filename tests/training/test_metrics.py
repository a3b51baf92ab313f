"""Sums and weights are added, and divided once."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistake import Mistake
from parallel.sums import add
from training.metrics import fetch, finish


def test_mean_over_uneven_batches_is_the_mean_over_all_tokens():
    losses = [np.array([1.0, 2.0, 3.0], np.float32), np.array([10.0], np.float32), np.array([], np.float32)]
    total = {}
    for batch in losses:
        total = add(total, {"loss": (batch.sum(), np.float32(len(batch)))})
    assert finish(total) == {"loss": (1 + 2 + 3 + 10) / 4}


def test_add_keeps_a_metric_that_only_one_side_has():
    together = add({"loss": (1.0, 2.0)}, {"loss": (3.0, 2.0), "accuracy": (1.0, 4.0)})
    assert together == {"loss": (4.0, 4.0), "accuracy": (1.0, 4.0)}


def test_add_changes_neither_argument():
    a, b = {"loss": (1.0, 1.0)}, {"loss": (2.0, 1.0)}
    add(a, b)
    assert (a, b) == ({"loss": (1.0, 1.0)}, {"loss": (2.0, 1.0)})


def test_add_runs_under_jit_and_in_a_scan():
    x = jnp.arange(6.0).reshape(3, 2)
    zero = {"loss": (jnp.zeros(()), jnp.zeros(()))}

    @jax.jit
    def total(x):
        return jax.lax.scan(lambda sums, row: (add(sums, {"loss": (row.sum(), jnp.float32(row.size))}), None), zero, x)[
            0
        ]

    assert finish(total(x)) == {"loss": 15 / 6}


def test_a_metric_without_weight_is_left_out():
    assert finish({"loss": (0.0, 0.0), "accuracy": (1.0, 2.0)}, derived=["perplexity"]) == {"accuracy": 0.5}


def test_a_loss_that_is_not_finite_stays_visible():
    assert math.isnan(finish({"loss": (jnp.float32(jnp.nan), 1.0)})["loss"])


def test_fetched_sums_count_beyond_float32():
    one = fetch({"loss": (jnp.float32(1), jnp.float32(1))})
    many = fetch({"loss": (jnp.float32(2**24), jnp.float32(2**24))})
    assert add(many, one) == {"loss": (2**24 + 1, 2**24 + 1)}


def test_derived_values():
    values = finish({"loss": (2 * math.log(8), 2.0)}, derived=["perplexity", "bits_per_token"])
    assert values == pytest.approx({"loss": math.log(8), "perplexity": 8.0, "bits_per_token": 3.0})


def test_perplexity_of_a_huge_loss_is_infinite():
    assert finish({"loss": (1e6, 1.0)}, derived=["perplexity"])["perplexity"] == math.inf


def test_an_unknown_derived_metric_is_named_with_the_nearest():
    with pytest.raises(Mistake, match="^metrics.derived: 'perplexty' .*Nearest: 'perplexity'"):
        finish({"loss": (1.0, 1.0)}, derived=["perplexty"])


def test_an_array_has_a_value_for_each_element_and_its_extremes():
    load = {"load": (jnp.array([1.0, 2.0, 5.0]), jnp.float32(8))}
    total = add(fetch(load), fetch({"load": (jnp.array([1.0, 0.0, 1.0]), jnp.float32(2))}))
    assert finish(total) == {
        "load/0": 0.2, "load/1": 0.2, "load/2": 0.6, "load_least": 0.2, "load_greatest": 0.6
    }
