"""Patches and positions of images against loops over pixels."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from mistake import Mistake
from models.layers.patches import Patches, pair, sincos_2d
from parallel.parameters import bind, declared


@pytest.mark.parametrize("patch", [(2, 2), (3, 1), (6, 4)])
def test_each_patch_is_multiplied_by_one_matrix_of_its_pixels(patch):
    layer = Patches(patch=patch, channels=2, width=5, names=("batch", "height", "width", "channels"), init=None)
    rng = np.random.default_rng(0)
    values = {path: rng.normal(size=d.shape).astype("f4") for path, d in declared(layer).items()}
    x = rng.normal(size=(2, 6, 4, 2)).astype("f4")
    out = bind(layer, values)(x)
    ph, pw = patch
    assert out.shape == (2, 6 // ph, 4 // pw, 5)
    for b, i, j in np.ndindex(out.shape[:3]):
        pixels = x[b, i * ph : (i + 1) * ph, j * pw : (j + 1) * pw].reshape(-1)
        expected = pixels @ values["kernel"].reshape(-1, 5) + values["bias"]
        np.testing.assert_allclose(out[b, i, j], expected, rtol=1e-4, atol=1e-5)
    assert bind(layer, values)(x.astype(jnp.bfloat16)).dtype == jnp.bfloat16


def test_sincos_positions_turn_with_column_and_row_at_wavelengths_from_one_turn_to_ten_thousand():
    table = sincos_2d((3, 2), 12)
    assert table.shape == (6, 12) and table.dtype == np.float32
    for row in range(3):
        for column in range(2):
            for k, slower in enumerate((1, 100, 10000)):
                expected = [f(at / slower) for at in (column, row) for f in (math.sin, math.cos)]
                np.testing.assert_allclose(table[row * 2 + column, k::3], expected, atol=1e-6)


def test_sincos_positions_of_four_dimensions_have_one_wavelength():
    np.testing.assert_allclose(sincos_2d((1, 3), 4)[2], [math.sin(2), math.cos(2), 0, 1], atol=1e-6)


def test_one_number_is_both_sides_of_a_size():
    assert pair(7, "x.size") == (7, 7)
    assert pair([3, 4], "x.size") == (3, 4)


@pytest.mark.parametrize("size", [0, -1, True, (1,), (1, 2, 3), (2, 0), (2, 1.5), (2, True)])
def test_what_is_no_size_is_a_mistake(size):
    with pytest.raises(
        Mistake, match=r"^x\.size: .* is not a size\. It must be a positive number, or \(rows, columns\)"
    ):
        pair(size, "x.size")
