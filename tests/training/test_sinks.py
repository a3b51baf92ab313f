"""What a run writes, line by line, and what a resumed run finds."""

import json
import math
import os
import struct

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from mistake import Mistake
from training.sinks import Sinks, history, read_metrics, timings


def test_a_line_is_one_object_with_step_split_and_values_in_full(tmp_path):
    with Sinks(tmp_path) as sinks:
        sinks.write(10, "train", {"loss": 0.1 + 0.2, "masked_accuracy": np.float32(0.1)})
        sinks.write(np.int32(20), "validation", {"loss": 2})
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 10, "split": "train", "loss": 0.30000000000000004, "masked_accuracy": 0.10000000149011612}\n'
        '{"step": 20, "split": "validation", "loss": 2.0}\n'
    )


def test_times_stay_out_of_the_metrics(tmp_path):
    with Sinks(tmp_path) as sinks:
        sinks.write_timings(10, {"step_seconds": 0.25})
    assert (tmp_path / "metrics.jsonl").read_text() == ""
    assert (tmp_path / "timings.jsonl").read_text() == '{"step": 10, "step_seconds": 0.25}\n'


def test_a_line_is_on_disk_as_soon_as_it_is_written(tmp_path):
    with Sinks(tmp_path) as sinks:
        sinks.write(1, "train", {"loss": 1.0})
        assert len(read_metrics(tmp_path / "metrics.jsonl")) == 1


def test_values_that_are_not_finite_are_valid_json_and_come_back(tmp_path):
    with Sinks(tmp_path) as sinks:
        sinks.write(1, "train", {"a": math.nan, "b": math.inf, "c": -math.inf})
    text = (tmp_path / "metrics.jsonl").read_text()

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(text, parse_constant=refuse) == {"step": 1, "split": "train", "a": "nan", "b": "inf", "c": "-inf"}
    (line,) = read_metrics(tmp_path / "metrics.jsonl")
    assert math.isnan(line["a"]) and line["b"] == math.inf and line["c"] == -math.inf


def test_a_disabled_sink_writes_nothing(tmp_path):
    with Sinks(tmp_path / "run", enabled=False) as sinks:
        sinks.write(1, "train", {"loss": 1.0})
        sinks.write_timings(1, {"step_seconds": 1.0})
    assert os.listdir(tmp_path) == []


def test_resuming_drops_the_lines_after_the_checkpoint_and_keeps_the_bytes_before_it(tmp_path):
    kept = '{"step": 10, "split": "train", "loss": 2.5}\n{"step": 20,   "split": "train", "loss": 1e-3}\n'
    dropped = '{"step": 30, "split": "train", "loss": 2.0}\n'
    (tmp_path / "metrics.jsonl").write_text(kept + dropped)
    (tmp_path / "timings.jsonl").write_text('{"step": 20, "step_seconds": 0.5}\n{"step": 21, "step_seconds": 0.5}\n')
    with Sinks(tmp_path, start_step=20) as sinks:
        sinks.write(30, "train", {"loss": 1.5})
    assert (tmp_path / "metrics.jsonl").read_text() == kept + '{"step": 30, "split": "train", "loss": 1.5}\n'
    assert (tmp_path / "timings.jsonl").read_text() == '{"step": 20, "step_seconds": 0.5}\n'


def test_a_killed_and_resumed_run_has_the_lines_of_an_uninterrupted_one(tmp_path):
    def write(workdir, steps, start_step):
        with Sinks(workdir, start_step=start_step) as sinks:
            for step in steps:
                sinks.write(step, "train", {"loss": 1 / (step + 1)})

    write(tmp_path / "whole", range(1, 9), 0)
    write(tmp_path / "killed", range(1, 7), 0)
    write(tmp_path / "killed", range(5, 9), 4)
    assert (tmp_path / "whole/metrics.jsonl").read_bytes() == (tmp_path / "killed/metrics.jsonl").read_bytes()


def test_without_a_start_step_every_line_stays(tmp_path):
    text = '{"step": 30, "split": "train", "loss": 2.0}\n'
    (tmp_path / "metrics.jsonl").write_text(text)
    Sinks(tmp_path, start_step=None).close()
    assert (tmp_path / "metrics.jsonl").read_text() == text


@pytest.mark.parametrize(
    "torn",
    [
        '{"step": 2, "spl',
        '{"step": 2',
        "{",
        '"',
        '{"step": 2, "split": "tr\xe4'.encode()[:-1].decode("latin-1"),
        "\0\0\0",
    ],
)
def test_a_torn_last_line_is_dropped(tmp_path, torn):
    whole = b'{"step": 1, "split": "train", "loss": 2.0}\n'
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(whole + torn.encode("latin-1"))
    assert [line["step"] for line in read_metrics(path)] == [1]
    Sinks(tmp_path, start_step=5).close()
    assert path.read_bytes() == whole


def test_a_last_line_that_only_lacks_its_newline_is_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "split": "train", "loss": 2.0}')
    with Sinks(tmp_path, start_step=1) as sinks:
        sinks.write(2, "train", {"loss": 1.0})
    assert [line["loss"] for line in read_metrics(path)] == [2.0, 1.0]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    text = '{"step": 1, "split": "train"}\n{"step":\n{"step": 3, "split": "train"}\n'
    path.write_text(text)
    for act in (lambda: read_metrics(path), lambda: Sinks(tmp_path, start_step=1)):
        with pytest.raises(Mistake, match=r"metrics\.jsonl:2: not a line of metrics"):
            act()
    assert path.read_text() == text


def test_a_kill_while_dropping_lines_leaves_the_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    text = '{"step": 1, "split": "train"}\n{"step": 2, "split": "train"}\n'
    path.write_text(text)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        Sinks(tmp_path, start_step=1)
    assert path.read_text() == text


def test_no_file_is_no_lines(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_step_and_split_cannot_be_names_of_values(tmp_path):
    with Sinks(tmp_path) as sinks, pytest.raises(AssertionError):
        sinks.write(1, "train", {"step": 1.0})


def test_history_is_by_split_and_name_in_order_of_steps_and_the_later_line_counts():
    lines = [
        {"step": 2, "split": "train", "loss": 3.0, "accuracy": 0.1},
        {"step": 1, "split": "train", "loss": 4.0},
        {"step": 2, "split": "validation", "loss": 5.0},
        {"step": 2, "split": "train", "loss": 2.0},
    ]
    assert history(lines) == {
        "train": {"loss": [(1, 4.0), (2, 2.0)], "accuracy": [(2, 0.1)]},
        "validation": {"loss": [(2, 5.0)]},
    }


def test_timings_are_series_by_name():
    assert timings([{"step": 1, "step_seconds": 0.5}, {"step": 2, "step_seconds": 0.25}]) == {
        "step_seconds": [(1, 0.5), (2, 0.25)]
    }
    assert timings([]) == {}


def events(workdir):
    """The events of all files. A record: length (uint64), its checksum (uint32), the event, its checksum (uint32)."""
    found = []
    for path in sorted((workdir / "tensorboard").iterdir(), key=lambda path: path.stat().st_mtime_ns):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            found.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return found


def test_tensorboard_gets_every_value_under_its_split(tmp_path):
    with Sinks(tmp_path) as sinks:
        sinks.write(10, "train", {"loss": 2.5})
        sinks.write(10, "validation", {"loss": 3.5})
        sinks.write_timings(10, {"step_seconds": 0.5})
    scalars = [
        (value.tag, event.step, value.simple_value) for event in events(tmp_path) for value in event.summary.value
    ]
    assert scalars == [("train/loss", 10, 2.5), ("validation/loss", 10, 3.5), ("time/step_seconds", 10, 0.5)]


def test_tensorboard_hides_the_steps_after_the_checkpoint(tmp_path):
    Sinks(tmp_path, start_step=20).close()
    starts = [event.step for event in events(tmp_path) if event.session_log.status == SessionLog.START]
    assert starts == [21]
