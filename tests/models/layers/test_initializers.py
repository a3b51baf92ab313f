"""How fresh parameters are drawn."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.initializers import ONES, ZEROS, Constant, FanIn, TruncatedNormal

KEY = jax.random.key(0)


def test_constants_are_themselves():
    assert (Constant(2.5)(KEY, (2, 3), jnp.bfloat16) == 2.5).all()
    assert (ZEROS(KEY, (4,), jnp.float32) == 0).all() and (ONES(KEY, (4,), jnp.float32) == 1).all()


@pytest.mark.parametrize(
    ("init", "shape", "stddev"),
    [
        (TruncatedNormal(0.02), (400, 300), 0.02),
        (FanIn(), (400, 300), 1 / 20),
        (FanIn(2), (4, 100, 300), 1 / 20),
        (FanIn(1), (400, 3, 100), 1 / 20),
    ],
)
def test_the_standard_deviation_is_that_asked_for_after_the_cut(init, shape, stddev):
    drawn = np.asarray(init(KEY, shape, jnp.float32))
    # The estimate's own deviation is about 1/sqrt(2n) of it: five of those.
    assert abs(drawn.std() / stddev - 1) < 5 / math.sqrt(2 * drawn.size)
    # A standard normal cut at two sigmas has a deviation of 0.8796, so nothing is beyond 2 / 0.8796 of the one asked
    # for.
    assert 2.2 * stddev < np.abs(drawn).max() < 2.2738 * stddev


def test_equal_records_are_equal():
    assert TruncatedNormal(0.02) == TruncatedNormal(0.02) != TruncatedNormal(0.03)
    assert len({FanIn(1), FanIn(1), FanIn(2), ZEROS, Constant(0.0)}) == 3
