"""Pipelines are the layers one after another: same outputs, sums and gradients, noise on, whatever the schedule; what a stage
computes in the bubble reaches nothing.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from mistake import Mistake
from models.layers.initializers import TruncatedNormal
from parallel.annotate import Randomness, activate, dropout, param, run_blocks, shard, stack
from parallel.layout import Layout
from parallel.modes import Modes
from parallel.parameters import bind, declared, initialize
from parallel.pipeline import Pipeline
from parallel.rules import Rules

D, F = 8, 16


class Block(nnx.Module):
    """x + W2 dropout(tanh(W1 x * scale)), and a sum with an unequal weight for each example."""

    def __init__(self):
        self.up = param((D, F), ("embed", "mlp"), TruncatedNormal(0.2))
        self.down = param((F, D), ("mlp", "embed"), TruncatedNormal(0.2))

    def __call__(self, x_BD, scale_B, randomness=None):
        hidden = shard(jnp.tanh(x_BD @ self.up[...]) * scale_B[:, None], "batch", "mlp", name="hidden")
        x_BD = x_BD + dropout(hidden, 0.3, randomness, "hidden") @ self.down[...]
        # 1 / |x|: what is not a real example, zeros or whatever a bubble holds, would make it NaN or infinite.
        size_B = jnp.sum(x_BD**2, -1)
        return shard(x_BD, "batch", "embed", name="residual"), {
            "size": (jnp.sum(scale_B / jnp.sqrt(size_B)), jnp.sum(scale_B)),
            "ones": (jnp.float32(len(scale_B)), jnp.float32(len(scale_B))),
        }


def layout(pipeline, sizes, weights=None, activations=None):
    mesh = jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))
    rules = Rules(weights or {}, {"batch": "data"} | (activations or {}))
    return Layout(sizes, {"": Modes(rules, pipeline=pipeline)}, mesh=mesh)


def problem(num_layers, batch):
    blocks = stack(Block(), num_layers)
    values = initialize(declared(blocks), 0)
    rng = np.random.default_rng(1)
    x, scale = rng.normal(size=(batch, D)).astype("f4"), rng.uniform(0.5, 2, batch).astype("f4")

    def run(values, x, scale):
        random = Randomness.for_step(3, 0, batch)
        y, sums = run_blocks(bind(blocks, values), x, scale, randomness=random)
        return jnp.sum((y - 1) ** 2) + 0.3 * sums["size"][0], (y, sums)

    return run, (values, x, scale)


def differentiated(run, arguments, found=None):
    step = jax.jit(jax.value_and_grad(run, argnums=(0, 1), has_aux=True))
    if found is None:
        return step(*arguments)
    with activate(found):
        return step(*arguments)


def agree(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b), np.abs(a - b).max()


CASES = (
    [(L, M * L, 1) for L in (1, 2, 4) for M in (1, 2, 4)]
    + [(L, M * L, 2) for L in (2, 4) for M in (1, 2)]
    + [(2, 3, 3)]
)


@pytest.mark.parametrize(("stages", "microbatches", "repeats"), CASES)
def test_a_pipeline_is_its_layers_one_after_another(stages, microbatches, repeats):
    run, arguments = problem(num_layers=12 if repeats == 3 else 8, batch=microbatches * (8 // stages))
    found = layout(
        Pipeline("circular" if repeats > 1 else "gpipe", "stage", microbatches, repeats),
        {"data": 8 // stages, "stage": stages},
    )
    agree(differentiated(run, arguments, found), differentiated(run, arguments))


def test_unequal_stages_are_the_same_layers():
    run, arguments = problem(num_layers=7, batch=16)
    found = layout(Pipeline("gpipe", "stage", 8, split=(3, 1, 1, 2)), {"data": 2, "stage": 4})
    agree(differentiated(run, arguments, found), differentiated(run, arguments))


def test_fewer_microbatches_than_stages_are_the_same_layers():
    run, arguments = problem(num_layers=4, batch=4)
    found = layout(Pipeline("gpipe", "stage", 2), {"data": 2, "stage": 4})
    agree(differentiated(run, arguments, found), differentiated(run, arguments))


def test_a_tensor_axis_within_the_stages_is_the_same_layers():
    run, arguments = problem(num_layers=4, batch=8)
    found = layout(
        Pipeline("gpipe", "stage", 4), {"data": 2, "stage": 2, "tensor": 2}, {"mlp": "tensor"}, {"mlp": "tensor"}
    )
    agree(differentiated(run, arguments, found), differentiated(run, arguments))


def test_every_layer_counts_once_for_every_example():
    run, arguments = problem(num_layers=8, batch=16)
    found = layout(Pipeline("circular", "stage", 8, 2), {"data": 2, "stage": 4})
    (_, (_, sums)), _ = differentiated(run, arguments, found)
    assert [float(v) for v in sums["ones"]] == [8 * 16, 8 * 16]


@pytest.mark.parametrize(("schedule", "repeats"), [("gpipe", 1), ("circular", 2)])
def test_stages_send_to_the_next_and_weights_stay_where_they_are(schedule, repeats):
    run, arguments = problem(num_layers=8, batch=16)
    found = layout(Pipeline(schedule, "stage", 8, repeats), {"data": 2, "stage": 4})
    place = lambda *spec: NamedSharding(found.mesh, PartitionSpec(*spec))
    shardings = ({path: place("stage") for path in arguments[0]}, place("data"), place("data"))
    with activate(found):
        step = jax.jit(jax.grad(lambda *args: run(*args)[0]), in_shardings=shardings, out_shardings=shardings[0])
        text = step.lower(*arguments).compile().as_text()
    assert "collective-permute" in text
    gathered = [
        line for line in text.splitlines() if " all-gather(" in line and (f"{D},{F}]" in line or f"{F},{D}]" in line)
    ]
    assert not gathered


def test_the_bubble_is_the_share_that_is_published():
    """(L - 1) / (M + L - 1) of GPipe's paper, section 2.3; and with R visits of each stage."""
    assert Pipeline("gpipe", "stage", 12).bubble_fraction(4) == 3 / 15
    assert Pipeline("circular", "stage", 12, 3).bubble_fraction(4) == 3 / 39


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pipeline(axis="stage"), "pipeline.axis: 'stage' has no effect without pipeline.schedule"),
        (lambda: Pipeline("gpip", "stage", 4), "pipeline.schedule: 'gpip' is not a schedule. Nearest: 'gpipe'"),
        (lambda: Pipeline("gpipe"), "pipeline.axis: nothing says"),
        (lambda: Pipeline("gpipe", "stage"), "pipeline.microbatches: None"),
        (lambda: Pipeline("gpipe", "stage", 4, 2), "pipeline.repeats: 2 is for pipeline.schedule = 'circular'"),
        (lambda: Pipeline("circular", "stage", 4, 2, (1, 1)), "pipeline.split: a circular pipeline has equal stages"),
        (
            lambda: Pipeline("gpipe", "stag", 4).check({"stage": 2}),
            "pipeline.axis: 'stag' is not a mesh axis. Nearest: 'stage'",
        ),
        (lambda: Pipeline("circular", "stage", 2, 2).check({"stage": 4}), "pipeline.microbatches: 2 for 4 stages"),
        (
            lambda: Pipeline("gpipe", "stage", 2, split=(1, 2)).check({"stage": 4}),
            "pipeline.split: (1, 2) must give each of the 4",
        ),
        (lambda: Pipeline("gpipe", "stage", 2).arrangement(10, 4), "Numbers of layers that fit: 8, 12"),
        (
            lambda: Pipeline("gpipe", "stage", 2, split=(1, 2)).arrangement(4, 2),
            "pipeline.split: (1, 2) has 3 layers, and the stack 4",
        ),
        (lambda: Pipeline("gpipe", "stage", 5).microbatch_size(8), "These do: 1, 2, 4, 8"),
    ],
)
def test_what_can_not_be_is_refused(make, message):
    with pytest.raises(Mistake) as caught:
        make()
    assert message in str(caught.value)
