"""Weights go out of a run and into another: written at the end, exported, compared, started from."""

import subprocess
import sys

import pytest
from commands import ROOT, run

SHORT = ("--simulated_devices=8", "--gin.STEPS=4", "--gin.linear.peak=1e-3")


def convert(*arguments) -> subprocess.CompletedProcess:
    """`python -m models.pretrained` with `arguments`."""
    command = [sys.executable, "-m", "models.pretrained", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "pretrained"
    result = run(f"--workdir={workdir}", *SHORT, "--gin.experiment.write_model=True")
    assert result.returncode == 0, result.stderr
    return workdir


def test_a_run_ends_as_a_model_that_can_be_exported_and_imported_bit_equal(finished, tmp_path):
    assert {path.name for path in (finished / "model").iterdir()} >= {
        "model.safetensors",
        "model.gin",
        "tokenizer.json",
    }
    exported, imported = tmp_path / "theirs", tmp_path / "ours"
    out = convert("export", "--family=bert", finished / "model", exported)
    assert out.returncode == 0, out.stderr
    back = convert("import", "--family=bert", exported, imported)
    assert back.returncode == 0, back.stderr
    assert (imported / "model.safetensors").read_bytes() == (finished / "model" / "model.safetensors").read_bytes()


def test_another_run_starts_from_it_and_says_what_is_fresh(finished, tmp_path):
    result = run(f"--workdir={tmp_path}", *SHORT, f"--gin.experiment.init_from={str(finished / 'model')!r}")
    assert result.returncode == 0, result.stderr
    assert "fresh: none; not used: none" in result.stdout


def test_weights_of_another_activation_are_refused_though_every_shape_fits(finished, tmp_path):
    source = f"--gin.experiment.init_from={str(finished / 'model')!r}"
    result = run(f"--workdir={tmp_path}", *SHORT, source, "--gin.bert.activation='relu'")
    assert result.returncode == 2
    assert "bert.activation: 'relu', and the weights of experiment.init_from were trained with 'gelu'" in result.stderr
