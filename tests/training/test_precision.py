"""bfloat16 weights beside a float32 master copy: the same steps as in float32, rounded; and the bytes that ZeRO's paper says."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mistake import Mistake
from training.flags import parse
from training.modes import MODES
from training.precision import Precision, exact, replaced, updated, with_master
from training.setup import build

RNG = np.random.default_rng(0)
START = {"w": RNG.normal(size=(4, 3)).astype("f4")}
RATE = 2.0**-12  # So small that a step is lost in bfloat16's eight bits: only the master copy can add them up.


def sgd():
    return optax.named_chain(("rate", optax.scale_by_learning_rate(lambda count: RATE)))


def steps(count):
    """After `count` steps with gradient 1, by the code: weights and state."""
    optimizer = with_master(sgd())
    state = optimizer.init(jax.tree.map(jnp.asarray, START))
    params = {"w": jnp.asarray(START["w"], jnp.bfloat16)}
    for _ in range(count):
        updates, state = optimizer.update({"w": jnp.ones((4, 3))}, state, params)
        params, state = updated(params, state, updates)
    return params, state


def test_steps_too_small_for_bfloat16_are_added_up_in_the_master_copy():
    params, state = steps(50)
    expected = START["w"].copy()
    for _ in range(50):
        expected -= np.float32(RATE)
    np.testing.assert_array_equal(exact(params, state)["w"], expected)
    assert params["w"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(params["w"], expected.astype(jnp.bfloat16))
    assert not np.array_equal(params["w"], START["w"].astype(jnp.bfloat16))


def test_weights_that_are_put_in_their_place_are_in_the_master_copy_too():
    params, state = steps(1)
    new = {"w": jnp.full((4, 3), 1 / 3, jnp.float32)}
    params, state = replaced(params, state, new)
    np.testing.assert_array_equal(exact(params, state)["w"], new["w"])
    np.testing.assert_array_equal(params["w"], new["w"].astype(jnp.bfloat16))


def test_without_a_master_copy_the_weights_are_the_exact_ones():
    optimizer = sgd()
    state = optimizer.init(START)
    updates, state = optimizer.update({"w": np.ones((4, 3), "f4")}, state, START)
    params, state = updated(START, state, updates)
    np.testing.assert_array_equal(exact(params, state)["w"], START["w"] - np.float32(RATE))


def test_another_precision_is_refused():
    with pytest.raises(Mistake, match="precision.weights: 'float16' is neither"):
        Precision("float16")


GIN = {"adamw": "tests/end_to_end/tiny.gin", "lamb": "tests/training/lamb.gin"}


def program(*bindings, optimizer="adamw"):
    common = [f"--gin_file={GIN[optimizer]}", "--simulated_devices=8", "--gin.batch.size=16"]
    return build(parse(common + [f"--gin.{b}" for b in bindings], MODES), ["configs/parallel/data.gin"]).program


def held(found):
    """Bytes a device of weights and of optimizer slots, without counts."""
    weights = sum(r.bytes_per_device for r in found.parameters)
    return weights, sum(r.bytes_per_device for r in found.slots if ":" in r.path)


@pytest.mark.parametrize("optimizer", GIN)
@pytest.mark.parametrize("weights", ["float32", "bfloat16"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_bytes_a_device_are_the_closed_form(stage, weights, optimizer):
    """Rajbhandari et al. 2020, section 3: of P weights float32 takes 4 P and 8 P of Adam's (or LAMB's) state; bfloat16 2 P
    and 12 P, the master copy among them. The state is divided by N from stage 1 on, the weights at stage 3.
    """
    found = program(f"zero.stage={stage}", f"precision.weights='{weights}'", optimizer=optimizer)
    count, devices = found.num_parameters, 8
    of_weights, of_state = (2, 12) if weights == "bfloat16" else (4, 8)
    assert held(found) == (
        of_weights * count // (devices if stage == 3 else 1),
        of_state * count // (devices if stage >= 1 else 1),
    )


@pytest.mark.parametrize(("stage", "weights"), [(1, "float32"), (3, "bfloat16")])
def test_the_compiled_step_takes_these_bytes_and_no_more(stage, weights):
    found = program(f"zero.stage={stage}", f"precision.weights='{weights}'")
    memory = found.lower_train_step().compile().memory_analysis()
    counts = sum(r.bytes for r in found.slots if ":" not in r.path)
    others = 4 + 4 + 1  # step, skipped, halted.
    inputs = sum(r.bytes_per_device for r in found.inputs)
    assert memory.argument_size_in_bytes == sum(held(found)) + counts + others + inputs
