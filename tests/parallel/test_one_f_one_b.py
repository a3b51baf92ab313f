"""1F1B is the sequential model: losses, sums and gradients, tied embedding and noise included; and its memory is flat."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from mistake import Mistake
from models.layers.initializers import TruncatedNormal
from parallel.annotate import Randomness, activate, dropout, param, part, run_blocks, shard, stack
from parallel.layout import Layout
from parallel.modes import Modes
from parallel.parameters import bind, declared, initialize
from parallel.pipeline import Pipeline, one_f_one_b
from parallel.rules import Rules
from training.step import differentiate

V, S, D = 24, 4, 8


class Block(nnx.Module):
    def __init__(self, hidden):
        self.up = param((D, hidden), ("embed", "mlp"), TruncatedNormal(0.2))
        self.down = param((hidden, D), ("mlp", "embed"), TruncatedNormal(0.2))

    def __call__(self, x_BSD, real_BS, randomness=None):
        hidden = shard(jnp.tanh(x_BSD @ self.up[...]), "batch", "length", "mlp", name="hidden")
        x_BSD = x_BSD + dropout(hidden, 0.3, randomness, "hidden") @ self.down[...]
        # One over |x|: zeros, or whatever a bubble holds, would make it NaN or infinite.
        inverse_B = real_BS.sum(1) / jnp.sqrt(jnp.sum(x_BSD**2, (1, 2)))
        return x_BSD, {"inverse": (inverse_B.sum(), real_BS.sum().astype("f4"))}


class Model(nnx.Module):
    """A tied table around a stack, and a loss a token."""

    def __init__(self, num_layers, hidden=16):
        self.table = param((V, D), ("vocab", "embed"), TruncatedNormal(0.5))
        self.blocks = stack(Block(hidden), num_layers)

    def losses(self, batch, randomness):
        x_BSD = dropout(jnp.take(self.table[...], batch["tokens"], axis=0), 0.2, randomness, "embedding")
        with part("blocks"):
            x_BSD, sums = run_blocks(self.blocks, x_BSD, batch["real"], randomness=randomness)
        logits_BSV = jnp.einsum("bsd,vd->bsv", x_BSD, self.table[...])
        picked_BS = jnp.take_along_axis(jax.nn.log_softmax(logits_BSV), batch["labels"][..., None], -1)[..., 0]
        weight_BS = batch["real"].astype("f4")
        return {"loss": (-(picked_BS * weight_BS).sum(), weight_BS.sum()), **sums}


def layout(pipeline, sizes, weights=None):
    mesh = jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))
    rules = Rules(weights or {}, {"batch": "data"} | ({"mlp": "tensor"} if "tensor" in sizes else {}))
    return Layout(sizes, {"": Modes(rules, pipeline=pipeline)}, mesh=mesh)


def batch_of(size, length=S):
    rng = np.random.default_rng(1)
    real = (np.arange(length) < rng.integers(1, length + 1, size)[:, None]).astype("i4")
    return {
        "tokens": rng.integers(V, size=(size, length)),
        "labels": rng.integers(V, size=(size, length)),
        "real": real,
    }


def losses_of(model, found=None):
    def losses(params, batch, randomness, active=None):
        if active is None and found is None:
            return bind(model, params).losses(batch, randomness)
        with activate(active or found):
            return bind(model, params).losses(batch, randomness)

    return losses


SEEDS = {"loss": jnp.float32(0.7), "inverse": jnp.float32(0.2)}


def both(num_layers, size, pipeline, sizes, **options):
    model = Model(num_layers)
    params, batch = initialize(declared(model), 0), batch_of(size)
    random = Randomness.for_step(3, 0, size)
    found = layout(pipeline, sizes, **options)
    step = one_f_one_b(losses_of(model, found), found)
    sequential = differentiate(losses_of(model))
    return (jax.jit(f)(params, batch, random, SEEDS) for f in (step, sequential))


def agree(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b), np.abs(a - b).max()


@pytest.mark.parametrize(
    ("stages", "microbatches"), [(1, 1), (1, 4), (2, 2), (2, 4), (2, 8), (4, 4), (4, 8), (4, 16), (4, 2), (8, 8)]
)
def test_it_is_the_sequential_model(stages, microbatches):
    agree(
        *both(
            8,
            2 * microbatches * (8 // stages),
            Pipeline("1f1b", "stage", microbatches),
            {"data": 8 // stages, "stage": stages},
        )
    )


def test_unequal_stages_are_the_sequential_model():
    agree(*both(7, 16, Pipeline("1f1b", "stage", 8, split=(3, 1, 1, 2)), {"data": 2, "stage": 4}))


def test_a_tensor_axis_within_the_stages_is_the_sequential_model():
    sizes = {"data": 2, "stage": 2, "tensor": 2}
    agree(*both(4, 16, Pipeline("1f1b", "stage", 4), sizes, weights={"mlp": "tensor"}))


def temporary_bytes(schedule, microbatches):
    """Of the gradient of a stack wide enough that activations are most of it; a microbatch is 8 examples of 64 tokens."""
    model = Model(8, hidden=64)
    size = 8 * microbatches
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, 64), x.dtype), batch_of(2))
    found = layout(Pipeline(schedule, "stage", microbatches), {"data": 2, "stage": 4})
    losses = losses_of(model, found)
    step = one_f_one_b(losses, found) if schedule == "1f1b" else differentiate(losses)
    params = {path: jax.ShapeDtypeStruct(d.shape, d.dtype) for path, d in declared(model).items()}
    random = jax.eval_shape(
        functools.partial(Randomness.for_step, 3, num_examples=size), jax.ShapeDtypeStruct((), "i4")
    )
    return jax.jit(step).lower(params, batch, random, SEEDS).compile().memory_analysis().temp_size_in_bytes


def test_its_memory_does_not_grow_with_the_number_of_microbatches_and_gpipe_s_does():
    # The tokens, labels and masks themselves, cut into microbatches, are there whatever the schedule.
    batch = lambda m: 3 * 4 * 8 * m * 64
    few, many = (temporary_bytes("1f1b", m) - batch(m) for m in (4, 64))
    assert many <= 1.1 * few, (few, many)
    few, many = (temporary_bytes("gpipe", m) - batch(m) for m in (4, 64))
    assert many > 4 * few, (few, many)


class Twice(Model):
    def losses(self, batch, randomness):
        with part("blocks"):
            x_BSD, _ = run_blocks(self.blocks, jnp.take(self.table[...], batch["tokens"], axis=0), batch["real"])
            x_BSD, _ = run_blocks(self.blocks, x_BSD, batch["real"])
        return {"loss": (jnp.sum(x_BSD**2), jnp.float32(1)), "inverse": (jnp.float32(0), jnp.float32(1))}


def test_a_model_of_two_pipelined_stacks_is_refused():
    model, found = Twice(4), layout(Pipeline("1f1b", "stage", 4), {"data": 2, "stage": 4})
    with pytest.raises(Mistake, match="this model runs several in that part"):
        one_f_one_b(losses_of(model, found), found)(
            initialize(declared(model), 0), batch_of(8), Randomness.for_step(3, 0, 8), SEEDS
        )
