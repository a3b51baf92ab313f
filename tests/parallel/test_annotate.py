"""The four verbs without a layout, and that an active one gets what they got."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.layers.initializers import TruncatedNormal
from parallel.annotate import Randomness, activate, attend, dropout, param, part, run_blocks, shard, stack
from parallel.layout import Layout
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
        return shard(x, "batch", "embed", name="residual")


STACKED = stack(Block(), L)
VALUES = initialize(declared(STACKED), 0)
X, GAIN = np.random.default_rng(0).normal(size=(B, D)).astype("f4"), np.float32(0.7)


def through_run_blocks(values, x, gain):
    return run_blocks(bind(STACKED, values), x, gain, randomness=Randomness.for_step(1, 2, B))


def through_a_loop(values, x, gain):
    for index in range(L):
        block = bind(Block(), {path: value[index] for path, value in values.items()})
        x = block(x, gain, randomness=Randomness.for_step(1, 2, B).layer(index))
    return x


def loss_and_gradients(run):
    return jax.jit(jax.value_and_grad(lambda *args: jnp.sum(run(*args) ** 2), (0, 1, 2)))(VALUES, X, GAIN)


def agree(first, second):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_run_blocks_is_a_loop_over_the_blocks_forward_and_back_with_dropout_on():
    agree(loss_and_gradients(through_run_blocks), loss_and_gradients(through_a_loop))


@pytest.mark.parametrize("keep", ["all", "nothing", ("residual",)], ids=str)
def test_a_layout_with_any_remat_runs_the_same_blocks(keep):
    mesh = jax.make_mesh((2, 4), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rules = Rules({"embed": "data", "mlp": "tensor"}, {"batch": "data", "embed": "tensor"})
    layout = Layout({"data": 2, "tensor": 4}, {"": rules}, Remat(keep), mesh)
    with activate(layout):
        found = loss_and_gradients(through_run_blocks)
    agree(found, loss_and_gradients(through_a_loop))


def test_blocks_without_randomness_get_none():
    agree(run_blocks(bind(STACKED, VALUES), X, GAIN), run_blocks(bind(STACKED, VALUES), X, GAIN, randomness=None))
    assert not np.allclose(run_blocks(bind(STACKED, VALUES), X, GAIN), through_run_blocks(VALUES, X, GAIN))


def test_the_program_does_not_grow_with_depth():
    def lines(num_layers):
        blocks = stack(Block(), num_layers)
        step = jax.grad(lambda values: jnp.sum(run_blocks(bind(blocks, values), X, GAIN)))
        return str(jax.make_jaxpr(step)(abstract(declared(blocks)))).count("\n")

    assert lines(2) == lines(48)


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

    def attend(self, *arrays, **options):
        self.heard.append(("attend", len(arrays), sorted(options)))
        return arrays[0]


def test_an_active_layout_gets_names_and_the_part_and_only_while_it_is_active():
    layout = Listening()
    with activate(layout):
        shard(X, "batch", "embed", name="a")
        with part("encoder"):
            with part("blocks"):
                shard(X, "batch", "mlp", name="b")
            shard(X, "batch", "embed", name="c")
        attend(X, X, X, causal=True)
    shard(X, "batch", "embed", name="d")
    assert layout.heard == [
        (("batch", "embed"), "a", ""),
        (("batch", "mlp"), "b", "encoder.blocks"),
        (("batch", "embed"), "c", "encoder"),
        ("attend", 3, ["causal"]),
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
