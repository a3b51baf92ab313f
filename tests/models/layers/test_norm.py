"""Norms against their papers' equations in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.norm import LayerNorm, RMSNorm
from parallel.parameters import bind, declared, initialize

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_equation(bias):
    x, scale, shift = RNG.normal(3, 2, (4, 5, 16)).astype("f4"), RNG.normal(size=16), RNG.normal(size=16)
    norm = LayerNorm(16, epsilon=1e-3, bias=bias)
    values = {"scale": jnp.asarray(scale, "f4")} | ({"bias": jnp.asarray(shift, "f4")} if bias else {})
    expected = (
        (x - x.mean(-1, keepdims=True, dtype="f8")) / np.sqrt(x.var(-1, keepdims=True, dtype="f8") + 1e-3) * scale
    )
    np.testing.assert_allclose(bind(norm, values)(x), expected + (shift if bias else 0), rtol=1e-4, atol=1e-5)


def test_a_fresh_one_normalizes():
    norm = LayerNorm(64, epsilon=1e-12)
    out = np.asarray(bind(norm, initialize(declared(norm), 0))(RNG.normal(7, 3, (2, 64)).astype("f4")))
    np.testing.assert_allclose(out.mean(-1), 0, atol=1e-6)
    np.testing.assert_allclose(out.std(-1), 1, rtol=1e-5)


def test_statistics_are_float32_when_x_is_bfloat16():
    # 256 + {0, 2}: the mean 257 and the deviations +-1 are not what bfloat16, whose step there is 2, would find.
    norm = LayerNorm(2, epsilon=1e-12)
    out = bind(norm, initialize(declared(norm), 0))(jnp.array([256.0, 258.0], jnp.bfloat16))
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(out.astype("f4"), [-1, 1], rtol=1e-2)


def test_a_row_of_equal_numbers_gives_the_bias_and_not_nan():
    norm = LayerNorm(4, epsilon=1e-12)
    np.testing.assert_array_equal(bind(norm, initialize(declared(norm), 0))(jnp.full(4, 3.0)), np.zeros(4))


def test_the_root_mean_square_norm_is_the_equation():
    x, scale = RNG.normal(3, 2, (4, 5, 16)).astype("f4"), RNG.normal(size=16).astype("f4")
    norm = RMSNorm(16, epsilon=1e-3)
    expected = x / np.sqrt(np.square(x, dtype="f8").mean(-1, keepdims=True) + 1e-3) * scale
    np.testing.assert_allclose(bind(norm, {"scale": scale})(x), expected, rtol=1e-4, atol=1e-5)
    assert {path: record.names for path, record in declared(norm).items()} == {"scale": ("embed",)}


def test_the_mean_square_is_float32_when_x_is_bfloat16():
    # 1 + 256 * 2^-8: bfloat16 would lose each of the small squares.
    x = jnp.concatenate([jnp.ones(1), jnp.full(256, 2.0**-4)]).astype(jnp.bfloat16)
    out = bind(RMSNorm(257, epsilon=0.0), {"scale": jnp.ones(257)})(x)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(out[0], "f4"), np.sqrt(257 / 2), rtol=1e-2)
