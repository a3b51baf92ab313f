"""Rematerialization changes what is kept, never what comes out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from mistake import Mistake
from parallel.remat import Remat


def body(x, w):
    hidden = checkpoint_name(jnp.sin(x @ w), "hidden")
    return checkpoint_name(jnp.cos(hidden @ w), "residual")


def scanned(remat):
    """The sum of squares after eight blocks, as a layout runs them."""
    wrapped = remat.wrap(body)
    return lambda ws, x: jnp.sum(jax.lax.scan(lambda x, w: (wrapped(x, w), None), x, ws)[0] ** 2)


ARGUMENTS = (np.random.default_rng(0).normal(size=(8, 6, 6)).astype("f4"), np.ones((5, 6), "f4"))
KEEPS = ["all", "nothing", ("hidden",), ["hidden", "residual"]]


@pytest.mark.parametrize("keep", KEEPS[1:], ids=str)
def test_loss_and_gradients_are_those_without(keep):
    for mine, plain in zip(
        jax.tree.leaves(jax.value_and_grad(scanned(Remat(keep)), (0, 1))(*ARGUMENTS)),
        jax.tree.leaves(jax.value_and_grad(scanned(Remat()), (0, 1))(*ARGUMENTS)),
        strict=True,
    ):
        np.testing.assert_allclose(mine, plain, rtol=1e-5, atol=1e-6)


def kept_by_scan(keep) -> int:
    """Floats that a scan of eight blocks stacks up for its backward pass, the weights (there anyhow) left out."""
    jaxpr = jax.make_jaxpr(lambda *args: jax.vjp(scanned(Remat(keep)), *args)[1])(*ARGUMENTS)
    (scan,) = (eqn for eqn in jaxpr.jaxpr.eqns if eqn.primitive.name == "scan")
    return sum(v.aval.size for v in scan.outvars if v.aval.shape[:1] == (8,) and v.aval.shape[1:] == (5, 6))


def test_what_is_kept_is_what_was_named_beside_each_blocks_input():
    one = 8 * 5 * 6
    assert kept_by_scan("nothing") == one
    assert kept_by_scan(("hidden",)) == 2 * one
    assert kept_by_scan("all") > 2 * one


def test_all_wraps_nothing():
    assert Remat("all").wrap(body) is body


def test_a_word_that_is_neither_all_nor_nothing_is_a_mistake_that_shows_the_tuple():
    with pytest.raises(Mistake, match=r"^remat.keep: 'hidden' is neither 'all' nor 'nothing'.*\('hidden',\)"):
        Remat("hidden")


def test_a_kept_name_that_no_activation_has_is_a_mistake_with_the_nearest_and_all():
    with pytest.raises(Mistake) as caught:
        Remat(("residual", "mlp_hiden")).check({"residual", "mlp_hidden"})
    assert str(caught.value) == (
        "remat.keep: no activation is called 'mlp_hiden'. Nearest: 'mlp_hidden'. There are: mlp_hidden, residual."
    )


@pytest.mark.parametrize("keep", ["all", "nothing", ("residual",)])
def test_names_that_are_there_are_let_through(keep):
    Remat(keep).check({"residual"})
