"""Convolutions over shared images are those of whole images: values and gradients; edges travel, images don't."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistake import Mistake
from parallel.annotate import activate, convolve
from parallel.convolution import convolution
from parallel.layout import Layout
from parallel.modes import Modes
from parallel.rules import Rules

MESHES = {
    "rows": ({"data": 2, "rows": 4}, {"batch": "data", "height": "rows"}),
    "both": ({"data": 2, "rows": 2, "columns": 2}, {"batch": "data", "height": "rows", "width": "columns"}),
    "eight": ({"rows": 4, "columns": 2}, {"height": "rows", "width": "columns"}),
}


def layout(name):
    sizes, rules = MESHES[name]
    mesh = jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))
    return Layout(sizes, {"": Modes(Rules({}, rules))}, mesh=mesh)


def arrays(height, width, kernel, groups=1):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, height, width, 4)).astype("f4")
    return jnp.asarray(x), jnp.asarray(rng.normal(size=(*kernel, 4 // groups, 4)).astype("f4"))


def differentiated(how, x, kernel):
    def loss(x, kernel):
        y = how(x, kernel)
        return jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape))), y

    (_, y), gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(x, kernel)
    return y, gradients


CASES = [
    ("rows", 16, 12, (3, 3), {}),
    ("both", 16, 16, (5, 3), {}),
    ("both", 16, 16, (3, 3), {"dilation": (2, 3)}),
    ("rows", 8, 8, (3, 3), {"dilation": (4, 1)}),  # An edge of 4, of shares of 2: two hops.
    ("eight", 16, 16, (3, 3), {"strides": (2, 2)}),
    ("both", 16, 16, (4, 2), {}),
    ("both", 16, 16, (4, 4), {"strides": (4, 4), "padding": "VALID"}),
    ("rows", 16, 9, (1, 1), {}),
    ("both", 16, 16, (3, 3), {"padding": ((2, 0), (0, 2))}),
    ("both", 16, 16, (3, 3), {"groups": 2}),
]


@pytest.mark.parametrize(("mesh", "height", "width", "kernel", "options"), CASES)
def test_it_is_the_convolution_of_the_whole(mesh, height, width, kernel, options):
    x, w = arrays(height, width, kernel, options.get("groups", 1))
    expected = differentiated(lambda x, w: convolution(x, w, **options), x, w)
    with activate(layout(mesh)):
        found = differentiated(lambda x, w: convolve(x, w, name="features", **options), x, w)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b)


def test_an_impulse_at_the_edge_of_a_share_reaches_the_neighbour():
    x = jnp.zeros((2, 16, 8, 4)).at[:, 3, 4, 0].set(1.0)
    with activate(layout("rows")):
        y = convolve(x, jnp.ones((3, 3, 4, 4)), name="features")
    assert float(y[0, 4, 4, 0]) == 1.0 and float(y[0, 5, 4, 0]) == 0.0


def test_edges_are_sent_and_images_are_not():
    found = layout("both")
    x, w = arrays(16, 16, (3, 3))
    place = jax.sharding.NamedSharding(found.mesh, jax.sharding.PartitionSpec("data", "rows", "columns"))
    with activate(found):
        step = jax.jit(lambda x, w: convolve(x, w, name="features"), in_shardings=(place, None), out_shardings=place)
        text = step.lower(x, w).compile().as_text()
    assert "collective-permute" in text and " all-gather(" not in text


@pytest.mark.parametrize(
    ("height", "options", "message"),
    [
        (12, {"strides": (2, 2)}, "'height' of 12 over 4 devices gives each 3.*Sizes that fit: 8, 16"),
        (16, {"padding": "VALID"}, "a convolution of 'height' 16 gives 14"),
    ],
)
def test_shares_that_would_be_unequal_are_refused(height, options, message):
    x, w = arrays(height, 8, (3, 3))
    with activate(layout("rows")), pytest.raises(Mistake, match=message):
        convolve(x, w, name="features", **options)
