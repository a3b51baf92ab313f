"""Two processes, each with two simulated devices, are one run: the same numbers, checkpoints that either reads, one end."""

import json
import shutil
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
from checkpointed import weights
from commands import num_lines, run, start
from safetensors.numpy import load_file

MODEL = "--gin.experiment.write_model=True"


def together(*flags, each=((), ()), scripts=(("train.py",), ("train.py",))) -> list[subprocess.Popen]:
    """Two processes of one run; `each` has flags of one alone."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    join = ("--simulated_devices=2", f"--coordinator_address=localhost:{port}", "--num_processes=2")
    return [
        start(*flags, *join, f"--process_id={process}", *each[process], script=scripts[process]) for process in range(2)
    ]


def ends(processes) -> list[tuple[int, str, str]]:
    """(exit status, stdout, stderr) of each."""
    found = [process.communicate(timeout=300) for process in processes]
    return [(process.returncode, *texts) for process, texts in zip(processes, found, strict=True)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "alone"
    result = run(f"--workdir={workdir}", MODEL, "--simulated_devices=4")
    assert result.returncode == 0, result.stderr
    return workdir


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "pair"
    for status, _, err in ends(together(f"--workdir={workdir}", MODEL)):
        assert status == 0, err
    return workdir


def at_step_6(workdir, copy):
    """A copy of a run as it was at its checkpoint of step 6."""
    shutil.copytree(workdir, copy)
    for step in (9, 12):
        shutil.rmtree(copy / "checkpoints" / str(step))
    return copy


def losses(workdir) -> list[float]:
    return [json.loads(line)["loss"] for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def test_two_processes_give_the_numbers_and_the_model_of_one_with_as_many_devices(alone, pair):
    np.testing.assert_allclose(losses(pair), losses(alone), rtol=1e-6)
    assert num_lines(pair / "metrics.jsonl") == num_lines(alone / "metrics.jsonl") > 6
    expected, got = (load_file(next((workdir / "model").glob("*.safetensors"))) for workdir in (alone, pair))
    assert expected.keys() == got.keys()
    for path, value in expected.items():
        np.testing.assert_allclose(got[path], value, rtol=1e-6, atol=1e-6, err_msg=path)
    assert "in 2 processes" in (pair / "report.html").read_text()


def test_one_process_goes_on_from_the_checkpoint_of_two(alone, pair, tmp_path):
    workdir = at_step_6(pair, tmp_path / "on")
    result = run(f"--workdir={workdir}", MODEL, "--simulated_devices=4")
    assert result.returncode == 0, result.stderr
    assert "resumed from the checkpoint at step 6" in result.stdout
    np.testing.assert_allclose(losses(workdir), losses(alone), rtol=1e-6)


def test_two_processes_go_on_from_the_checkpoint_of_one_though_their_rows_of_the_batch_lie_apart(alone, tmp_path):
    workdir = at_step_6(alone, tmp_path / "on")
    # A quarter of the batch is number 2x + y of four, and a process has one y: rows 0, 1, 4, 5 or the others.
    scattered = (
        "--gin.mesh.axes={'y': 2, 'x': 2}",
        "--gin.rules.activations={'batch': ('x', 'y')}",
        "--gin.rules.weights={'embed': ('y', 'x')}",
        "--allow_config_change",
    )
    (status, out, err), (other, _, other_err) = ends(together(f"--workdir={workdir}", MODEL, *scattered))
    assert (status, other) == (0, 0), err + other_err
    assert "resumed from the checkpoint at step 6" in out
    np.testing.assert_allclose(losses(workdir), losses(alone), rtol=1e-5)
    expected, got = weights(alone, 12), weights(workdir, 12)
    for path, value in expected.items():
        np.testing.assert_allclose(got[path], value, rtol=1e-5, atol=1e-5, err_msg=path)


def test_the_data_error_of_one_process_stops_both_and_both_say_it(tmp_path):
    scripts = (("train.py",), ("tests/end_to_end/broken_data.py", "3"))
    (status, _, err), (other, _, other_err) = ends(together(f"--workdir={tmp_path}", scripts=scripts))
    assert (status, other) == (1, 1)
    assert err.splitlines()[-1] == "process 1: OSError: the disk failed at batch 3"
    assert "OSError: the disk failed at batch 3" in other_err and "Traceback" in other_err


def test_sigterm_to_one_process_makes_both_write_a_checkpoint_and_leave_with_143(tmp_path):
    processes = together(f"--workdir={tmp_path}", "--gin.STEPS=5000", "--gin.experiment.eval_every=0")
    deadline = time.monotonic() + 120
    while num_lines(tmp_path / "metrics.jsonl") < 1:
        assert all(process.poll() is None for process in processes), ends(processes)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGTERM)
    (status, out, err), (other, _, other_err) = ends(processes)
    assert (status, other) == (143, 143), err + other_err
    (step,) = [line.split()[-3] for line in out.splitlines() if line.startswith("stopped by SIGTERM")]
    assert int(weights(tmp_path, int(step))["/step"]) == int(step)


def test_processes_with_different_configurations_are_refused_with_the_first_difference(tmp_path):
    each = (("--gin.linear.peak=1e-3",), ("--gin.linear.peak=2e-3",))
    for status, _, err in ends(together(f"--workdir={tmp_path}", each=each)):
        assert status == 2
        assert err.splitlines()[-1].startswith(
            "the configuration of process 1 is not that of process 0 (process 0: linear.peak = 0.001  # --gin.linear.peak; "
            "process 1: linear.peak = 0.002"
        )


def test_a_process_that_waits_in_vain_says_for_whom():
    with socket.socket() as nobody:
        nobody.bind(("localhost", 0))
        address = f"localhost:{nobody.getsockname()[1]}"
        result = run(
            "--workdir=unused",
            f"--coordinator_address={address}",
            "--num_processes=2",
            "--process_id=1",
            "--host_timeout=1",
        )
    assert result.returncode == 1
    assert f"waited 1 s at 'the start'. Process 0 is late: nothing answers at {address}" in result.stderr
