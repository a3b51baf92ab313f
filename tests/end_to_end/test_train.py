"""A run leaves what the command contract promises, and evaluation counts each example once."""

import json
import re

import pytest
from commands import num_lines, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "finished"
    result = run(f"--workdir={workdir}", "--simulated_devices=8")
    assert result.returncode == 0, result.stderr
    return workdir, result.stdout


def test_a_workdir_holds_metrics_configuration_layout_checkpoints_events_and_a_report(finished):
    workdir, _ = finished
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["split"]) for line in lines] == [
        (2, "train"), (4, "train"), (6, "train"), (6, "eval"), (8, "train"), (10, "train"), (12, "train"), (12, "eval"),
    ]  # fmt: skip
    assert all(line["loss"] > 0 for line in lines)
    assert sorted(int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit()) == [
        3,
        6,
        9,
        12,
    ]
    assert json.loads((workdir / "layout.json").read_text())["mesh"] == {"data": 4, "tensor": 2}
    assert any((workdir / "tensorboard").iterdir())
    assert num_lines(workdir / "timings.jsonl") == 6
    assert "bert.width = 32  # tests/end_to_end/tiny.gin:" in (workdir / "config.gin").read_text()


def test_the_last_checkpoint_has_the_last_evaluation(finished):
    workdir, _ = finished
    last = json.loads((workdir / "metrics.jsonl").read_text().splitlines()[7])
    saved = json.loads((workdir / "checkpoints" / "12" / "run" / "metadata").read_text())
    assert saved["evaluation"] == {name: value for name, value in last.items() if name not in ("step", "split")}


def test_the_report_needs_no_network(finished):
    page = (finished[0] / "report.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert "masked accuracy" in page


def test_the_closing_page_shows_layout_result_beside_its_baseline_and_three_next_commands(finished):
    workdir, out = finished
    assert "data 4 × tensor 2" in out
    assert re.search(r"masked accuracy\s+\d+\.\d%\s+vs \d+\.\d% always predicting the commonest", out)
    assert str(workdir / "report.html") in out
    assert out.count("uv run train.py") == 3


def contents(workdir):
    """Every file below, with its bytes and the time it was written."""
    files = (path for path in workdir.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_eval_mode_shows_the_line_of_the_last_evaluation_and_changes_nothing_in_the_workdir(finished):
    workdir, _ = finished
    before = contents(workdir)
    result = run(f"--workdir={workdir}", "--simulated_devices=8", "--mode=eval")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == (workdir / "metrics.jsonl").read_text().splitlines()[-1]
    assert contents(workdir) == before


def test_eval_mode_refuses_another_configuration_with_the_difference(finished):
    workdir, _ = finished
    result = run(f"--workdir={workdir}", "--simulated_devices=8", "--mode=eval", "--gin.bert.dropout=0.2")
    assert result.returncode == 2
    assert "bert.dropout: 0.1 -> 0.2" in result.stderr and "--allow_config_change" in result.stderr


def test_another_configuration_in_an_old_workdir_is_shown_and_refused(finished):
    workdir, _ = finished
    result = run(f"--workdir={workdir}", "--simulated_devices=8", "--gin.bert.dropout=0.2")
    assert result.returncode == 2
    assert "bert.dropout: 0.1 -> 0.2" in result.stderr and "--allow_config_change" in result.stderr
    assert "Traceback" not in result.stderr


def test_fewer_steps_than_the_checkpoint_has_says_so_and_leaves_the_workdir_as_it_was(finished):
    workdir, _ = finished
    before = contents(workdir)
    result = run(
        f"--workdir={workdir}",
        "--simulated_devices=8",
        "--gin.experiment.steps=6",
        "--gin.linear.steps=12",
        "--allow_config_change",
    )
    assert result.returncode == 2
    assert "experiment.steps: 6, and the checkpoint is at step 12 already" in result.stderr
    assert contents(workdir) == before


def test_data_that_is_not_there_stops_the_command_and_leaves_the_workdir_as_it_was(finished):
    workdir, _ = finished
    before = contents(workdir)
    result = run(
        f"--workdir={workdir}",
        "--simulated_devices=8",
        "--gin.experiment.steps=20",
        "--gin.linear.steps=12",
        "--gin.masked_lm_data.text='txt'",
        "--allow_config_change",
    )
    assert result.returncode == 2
    assert result.stderr.startswith("masked_lm_data.text: ") and "'txt'" in result.stderr
    assert "Traceback" not in result.stderr
    assert contents(workdir) == before
