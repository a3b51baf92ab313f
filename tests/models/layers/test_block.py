"""A Transformer block: where its norms and its noise stand. Sub-layers only scale here, so closed forms are short."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.layers.block import TransformerBlock
from models.layers.initializers import ONES
from parallel.annotate import Randomness, param
from parallel.parameters import bind, declared

B, S, D = 4, 3, 8


class Times(nnx.Module):
    """x times a learned number."""

    def __init__(self):
        self.factor = param((), (), ONES)

    def __call__(self, x, context=None, randomness=None):
        return x * self.factor[...]


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)


def run(x, *, pre_norm, rate=0.0, randomness=None, attention=2.0, mlp=-3.0):
    block = TransformerBlock(Times(), Times(), width=D, pre_norm=pre_norm, epsilon=1e-6, bias=True, dropout_rate=rate)
    ones, zeros = jnp.ones(D), jnp.zeros(D)
    values = {
        f"{at}.{name}": value
        for at in ("attention_norm", "mlp_norm")
        for name, value in (("scale", ones), ("bias", zeros))
    }
    values |= {"attention.factor": jnp.float32(attention), "mlp.factor": jnp.float32(mlp)}
    assert declared(block).keys() == values.keys()
    out, sums = bind(block, values)(x, None, randomness)
    assert sums == {}
    return np.asarray(out)


X = np.random.default_rng(0).normal(3, 2, (B, S, D)).astype("f4")


def test_post_norm_normalizes_each_sum_with_its_residual():
    expected = norm(X + 2 * X)
    np.testing.assert_allclose(run(X, pre_norm=False), norm(expected - 3 * expected), rtol=1e-4, atol=1e-5)


def test_pre_norm_normalizes_what_goes_in_and_leaves_the_residual_alone():
    expected = X + 2 * norm(X)
    np.testing.assert_allclose(run(X, pre_norm=True), expected - 3 * norm(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("only", ["attention", "mlp"])
def test_dropout_acts_on_what_each_sub_layer_gives_before_the_residual(only):
    factors = {"attention": 0.0, "mlp": 0.0} | {only: 1.0}
    stream = Randomness.for_step(0, 0, B)
    added = run(X, pre_norm=True, rate=0.5, randomness=stream, **factors) - X
    kept = np.abs(added) > 1e-6
    np.testing.assert_allclose(added, np.where(kept, 2 * norm(X), 0), rtol=1e-3, atol=1e-4)
    assert 0.2 < kept.mean() < 0.8


def test_the_two_sub_layers_drop_different_elements():
    stream = Randomness.for_step(0, 0, B)
    masks = [
        np.abs(run(X, pre_norm=True, rate=0.5, randomness=stream, attention=a, mlp=m) - X) > 1e-6
        for a, m in ((1.0, 0.0), (0.0, 1.0))
    ]
    assert (masks[0] != masks[1]).any()


def test_without_randomness_nothing_is_dropped():
    np.testing.assert_array_equal(run(X, pre_norm=True, rate=0.5), run(X, pre_norm=True))
