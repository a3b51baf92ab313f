"""What train.py can do with a configuration: each mode takes the flags and gives the exit status."""

import dataclasses
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
from training.initial import write_model
from training.loop import train
from training.program import Program
from training.prove import prove
from training.report import write_report
from training.setup import Setup, build, located
from training.sinks import Sinks

CONFIG, LAYOUT, REPORT, MODEL = "config.gin", "layout.json", "report.html", "model"


def train_mode(flags: Flags) -> int:
    """Trains, or goes on training, in the workdir."""
    started = Started(flags.command, flags.gin_files)
    workdir = flags.require_workdir()
    setup = build(flags)
    text = setup.config.operative()
    _claim(workdir, text, setup, flags)
    console = TrainingConsole(
        setup.program.experiment.steps, enabled=primary(), plain_every=setup.program.experiment.log_every
    )
    for note in setup.config.notes:
        console.warn(note)
    with located(setup.config):
        outcome = train(setup.program, setup.policy, workdir, setup.config, console)
    if outcome.status == faults.DONE:
        report = close(setup.program, outcome, workdir, text, started)
        if primary():
            if setup.program.experiment.write_model:
                write_model(setup.program, outcome.state, setup.config.values(), workdir / MODEL)
            write_report(workdir / REPORT, report)
            console.summary(report, str(workdir / REPORT))
    return outcome.status


def eval_mode(flags: Flags) -> int:
    """Evaluates the newest checkpoint of the workdir."""
    workdir = flags.require_workdir()
    setup = build(flags)
    program = setup.program
    with located(setup.config), Checkpoints(workdir, setup.policy) as checkpoints:
        restored = checkpoints.restore(program.abstract_state, program.state_sharding)
    if restored is None:
        raise Mistake(f"--workdir: {workdir} has no checkpoint to evaluate.")
    state, run = restored
    values = evaluate(program, state.params if state.ema is None else state.ema)
    with Sinks(workdir, start_step=None, enabled=primary()) as sinks:
        sinks.write(run["step"], "eval", values)
    TrainingConsole(run["step"], enabled=primary()).evaluation(run["step"], "eval", values)
    return faults.DONE


def explain_mode(flags: Flags) -> int:
    """Says where every tensor goes and why; writes it as JSON where there is a workdir. Allocates nothing and needs no
    device.
    """
    setup = build(flags, devices=None)
    explained = explain(setup.program)
    console = rich.console.Console(width=None if os.isatty(1) else 160)
    for note in setup.config.notes:
        console.print(f"[yellow]note[/]  {note}")
    render(explained, console)
    if flags.workdir is not None:
        flags.workdir.mkdir(parents=True, exist_ok=True)
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

    def built(files: Sequence[str], bindings: Sequence[str]) -> Program:
        return build(flags, files, bindings).program

    console = rich.console.Console(width=None if os.isatty(1) else 140)
    return faults.DONE if prove(own.proof, own.mesh.fits(len(jax.devices())), built, console) else faults.FAULT


def _claim(workdir: pathlib.Path, text: str, setup: Setup, flags: Flags) -> None:
    """Writes config.gin and layout.json; refuses a workdir whose run had another configuration."""
    old = workdir / CONFIG
    if old.exists() and any((workdir / "checkpoints").glob("[0-9]*")):
        changes = config.difference(old.read_text(), text)
        if changes and not flags.allow_config_change:
            raise Mistake(
                f"--workdir: the run in {workdir} had another configuration:\n{changes}\n"
                "Take another workdir, or go on with the new configuration: --allow_config_change."
            )
    if primary():
        workdir.mkdir(parents=True, exist_ok=True)
        replace_file(old, text.encode())
        replace_file(workdir / LAYOUT, json.dumps(explain(setup.program).to_json(), indent=1).encode())


MODES: dict[str, Callable[[Flags], int]] = {
    "train": train_mode,
    "eval": eval_mode,
    "explain": explain_mode,
    "prove": prove_mode,
}
