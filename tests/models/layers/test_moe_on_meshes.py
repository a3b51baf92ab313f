"""A mixture of experts is the same on every mesh, and its tokens travel as GShard says."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistake import Mistake
from parallel.annotate import Randomness, activate, run_blocks, stack
from parallel.layout import Layout
from parallel.mesh import MeshAxes
from parallel.modes import Modes
from parallel.parameters import bind, declared
from parallel.pipeline import Pipeline
from parallel.plan.hlo import Program
from parallel.rules import Rules
from tests.models.layers.mixture import REAL, SEGMENTS, B, X, built

MESHES = {
    "expert": ({"expert": 4}, {"expert": "expert"}, {"group": "expert", "expert": "expert", "batch": "expert"}),
    "2-D": (
        {"data": 4, "tensor": 2},
        {"expert": "data", "expert_mlp": "tensor"},
        {"batch": "data", "group": "data", "expert": "data", "expert_mlp": "tensor", "embed": "tensor"},
    ),
    "3-D": (
        {"data": 2, "expert": 2, "tensor": 2},
        {"expert": "expert", "expert_embed": "data", "expert_mlp": "tensor"},
        {
            "batch": ("data", "expert"),
            "group": ("data", "expert"),
            "expert": "expert",
            "expert_group": "data",
            "expert_mlp": "tensor",
            "embed": "tensor",
        },
    ),
    "data and tensor": (
        {"data": 4, "tensor": 2},
        {"expert_mlp": "tensor"},
        {"batch": "data", "group": "data", "expert_mlp": "tensor"},
    ),
}


def layout(mesh, **options):
    sizes, weights, activations = MESHES[mesh]
    devices = jax.devices()[: math.prod(sizes.values())]
    return Layout(sizes, {"": Modes(Rules(weights, activations), **options)}, mesh=MeshAxes(sizes).build(devices))


def trained(found, **options):
    """A compiled (values, x) -> (answers and sums, gradients) under a layout, or without one, and placed values."""
    layer, values = built(**options)
    stream = Randomness.for_step(0, 0, B)
    direction = np.random.default_rng(2).normal(size=X.shape).astype("f4")

    def loss(values, x):
        y, sums = bind(layer, values)(x, SEGMENTS, stream)
        y = jnp.where(REAL[..., None], y, 0.0)
        return jnp.sum(y * direction) + sums["balance_loss"][0] + 0.1 * sums["router_z_loss"][0], (y, sums)

    step = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    if found is None:
        return jax.jit(step).lower(values, X).compile(), (values, X)
    placed = {
        path: jax.device_put(values[path], found.sharding(found.resolve("weights", path, d.shape, d.names, d.dtype)))
        for path, d in declared(layer).items()
    }
    x = jax.device_put(X, found.sharding(found.resolve("activations", "x", X.shape, ("batch", None, None), X.dtype)))
    with activate(found):
        return jax.jit(step).lower(placed, x).compile(), (placed, x)


@pytest.mark.parametrize(
    "mesh, options",
    [
        ("expert", {"capacity_factor": 0.5}),
        ("2-D", {"capacity_factor": 0.5}),
        ("3-D", {"capacity_factor": 0.5}),
        ("2-D", {"routing": "expert_choice"}),
        ("data and tensor", {"dispatch": "sorted"}),
    ],
    ids=str,
)
def test_answers_sums_and_gradients_on_a_mesh_are_those_of_one_device(mesh, options):
    options = options | {"jitter": 0.1}
    (one, arguments), (many, placed) = trained(None, **options), trained(layout(mesh), **options)
    expected, found = one(*arguments), many(*placed)
    for (path, a), (_, b) in zip(*map(jax.tree_util.tree_leaves_with_path, (expected, found)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=str(path))


@pytest.mark.parametrize("mesh, over", [("expert", "expert"), ("2-D", "data"), ("3-D", "expert")])
def test_tokens_go_to_their_experts_and_back_by_all_to_all_forward_and_backward(mesh, over):
    sizes = MESHES[mesh][0]
    found = [c for c in Program(trained(layout(mesh))[0].as_text()).collectives if c.kind == "all-to-all"]
    assert len([c for c in found if c.axes(sizes) == (over,)]) == 4


def test_dropless_each_device_multiplies_its_own_tokens_by_its_own_columns():
    flops = [
        trained(found, dispatch="sorted")[0].cost_analysis()["flops"] for found in (None, layout("data and tensor"))
    ]
    assert flops[1] < 1.5 * flops[0] / 8


def test_dropless_does_not_go_with_experts_on_devices_of_their_own_nor_with_a_pipeline():
    with pytest.raises(
        Mistake, match=r"^moe.dispatch: 'sorted' can't be where 'expert' is split, as it is by rules.weig"
    ):
        trained(layout("expert"), dispatch="sorted")
    layer, values = built.__wrapped__(dispatch="sorted")
    layer = bind(stack(layer, 2), {path: np.stack([v] * 2) for path, v in values.items()})
    pipeline = Pipeline(schedule="gpipe", axis="tensor", microbatches=2)
    found = layout("data and tensor", pipeline=pipeline)
    with (
        activate(found),
        pytest.raises(Mistake, match=r"^moe.dispatch: 'sorted' can't be in a pipeline\. Take another"),
    ):
        jax.eval_shape(lambda x: run_blocks(layer, x, SEGMENTS), X)
