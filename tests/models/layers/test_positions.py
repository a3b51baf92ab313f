"""Positions against the published formulas, in exact integers or float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.positions import RelativeBias, relative_bucket, rotate, sinusoidal
from parallel.parameters import bind, declared


def test_sinusoids_have_wavelengths_from_2_pi_to_10000_times_that():
    positions, width = np.array([[0, 1, 5, 511], [0, 1, 0, 1]], "i4"), 10
    out = np.asarray(sinusoidal(positions, width, jnp.float32))
    for b, s in np.ndindex(positions.shape):
        for i in range(5):
            angle = positions[b, s] * 10000 ** (-i / 4)
            assert abs(out[b, s, i] - math.sin(angle)) < 1e-4
            assert abs(out[b, s, 5 + i] - math.cos(angle)) < 1e-4
    assert sinusoidal(positions, width, jnp.bfloat16).dtype == jnp.bfloat16


def test_rotation_turns_each_pair_by_position_times_its_frequency():
    rng, positions = np.random.default_rng(0), np.array([[0, 1, 2, 300]], "i4")
    x = rng.normal(size=(1, 4, 2, 6)).astype("f4")
    out = np.asarray(rotate(x, positions))
    for s, n, h in np.ndindex(4, 2, 3):
        turned = complex(x[0, s, n, h], x[0, s, n, h + 3]) * np.exp(1j * positions[0, s] * 10000 ** (-2 * h / 6))
        np.testing.assert_allclose([out[0, s, n, h], out[0, s, n, h + 3]], [turned.real, turned.imag], atol=2e-4)


def test_rotated_products_depend_on_the_distance_alone():
    rng = np.random.default_rng(0)
    q, k = (np.tile(rng.normal(size=(1, 1, 1, 8)), (1, 10, 1, 1)).astype("f4") for _ in range(2))
    at = np.arange(10, dtype="i4")[None]
    scores = np.einsum("sh,th->st", rotate(q, at)[0, :, 0], rotate(k, at)[0, :, 0])
    for distance in range(-9, 10):
        np.testing.assert_allclose(
            np.diagonal(scores, distance), np.diagonal(scores, distance)[0], rtol=1e-4, atol=1e-4
        )


def test_rotation_of_bfloat16_is_computed_in_float32():
    # At position 511 a bfloat16 angle, whose step is 2 there, would be anywhere on the circle.
    x = jnp.array([1.0, 0.0], jnp.bfloat16).reshape(1, 1, 1, 2)
    out = rotate(x, np.array([[511]], "i4"))
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(out, "f4").ravel(), [math.cos(511), math.sin(511)], atol=5e-3)


def bucket_by_integers(distance: int) -> int:
    """T5's bucket of 32, with 128 the farthest: 8 + floor(8 log(n/8) / log(16)) = 8 + floor(log2(n^2/64)), exactly."""
    ahead, n = (16 if distance > 0 else 0), abs(distance)
    if n < 8:
        return ahead + n
    steps = max(k for k in range(40) if n * n >= 64 * 2**k)
    return ahead + min(8 + steps, 15)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_bucket_of_every_distance_is_t5s(compiled):
    distances = np.arange(-600, 601)
    bucket = jax.jit(relative_bucket, static_argnums=(1, 2)) if compiled else relative_bucket
    np.testing.assert_array_equal(bucket(distances, 32, 128), [bucket_by_integers(d) for d in distances.tolist()])


@pytest.mark.parametrize("compiled", [False, True])
def test_the_causal_bucket_of_every_distance_is_t5s(compiled):
    def by_integers(n: int) -> int:
        """Of 32, 16 are exact; then 16 + floor(16 log(n/16) / log(8)): the most k of which n^16 >= 16^16 8^k."""
        return n if n < 16 else min(16 + max(k for k in range(60) if n**16 >= 16**16 * 8**k), 31)

    bucket = lambda d: relative_bucket(d, 32, 128, causal=True)
    distances = np.arange(-600, 20)
    expected = [by_integers(max(-d, 0)) for d in distances.tolist()]
    np.testing.assert_array_equal((jax.jit(bucket) if compiled else bucket)(distances), expected)


def test_the_bias_of_a_query_and_a_key_is_its_heads_number_for_their_distance():
    bias = RelativeBias(3)
    table = np.random.default_rng(0).normal(size=(32, 3)).astype("f4")
    assert {path: (d.shape, d.names) for path, d in declared(bias).items()} == {
        "table": ((32, 3), ("relative_buckets", "heads"))
    }
    out = np.asarray(bind(bias, {"table": table})(20))
    assert out.shape == (3, 20, 20) and out.dtype == np.float32
    for n, s, t in np.ndindex(out.shape):
        assert out[n, s, t] == table[bucket_by_integers(t - s), n]
