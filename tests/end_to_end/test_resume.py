"""Nothing is lost: a run that is killed or stopped goes on as if it had not been."""

import json
import random
import shutil
import signal

import numpy as np
import pytest
from checkpointed import weights
from commands import num_lines, run, start, stop_when

FLAGS = ("--simulated_devices=2", "--gin.mesh.axes={'data': -1, 'tensor': 1}")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "uninterrupted"
    result = run(f"--workdir={workdir}", *FLAGS)
    assert result.returncode == 0, result.stderr
    return workdir


@pytest.mark.parametrize("attempt", range(3))
def test_a_run_killed_at_any_moment_ends_bit_equal(uninterrupted, tmp_path, attempt):
    moment = random.SystemRandom().randrange(1, 8)
    print(f"killed once metrics.jsonl has {moment} lines")
    metrics = tmp_path / "metrics.jsonl"
    assert (
        stop_when(start(f"--workdir={tmp_path}", *FLAGS), lambda: num_lines(metrics) >= moment, signal.SIGKILL)
        == -signal.SIGKILL
    )
    result = run(f"--workdir={tmp_path}", *FLAGS)
    assert result.returncode == 0, result.stderr
    assert metrics.read_text() == (uninterrupted / "metrics.jsonl").read_text()
    expected, got = weights(uninterrupted, 12), weights(tmp_path, 12)
    assert expected.keys() == got.keys()
    for path, value in expected.items():
        np.testing.assert_array_equal(got[path], value, err_msg=path)


def test_sigterm_writes_a_checkpoint_and_leaves_with_143_and_fewer_devices_go_on_to_the_same_weights(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(f"--workdir={whole}", "--simulated_devices=8").returncode == 0
    metrics = parts / "metrics.jsonl"
    for devices, lines in ((8, 1), (4, 3)):
        process = start(f"--workdir={parts}", f"--simulated_devices={devices}")
        assert stop_when(process, lambda lines=lines: num_lines(metrics) >= lines, signal.SIGTERM) == 143
    assert run(f"--workdir={parts}", "--simulated_devices=2").returncode == 0
    expected, got = weights(whole, 12), weights(parts, 12)
    for path, value in expected.items():
        np.testing.assert_allclose(got[path], value, rtol=1e-5, atol=1e-5, err_msg=path)
    losses = [
        [json.loads(line)["loss"] for line in (workdir / "metrics.jsonl").read_text().splitlines()]
        for workdir in (whole, parts)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_a_damaged_checkpoint_is_named_and_gone_back_over_only_when_asked(uninterrupted, tmp_path):
    workdir = tmp_path / "damaged"
    shutil.copytree(uninterrupted, workdir)
    for file in (workdir / "checkpoints" / "12" / "state").rglob("*"):
        if file.is_file() and file.stat().st_size > 1000:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    refused = run(f"--workdir={workdir}", *FLAGS)
    assert refused.returncode == 1
    assert str(workdir / "checkpoints" / "12") in refused.stderr and "checkpoint.skip_damaged=True" in refused.stderr
    went_on = run(f"--workdir={workdir}", *FLAGS, "--gin.checkpoint.skip_damaged=True", "--allow_config_change")
    assert went_on.returncode == 0, went_on.stderr
    assert "resumed from the checkpoint at step 9" in went_on.stdout
    assert (workdir / "metrics.jsonl").read_text() == (uninterrupted / "metrics.jsonl").read_text()


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_state_of_that_step(tmp_path):
    result = run(f"--workdir={tmp_path}", *FLAGS, "--gin.linear.peak=1e38")
    assert result.returncode == 1
    assert "not finite" in result.stderr and "Traceback" not in result.stderr
    (folder,) = tmp_path.glob("fault_at_step_*")
    assert str(folder) in result.stderr
    assert (folder / "state").is_dir() and (folder / "batch.npz").is_file()


def test_a_loss_that_is_not_finite_can_be_skipped_and_is_counted(tmp_path):
    result = run(
        f"--workdir={tmp_path}",
        *FLAGS,
        "--gin.linear.peak=1e38",
        "--gin.experiment.non_finite='skip'",
        "--gin.experiment.steps=4",
    )
    assert result.returncode == 0, result.stderr
    assert "the step was skipped" in result.stdout
