"""The verbs without a layout, and that an active one gets what they got."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.layers.initializers import TruncatedNormal
from parallel.annotate import (
    Randomness,
    activate,
    apart,
    attend,
    convolve,
    dropout,
    param,
    part,
    run_blocks,
    shard,
    stack,
)
from parallel.layout import Layout
from parallel.modes import Modes
from parallel.parameters import abstract, bind, declared, initialize
from parallel.remat import Remat
from parallel.rules import Rules

L, B, D = 3, 4, 8


class Block(nnx.Module):
    def __init__(self):
        self.kernel = param((D, D), ("embed", "mlp"), TruncatedNormal(0.5))
        self.bias = param((D,), ("embed",), TruncatedNormal(0.5))

    def __call__(self, x, gain, randomness=None):
        x = x + gain * dropout(jnp.tanh(x @ self.kernel[...] + self.bias[...]), 0.4, randomness, "out")
        return shard(x, "batch", "embed", name="residual"), {"size": (jnp.sum(x**2), jnp.float32(1))}


STACKED = stack(Block(), L)
VALUES = initialize(declared(STACKED), 0)
X, GAIN = np.random.default_rng(0).normal(size=(B, D)).astype("f4"), np.float32(0.7)


def through_run_blocks(values, x, gain):
    return run_blocks(bind(STACKED, values), x, gain, randomness=Randomness.for_step(1, 2, B))


def through_a_loop(values, x, gain):
    total = 0.0
    for index in range(L):
        block = bind(Block(), {path: value[index] for path, value in values.items()})
        x, sums = block(x, gain, randomness=Randomness.for_step(1, 2, B).layer(index))
        total += sums["size"][0]
    return x, {"size": (total, jnp.float32(L))}


def loss_and_gradients(run):
    def loss(*args):
        x, sums = run(*args)
        return jnp.sum(x**2) + 0.1 * sums["size"][0], sums

    return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(VALUES, X, GAIN)


def agree(first, second):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_run_blocks_is_a_loop_over_the_blocks_forward_and_back_with_dropout_on():
    agree(loss_and_gradients(through_run_blocks), loss_and_gradients(through_a_loop))


@pytest.mark.parametrize("keep", ["all", "nothing", ("residual",)], ids=str)
def test_a_layout_with_any_remat_runs_the_same_blocks(keep):
    mesh = jax.make_mesh((2, 4), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rules = Rules({"embed": "data", "mlp": "tensor"}, {"batch": "data", "embed": "tensor"})
    layout = Layout({"data": 2, "tensor": 4}, {"": Modes(rules)}, Remat(keep), mesh)
    with activate(layout):
        found = loss_and_gradients(through_run_blocks)
    agree(found, loss_and_gradients(through_a_loop))


def test_blocks_without_randomness_get_none():
    agree(run_blocks(bind(STACKED, VALUES), X, GAIN), run_blocks(bind(STACKED, VALUES), X, GAIN, randomness=None))
    assert not np.allclose(run_blocks(bind(STACKED, VALUES), X, GAIN)[0], through_run_blocks(VALUES, X, GAIN)[0])


def test_two_stacks_number_their_layers_as_one_does():
    first, last = stack(Block(), 1), stack(Block(), L - 1)
    random = Randomness.for_step(1, 2, B)
    x, _ = run_blocks(bind(first, {path: value[:1] for path, value in VALUES.items()}), X, GAIN, randomness=random)
    rest = bind(last, {path: value[1:] for path, value in VALUES.items()})
    x, _ = run_blocks(rest, x, GAIN, randomness=random, first_layer=1)
    agree(x, through_a_loop(VALUES, X, GAIN)[0])


def test_the_program_does_not_grow_with_depth():
    def lines(num_layers):
        blocks = stack(Block(), num_layers)
        step = jax.grad(lambda values: jnp.sum(run_blocks(bind(blocks, values), X, GAIN)[0]))
        return str(jax.make_jaxpr(step)(abstract(declared(blocks)))).count("\n")

    assert lines(12) == lines(48)


def test_shard_gives_the_activation_the_name_that_remat_keeps_it_by():
    jaxpr = str(jax.make_jaxpr(lambda values: through_run_blocks(values, X, GAIN))(VALUES))
    assert jaxpr.count("name=residual") == 1


def test_shard_without_a_layout_is_the_value_itself():
    np.testing.assert_array_equal(shard(X, "batch", "embed", name="x"), X)


def test_shard_wants_a_name_for_each_dimension():
    with pytest.raises(AssertionError, match="x: 1 names for 2 dimensions"):
        shard(X, "batch", name="x")


class Listening:
    """A layout that notes what it is asked."""

    def __init__(self):
        self.heard = []

    def constrain(self, x, names, name, part):
        self.heard.append((names, name, part))
        return x

    def attend(self, *arrays, part, **options):
        self.heard.append(("attend", len(arrays), part, sorted(options)))
        return arrays[0]

    def convolve(self, x, kernel, names, name, part, **options):
        self.heard.append(("convolve", names, name, part, sorted(options)))
        return x

    def apart(self, function, shared, arrays, axis, name, part, **options):
        self.heard.append(("apart", len(arrays), axis, name, part, options))
        return function(shared, *arrays)


def test_an_active_layout_gets_names_and_the_part_and_only_while_it_is_active():
    layout = Listening()
    with activate(layout):
        shard(X, "batch", "embed", name="a")
        with part("encoder"):
            with part("blocks"):
                shard(X, "batch", "mlp", name="b")
            shard(X, "batch", "embed", name="c")
            attend(X, X, X, causal=True)
            convolve(X, X, name="patches", strides=(2, 2))
            apart(lambda shared, x: x, None, X, axis="group", name="sorted", what="it", whole=("expert",))
    shard(X, "batch", "embed", name="d")
    assert layout.heard == [
        (("batch", "embed"), "a", ""),
        (("batch", "mlp"), "b", "encoder.blocks"),
        (("batch", "embed"), "c", "encoder"),
        ("attend", 3, "encoder", ["causal"]),
        ("convolve", ("batch", "height", "width", "channels"), "patches", "encoder", ["strides"]),
        ("apart", 1, "group", "sorted", "encoder", {"what": "it", "whole": ("expert",)}),
    ]


def test_a_layout_and_a_part_end_when_what_is_within_fails():
    layout = Listening()
    with pytest.raises(ZeroDivisionError), activate(layout), part("encoder"):
        raise ZeroDivisionError
    shard(X, "batch", "embed", name="a")
    assert layout.heard == []
    with activate(layout):
        shard(X, "batch", "embed", name="b")
    assert layout.heard == [(("batch", "embed"), "b", "")]
