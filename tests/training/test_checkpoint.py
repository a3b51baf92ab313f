"""Checkpoints: what is kept, what a killed or damaged one leaves, and restoring onto another mesh."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from mistake import Mistake
from training.checkpoint import CheckpointPolicy, Checkpoints, DamagedCheckpoint
from training.state import TrainState


def state_of(step: int, sharding=None) -> TrainState:
    w = jnp.arange(16.0).reshape(8, 2) + step
    w = w if sharding is None else jax.device_put(w, sharding)
    zero = jnp.zeros((), jnp.int32)
    return TrainState(
        zero + step,
        {"encoder.blocks.w": w},
        {"adam": {"mu": {"encoder.blocks.w": w * 2}}},
        None,
        zero,
        jnp.zeros((), bool),
    )


def targets(sharding=None):
    abstract = jax.eval_shape(lambda: state_of(0))
    one = sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    whole = NamedSharding(sharding.mesh, PartitionSpec()) if sharding else one
    return abstract, jax.tree.map(lambda s: one if s.ndim else whole, abstract)


def kept(folder, policy: CheckpointPolicy, losses: dict[int, float]) -> list[int]:
    with Checkpoints(folder, policy) as checkpoints:
        for step, loss in losses.items():
            checkpoints.save(step, state_of(step), {"step": step}, {"loss": loss})
            checkpoints.wait()
    with Checkpoints(folder, policy) as checkpoints:
        return checkpoints.steps


def test_the_newest_the_best_and_every_kth_are_kept(tmp_path):
    losses = {10: 5.0, 20: 1.0, 30: 4.0, 40: 3.0, 50: 3.5}
    assert kept(tmp_path / "last", CheckpointPolicy(keep_last=2), losses) == [40, 50]
    assert kept(tmp_path / "best", CheckpointPolicy(keep_last=1, best="loss"), losses) == [20, 50]
    assert kept(tmp_path / "worst", CheckpointPolicy(keep_last=1, best="loss", best_mode="max"), losses) == [10, 50]
    assert kept(tmp_path / "every", CheckpointPolicy(keep_last=1, keep_every=20), losses) == [20, 40, 50]


def test_a_state_comes_back_bit_equal_on_another_mesh_with_its_run(tmp_path):
    devices = np.array(jax.devices())
    eight = NamedSharding(jax.sharding.Mesh(devices, "x"), PartitionSpec("x"))
    two = NamedSharding(jax.sharding.Mesh(devices[:2], "y"), PartitionSpec(None, "y"))
    with Checkpoints(tmp_path, CheckpointPolicy()) as checkpoints:
        checkpoints.save(7, state_of(7, eight), {"step": 7, "window": {"loss": [0.1, 3.0]}})
        checkpoints.wait()
        state, run = checkpoints.restore(*targets(two))
    weights = state.params["encoder.blocks.w"]
    assert weights.sharding.spec == PartitionSpec(None, "y")
    np.testing.assert_array_equal(weights, np.arange(16.0).reshape(8, 2) + 7)
    np.testing.assert_array_equal(
        state.opt_state["adam"]["mu"]["encoder.blocks.w"], 2 * (np.arange(16.0).reshape(8, 2) + 7)
    )
    assert run["step"] == 7 and run["window"] == {"loss": [0.1, 3.0]} and run["versions"]["jax"] == jax.__version__


def test_nothing_to_restore_is_none(tmp_path):
    with Checkpoints(tmp_path, CheckpointPolicy()) as checkpoints:
        assert checkpoints.restore(*targets()) is None


def test_a_checkpoint_that_was_not_finished_is_not_taken_for_one(tmp_path):
    with Checkpoints(tmp_path, CheckpointPolicy()) as checkpoints:
        checkpoints.save(1, state_of(1), {"step": 1})
    half = tmp_path / "checkpoints" / "2.orbax-checkpoint-tmp-0"
    half.mkdir()
    (half / "state").write_bytes(b"torn")
    with Checkpoints(tmp_path, CheckpointPolicy()) as checkpoints:
        assert checkpoints.steps == [1]
        assert int(checkpoints.restore(*targets())[0].step) == 1


def test_a_damaged_one_is_named_and_left_and_gone_back_over_only_when_asked(tmp_path, capsys):
    with Checkpoints(tmp_path, CheckpointPolicy()) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, state_of(step), {"step": step})
    for file in (tmp_path / "checkpoints" / "2" / "state").rglob("*"):
        if file.is_file():
            file.write_bytes(b"\0" * file.stat().st_size)
    with (
        Checkpoints(tmp_path, CheckpointPolicy()) as checkpoints,
        pytest.raises(DamagedCheckpoint, match="checkpoints/2 can't be read"),
    ):
        checkpoints.restore(*targets())
    with Checkpoints(tmp_path, CheckpointPolicy(skip_damaged=True)) as checkpoints:
        assert int(checkpoints.restore(*targets())[0].step) == 1
    assert "checkpoints/2 can't be read" in capsys.readouterr().out
    # What is written at that step afterwards takes its place, and the damaged one is still there to look at.
    with Checkpoints(tmp_path, CheckpointPolicy()) as checkpoints:
        checkpoints.save(2, state_of(2), {"step": 2})
    with Checkpoints(tmp_path, CheckpointPolicy()) as checkpoints:
        assert int(checkpoints.restore(*targets())[0].step) == 2
    assert (tmp_path / "damaged_checkpoints" / "2" / "state").is_dir()


def test_a_checkpoint_of_another_model_is_no_damage_but_lists_what_differs(tmp_path):
    with Checkpoints(tmp_path, CheckpointPolicy(skip_damaged=True)) as checkpoints:
        checkpoints.save(1, state_of(1), {"step": 1})
        checkpoints.wait()
        abstract, sharding = targets()
        wide = {
            "encoder.blocks.w": jax.ShapeDtypeStruct((8, 3), jnp.float32),
            "head.w": jax.ShapeDtypeStruct((2,), jnp.float32),
        }
        one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        other = dataclasses.replace(abstract, params=wide, opt_state={})
        with pytest.raises(Mistake) as refused:
            checkpoints.restore(other, dataclasses.replace(sharding, params=dict.fromkeys(wide, one), opt_state={}))
    message = str(refused.value)
    assert "missing: params/head.w [2]" in message
    assert "unused: opt_state/adam/mu/encoder.blocks.w [8, 2]" in message
    assert "mis-shaped: params/encoder.blocks.w is [8, 2], not [8, 3]" in message


def test_a_policy_that_could_not_resume_is_refused():
    with pytest.raises(Mistake, match="checkpoint.keep_last: 0"):
        CheckpointPolicy(keep_last=0)
    with pytest.raises(Mistake, match="checkpoint.best_mode"):
        CheckpointPolicy(best="loss", best_mode="least")


@pytest.mark.parametrize("options", [{"best_mode": "max"}, {"keep_best": 3}, {"best": ""}])
def test_what_has_no_effect_without_a_best_metric_is_refused(options):
    with pytest.raises(Mistake, match=rf"^checkpoint\.{next(iter(options))}: "):
        CheckpointPolicy(**options)


def test_a_best_metric_that_evaluation_does_not_give_names_the_nearest():
    policy = CheckpointPolicy(best="acuracy", best_mode="max")
    with pytest.raises(Mistake, match=r"^checkpoint\.best: .*'acuracy'. Nearest: 'accuracy'. It has: loss, accuracy"):
        policy.check(["loss", "accuracy"])
    CheckpointPolicy(best="accuracy").check(["loss", "accuracy"])
    CheckpointPolicy().check(["loss"])


def test_reading_only_changes_nothing_even_past_a_damaged_checkpoint(tmp_path):
    with Checkpoints(tmp_path, CheckpointPolicy()) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, state_of(step), {"step": step})
    for file in (tmp_path / "checkpoints" / "2" / "state").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    being_written = tmp_path / "checkpoints" / "3.orbax-checkpoint-tmp-1"
    being_written.mkdir()
    before = sorted(tmp_path.rglob("*"))
    with Checkpoints(tmp_path, CheckpointPolicy(skip_damaged=True), read_only=True) as checkpoints:
        _, run = checkpoints.restore(*targets())
    assert run["step"] == 1
    assert sorted(tmp_path.rglob("*")) == before
    with Checkpoints(tmp_path / "none", CheckpointPolicy(), read_only=True) as checkpoints:
        assert checkpoints.restore(*targets()) is None
    assert not (tmp_path / "none").exists()
