"""Rows that know nothing of each other: the same answers on any mesh, and one gradient of the weights they share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistake import Mistake
from parallel.annotate import activate, apart
from parallel.layout import Layout
from parallel.mesh import MeshAxes
from parallel.modes import Modes
from parallel.pipeline import Pipeline
from parallel.rules import Rules

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(8, 3, 4)).astype("f4"), RNG.normal(size=(4, 6)).astype("f4")


def ordered(w, x):
    """tanh(each vector times w), by way of one sort over all rows there are."""
    rows, n, d = x.shape
    order = jnp.argsort(x.reshape(-1, d)[:, 0])
    return (jnp.tanh(x.reshape(-1, d)[order] @ w)[jnp.argsort(order)]).reshape(rows, n, -1)


def loss(w, x, **options):
    options = {"axis": "group", "name": "answers", "what": "sort: 'all'"} | options
    y = apart(ordered, w, x, **options)
    return jnp.sum(y**2), y


def layout(activations, weights=None, **options):
    sizes = {"data": 4, "tensor": 2}
    return Layout(
        sizes, {"": Modes(Rules(weights or {}, activations), **options)}, mesh=MeshAxes(sizes).build(jax.devices())
    )


@pytest.mark.parametrize("axes", ["data", ("data", "tensor"), None])
def test_answers_and_gradients_are_those_of_one_device(axes):
    step = lambda w, x: jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(w, x)
    expected = jax.jit(step)(W, X)
    with activate(layout({"group": axes})):
        found = jax.jit(step)(W, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), expected, found)


def test_each_device_gets_its_own_rows_and_other_axes_still_split():
    found = layout({"group": "data"})
    shapes = []

    def noting(w, x):
        shapes.append(x.shape)
        return ordered(w, x)

    columns = jax.NamedSharding(found.mesh, jax.P(None, "tensor"))
    with activate(found):
        run = jax.jit(lambda w, x: apart(noting, w, x, axis="group", name="answers", what="it"))
        compiled = run.lower(jax.ShapeDtypeStruct(W.shape, W.dtype, sharding=columns), X).compile()
    assert shapes == [(2, 3, 4)]
    assert "f32[6,3]" in compiled.as_text() and "all-gather" not in compiled.as_text()


def test_a_layout_that_splits_what_must_be_whole_is_a_mistake_that_names_the_rule():
    found = layout({"group": "data"}, {"expert": "tensor"})
    with (
        activate(found),
        pytest.raises(Mistake, match=r"^sort: 'all' can't be where 'expert' is split, as it is by rules"),
    ):
        jax.eval_shape(lambda w, x: loss(w, x, whole=("expert",)), W, X)


def test_a_pipeline_is_a_mistake():
    found = layout({"group": "data"}, pipeline=Pipeline(schedule="gpipe", axis="tensor", microbatches=2))
    with activate(found), pytest.raises(Mistake, match=r"^sort: 'all' can't be in a pipeline\. Take another, or leave"):
        jax.eval_shape(loss, W, X)
