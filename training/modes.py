"""What train.py can do with a configuration: each mode takes the flags and gives the exit status."""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable, Sequence

import jax
import rich.console

from mistake import Mistake
from parallel.explain import render
from training import config, faults
from training.atomic import replace_file
from training.checkpoint import Checkpoints
from training.closing import Started, close, explain, primary
from training.console import TrainingConsole
from training.evaluate import evaluate
from training.flags import Flags
from training.initial import check_model_to_write, write_model
from training.loop import train
from training.program import Program
from training.prove import REFERENCE, prove
from training.report import write_report
from training.setup import build, located, read
from training.sinks import as_line

CONFIG, LAYOUT, REPORT, MODEL = "config.gin", "layout.json", "report.html", "model"
# What training does not read may change between two starts of a run.
_NOT_OF_THE_RUN = ("prove.*",)


def train_mode(flags: Flags) -> int:
    """Trains, or goes on training, in the workdir."""
    started = Started(flags.command, flags.gin_files)
    workdir = flags.require_workdir()
    setup = build(flags)
    text = setup.config.operative()
    _check_same_configuration(workdir, text, flags)
    _make(workdir)
    console = TrainingConsole(
        setup.program.experiment.steps, enabled=primary(), plain_every=setup.program.experiment.log_every
    )
    for note in setup.config.notes:
        console.warn(note)
    with located(setup.config):
        if setup.program.experiment.write_model:
            check_model_to_write(setup.program, setup.config.values(), workdir / MODEL)
        begin = functools.partial(_describe, workdir, text, setup.program)
        outcome = train(setup.program, setup.policy, workdir, setup.config, console, begin)
    if outcome.status == faults.DONE:
        if setup.program.experiment.write_model:
            write_model(setup.program, outcome.state, setup.config.values(), workdir / MODEL)
        if primary():
            report = close(setup.program, outcome, workdir, text, started)
            write_report(workdir / REPORT, report)
            console.summary(report, str(workdir / REPORT))
    return outcome.status


def eval_mode(flags: Flags) -> int:
    """Evaluates the newest checkpoint of the workdir, in which it changes nothing: metrics.jsonl is the record of the
    run, which may be training there now. It shows the line that the record would have.
    """
    workdir = flags.require_workdir()
    nothing = f"--workdir: {workdir} has no checkpoint to evaluate. Train there first, or name the workdir of a run."
    if not _has_checkpoint(workdir):
        raise Mistake(nothing)
    setup = build(flags)
    program = setup.program
    _check_same_configuration(workdir, setup.config.operative(), flags)
    console = TrainingConsole(program.experiment.steps, enabled=primary())
    for note in setup.config.notes:
        console.warn(note)
    with located(setup.config):
        with Checkpoints(workdir, setup.policy, read_only=True) as checkpoints:
            restored = checkpoints.restore(program.abstract_state, program.state_sharding)
        if restored is None:
            raise Mistake(nothing)
        state, run = restored
        values = evaluate(program, state.params if state.ema is None else state.ema)
    console.evaluation(run["step"], "eval", values)
    if primary():
        print(as_line({"step": run["step"], "split": "eval"}, values))
    return faults.DONE


def explain_mode(flags: Flags) -> int:
    """Says where every tensor goes and why; writes it as JSON where there is a workdir. Allocates nothing and needs no
    device.
    """
    setup = build(flags, devices=None)
    if flags.workdir is not None:
        _make(flags.workdir)
    explained = explain(setup.program)
    console = rich.console.Console(width=None if os.isatty(1) else 160)
    for note in setup.config.notes:
        console.print(f"[yellow]note[/]  {note}")
    render(explained, console)
    if flags.workdir is not None:
        replace_file(flags.workdir / LAYOUT, json.dumps(explained.to_json(), indent=1).encode())
        console.print(f"written to {flags.workdir / LAYOUT}")
    return faults.DONE


def prove_mode(flags: Flags) -> int:
    """Shows that the configuration is one program, whatever the mesh. On a machine without accelerators it simulates 8
    devices.
    """
    if flags.simulated_devices is None:
        flags = dataclasses.replace(flags, bindings=["mesh.simulated_devices=8", *flags.bindings])
    own = build(flags, devices=None)
    for layout in own.proof.layouts:
        read(flags, [layout], own.proof.bindings(1))  # What is wrong with one is said before the first runs.

    def built(files: Sequence[str], bindings: Sequence[str]) -> Program:
        # One device is one of each process's own: all compute the reference.
        devices = jax.local_devices if REFERENCE in files else jax.devices
        return build(flags, files, bindings, devices=devices).program

    console = rich.console.Console(width=None if os.isatty(1) else 140, quiet=not primary())
    whole_batch = getattr(own.program.experiment.model, "whole_batch", False)
    agreed = prove(own.proof, own.mesh.fits(len(jax.devices())), whole_batch, built, console)
    return faults.DONE if agreed else faults.FAULT


def _has_checkpoint(workdir: pathlib.Path) -> bool:
    return any((workdir / "checkpoints").glob("[0-9]*"))


def _check_same_configuration(workdir: pathlib.Path, text: str, flags: Flags) -> None:
    """Refuses a workdir whose run had another configuration than `text`, unless the flags allow it."""
    old = workdir / CONFIG
    if not old.exists() or not _has_checkpoint(workdir) or flags.allow_config_change:
        return
    if changes := config.difference(old.read_text(), text, ignore=_NOT_OF_THE_RUN):
        raise Mistake(
            f"--workdir: the run in {workdir} had another configuration:\n{changes}\n"
            "Take another workdir, or go on with the new configuration: --allow_config_change."
        )


def _make(workdir: pathlib.Path) -> None:
    """Makes the folder, if it isn't there; Mistake where that can't be, or nothing may be written in it."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mistake(f"--workdir: {workdir} can't be made: {error.strerror}. Name another folder.") from None
    if not os.access(workdir, os.W_OK | os.X_OK):
        raise Mistake(
            f"--workdir: nothing may be written in {workdir}. Name another folder, or change its permissions."
        )


def _describe(workdir: pathlib.Path, text: str, program: Program) -> None:
    """Writes config.gin and layout.json."""
    if primary():
        replace_file(workdir / CONFIG, text.encode())
        replace_file(workdir / LAYOUT, json.dumps(explain(program).to_json(), indent=1).encode())


MODES: dict[str, Callable[[Flags], int]] = {
    "train": train_mode,
    "eval": eval_mode,
    "explain": explain_mode,
    "prove": prove_mode,
}
