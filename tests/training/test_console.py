"""What a terminal shows, and what a log file gets in its place."""

import io
import re

import pytest
from rich.cells import cell_len

from training.console import Moment, TrainingConsole
from training.report import LayoutRow, Mesh, NextCommand, Outcome, Report


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """Rich reads these; a developer's own must not change what is tested."""
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def moment(step, **changes):
    values = {
        "loss": 2.3456,
        "learning_rate": 1e-4,
        "tokens_per_second": 12_345.0,
        "step_seconds": 0.0812,
        "data_wait": 0.02,
    }
    return Moment(step, **values | changes)


def visible(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def report():
    command = (
        "python train.py --gin_file=configs/runs/bert_tiny.gin --simulated_devices=8 --workdir=runs/" + "long" * 20
    )
    return Report(
        title="BERT tiny, masked LM",
        command="python train.py",
        started="2026-12-01 14:03",
        seconds=371.2,
        device="8 simulated CPU devices",
        steps=4000,
        metrics={"train": {"loss": [(step, 10.0 / step) for step in range(1, 401)]}},
        timings={
            "step_seconds": [(1, 0.08), (2, 0.1), (3, 0.09)],
            "data_wait_seconds": [(1, 0.0), (2, 0.027), (3, 0.0)],
            "tokens_per_second": [(1, 12e3)],
        },
        compile_seconds=14.2,
        outcomes=[
            Outcome("masked_accuracy", 0.312, 0.054, "always predicting the commonest token"),
            Outcome("loss", 2.2456),
        ],
        layout=[
            LayoutRow("encoder.embeddings", 3_972_608, 15_890_432, 1_986_304, "vocab over tensor, embed over data"),
            LayoutRow("optimizer slots", 0, 31_780_864, 3_972_608, "as the parameters"),
        ],
        mesh=Mesh({"data": 4, "tensor": 2}, [f"cpu:{i}" for i in range(8)]),
        notes=["two updates were skipped"],
        next_commands=[NextCommand("optimizer state split over data", command)],
    )


def test_a_log_gets_a_plain_line_every_so_many_steps_and_at_the_last():
    log = io.StringIO()
    with TrainingConsole(1000, plain_every=400, stream=log) as console:
        for step in range(100, 1001, 100):
            console.train(moment(step))
    assert log.getvalue() == (
        "step   400/1,000  loss 2.346  rate 1.00e-04  12.3k tokens/s  81.2 ms/step  2% data wait  49 s left\n"
        "step   800/1,000  loss 2.346  rate 1.00e-04  12.3k tokens/s  81.2 ms/step  2% data wait  16 s left\n"
        "step 1,000/1,000  loss 2.346  rate 1.00e-04  12.3k tokens/s  81.2 ms/step  2% data wait  done\n"
    )


def test_a_resumed_run_counts_from_where_it_starts():
    log = io.StringIO()
    console = TrainingConsole(1000, start_step=550, plain_every=400, stream=log)
    for step in range(600, 1000, 50):
        console.train(moment(step))
    assert [line.split()[1] for line in log.getvalue().splitlines()] == ["950/1,000"]


def test_a_log_holds_no_control_codes_even_where_colour_is_forced(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    log = io.StringIO()
    with TrainingConsole(10, plain_every=1, stream=log) as console:
        console.status("compiling the training step")
        console.train(moment(5))
        console.evaluation(5, "validation", {"loss": 2.5, "masked_accuracy": 0.25})
        console.note("checkpoint 5 written")
        console.warn("the loss was not finite")
        console.summary(report(), "runs/tiny/report.html")
    assert "\x1b" not in log.getvalue() and "\r" not in log.getvalue()


def test_a_dumb_terminal_is_treated_as_a_log(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with TrainingConsole(10, plain_every=1, stream=terminal) as console:
        console.train(moment(5))
    assert terminal.getvalue().startswith("step  5/10  loss 2.346") and "\x1b" not in terminal.getvalue()


def test_evaluations_notes_and_warnings_are_whole_lines():
    log = io.StringIO()
    console = TrainingConsole(4000, stream=log, width=40)
    console.evaluation(1200, "validation", {"loss": 2.5, "masked_accuracy": 0.25})
    console.note("checkpoint 1,200 written to a place with a very long name")
    console.warn("[bold]not markup[/bold]")
    assert log.getvalue() == (
        "validation at step 1,200  loss 2.500  masked accuracy 25.0%\n"
        "checkpoint 1,200 written to a place with a very long name\n"
        "warning  [bold]not markup[/bold]\n"
    )


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_line_fits_and_shows_all_that_matters(width):
    terminal = Terminal()
    with TrainingConsole(4000, stream=terminal, width=width) as console:
        for step in range(10, 1210, 10):
            console.train(moment(step, loss=100.0 / step))
    lines = [line for line in re.split(r"[\r\n]+", visible(terminal.getvalue())) if line.strip()]
    bar, values = lines[-2:]
    assert all(cell_len(line.rstrip()) <= width for line in lines)
    assert bar.startswith("1,200 / 4,000  ━━━") and bar.rstrip().endswith("30%  3 min 47 s left")
    for shown in ("loss 0.08333", "rate 1.00e-04", "12.3k tokens/s", "81.2 ms/step", "2% data wait"):
        assert shown in values
    assert ("▁▁▁▁" in values) == (width == 120)


def test_the_live_line_says_what_is_done_while_there_is_no_step():
    terminal = Terminal()
    with TrainingConsole(4000, stream=terminal, width=80) as console:
        console.status("compiling the training step")
    assert "compiling the training step" in visible(terminal.getvalue())


def test_a_disabled_console_shows_nothing():
    for stream in (Terminal(), io.StringIO()):
        with TrainingConsole(10, enabled=False, stream=stream, plain_every=1) as console:
            console.train(moment(10))
            console.evaluation(10, "validation", {"loss": 1.0})
            console.summary(report(), "report.html")
        assert stream.getvalue() == ""


def test_a_stream_that_cannot_show_blocks_does_not_end_the_run():
    binary = io.BytesIO()
    stream = io.TextIOWrapper(binary, encoding="ascii")
    TrainingConsole(10, stream=stream).summary(report(), "report.html")
    stream.flush()
    assert b"masked accuracy" in binary.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_closing_page_fits_but_for_what_is_to_be_copied(width):
    log = io.StringIO()
    TrainingConsole(4000, stream=log, width=width).summary(report(), "runs/tiny/report.html")
    lines = log.getvalue().splitlines()
    copied = [line for line in lines if "python train.py" in line or "tokens/s" in line]
    assert all(cell_len(line) <= width for line in lines if line not in copied)
    assert copied[-1].strip() == report().next_commands[0].command


def test_the_closing_page_says_what_was_split_learned_and_how_fast():
    log = io.StringIO()
    TrainingConsole(4000, stream=log, width=100).summary(report(), "runs/tiny/report.html")
    text = log.getvalue()
    for shown in (
        "BERT tiny, masked LM",
        "4,000 steps in 6 min 11 s",
        "mesh data 4 × tensor 2 on 8 simulated CPU devices",
        "masked accuracy  31.2%   vs 5.4% always predicting the commonest token",
        "loss             2.246",
        "12.0k tokens/s · 90.0 ms a step · 10.0% waiting for data · compiled in 14 s",
        "runs/tiny/report.html",
        "two updates were skipped",
    ):
        assert shown in text
    rows = [line.split() for line in text.splitlines()]
    assert [
        "encoder.embeddings",
        "3.97M",
        "15.2",
        "MiB",
        "1.89",
        "MiB",
        "vocab",
        "over",
        "tensor,",
        "embed",
        "over",
        "data",
    ] in rows
    assert ["in", "all", "3.97M", "45.5", "MiB", "5.68", "MiB"] in rows


def test_the_loss_curve_is_labelled_with_its_extremes_and_steps():
    log = io.StringIO()
    TrainingConsole(4000, stream=log, width=100).summary(report(), "report.html")
    plot = [line for line in log.getvalue().splitlines() if "┤" in line]
    assert [line.split("┤")[0].strip() for line in plot] == ["10.00", "0.02500"]
    assert re.search(r"step 1 +400$", log.getvalue(), re.MULTILINE)


def test_the_closing_page_of_a_run_without_anything_is_short_and_whole():
    log = io.StringIO()
    bare = Report(
        title="nothing",
        command="",
        started="",
        seconds=0.5,
        device="1 CPU device",
        steps=1,
        metrics={"train": {"loss": [(1, 2.0)]}},
    )
    TrainingConsole(1, stream=log, width=80).summary(bare, "report.html")
    text = log.getvalue()
    assert "1 step in 500 ms" in text and "1 CPU device" in text and "report.html" in text and "┤" not in text
