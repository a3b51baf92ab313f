"""Linear maps and the feed-forward block against loops and closed forms."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from mistake import Mistake
from models.layers.dense import ACTIVATIONS, Dense, FeedForward, activation
from models.layers.initializers import ZEROS, FanIn, TruncatedNormal
from parallel.parameters import Declared, bind, declared

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype("f4")


def test_dense_contracts_the_last_dimensions_with_the_kernels_first():
    dense = Dense({"heads": 2, "head_dim": 3}, {"embed": 5})
    x, kernel, bias = normal(4, 2, 3), normal(2, 3, 5), normal(5)
    expected = np.tile(bias, (4, 1)).astype("f8")
    for b, n, h, d in itertools.product(range(4), range(2), range(3), range(5)):
        expected[b, d] += float(x[b, n, h]) * float(kernel[n, h, d])
    np.testing.assert_allclose(bind(dense, {"kernel": kernel, "bias": bias})(x), expected, rtol=1e-5, atol=1e-6)


def test_dense_may_give_several_dimensions():
    dense = Dense({"embed": 4}, {"heads": 2, "head_dim": 3}, bias=False)
    x, kernel = normal(2, 5, 4), normal(4, 2, 3)
    expected = (x.reshape(10, 4) @ kernel.reshape(4, 6)).reshape(2, 5, 2, 3)
    np.testing.assert_allclose(bind(dense, {"kernel": kernel})(x), expected, rtol=1e-5, atol=1e-6)


def test_dense_declares_named_float32_parameters_with_the_fan_in_of_all_inputs():
    assert declared(Dense({"heads": 2, "head_dim": 3}, {"embed": 5})) == {
        "kernel": Declared((2, 3, 5), ("heads", "head_dim", "embed"), FanIn(2)),
        "bias": Declared((5,), ("embed",), ZEROS),
    }
    init = TruncatedNormal(0.02)
    assert declared(Dense({"embed": 2}, {"mlp": 3}, bias=False, init=init)) == {
        "kernel": Declared((2, 3), ("embed", "mlp"), init)
    }


def test_dense_computes_in_the_dtype_of_x():
    dense = Dense({"embed": 2}, {"mlp": 3})
    values = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}
    assert bind(dense, values)(jnp.ones((4, 2), jnp.bfloat16)).dtype == jnp.bfloat16


SCALAR = {
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_its_published_formula(name):
    x = np.linspace(-6, 6, 41, dtype="f4")
    np.testing.assert_allclose(activation(name, "b")(x), [SCALAR[name](float(v)) for v in x], rtol=1e-4, atol=1e-6)


def test_an_unknown_activation_is_a_mistake_with_the_nearest():
    with pytest.raises(Mistake) as caught:
        activation("gelu_tan", "bert.activation")
    assert str(caught.value).startswith(
        "bert.activation: 'gelu_tan' is not an activation. Nearest: 'gelu_tanh', 'gelu'"
    )
    assert str(caught.value).endswith("All: gelu, gelu_tanh, relu, silu, tanh.")


@pytest.mark.parametrize("gated", [False, True])
def test_feed_forward_is_down_of_act_of_up_gated_or_not(gated):
    mlp = FeedForward(4, 6, act=ACTIVATIONS["silu"], gated=gated, bias=True)
    values = {path: normal(*record.shape) for path, record in declared(mlp).items()}
    assert ("gate.kernel" in values) == gated
    x = normal(2, 3, 4)
    up = x.astype("f8") @ values["up.kernel"] + values["up.bias"]
    silu = lambda z: z / (1 + np.exp(-z))
    hidden = silu(x.astype("f8") @ values["gate.kernel"] + values["gate.bias"]) * up if gated else silu(up)
    expected = hidden @ values["down.kernel"] + values["down.bias"]
    np.testing.assert_allclose(bind(mlp, values)(x), expected, rtol=1e-4, atol=1e-5)


def test_feed_forward_without_biases_declares_none():
    assert set(declared(FeedForward(4, 6, act=ACTIVATIONS["relu"], gated=True, bias=False))) == {
        "up.kernel",
        "gate.kernel",
        "down.kernel",
    }
