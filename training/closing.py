"""The closing of a run: what it did, as a Report for the terminal's last page and report.html."""

import dataclasses
import datetime
import importlib.metadata
import pathlib
import platform
import shlex
import time

import jax

from parallel.explain import Explanation, explanation
from training import devices
from training.evaluate import commonest_label_accuracy
from training.loop import Outcome
from training.metrics import is_element
from training.program import Program
from training.report import LayoutRow, Mesh, NextCommand, ParameterRow, Report
from training.report import Outcome as Figure
from training.report.record import Series
from training.sinks import METRICS, TIMINGS, history, read_metrics, timings

_VERSIONS = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy")


@dataclasses.dataclass
class Started:
    """When and by which command a run began."""

    command: str
    gin_files: list[str]
    time: float = dataclasses.field(default_factory=time.time)


def explain(program: Program) -> Explanation:
    """What goes where in `program`."""
    return explanation(
        program.layout,
        parameters=program.parameters,
        slots=program.slots,
        inputs=program.inputs,
        activations=program.activations,
    )


def close(program: Program, outcome: Outcome, workdir: pathlib.Path, config_text: str, started: Started) -> Report:
    """The report of a finished run."""
    explained = explain(program)
    mesh = program.layout.mesh
    notes = (
        [f"{outcome.skipped} steps were skipped: their loss or gradients were not finite."] if outcome.skipped else []
    )
    notes += (
        [f"Started fresh beside {program.experiment.init_from}: {', '.join(outcome.fresh)}."] if outcome.fresh else []
    )
    return Report(
        title=pathlib.Path(started.gin_files[-1]).stem.replace("_", " "),
        command=started.command,
        started=datetime.datetime.fromtimestamp(started.time).strftime("%Y-%m-%d %H:%M:%S"),
        seconds=outcome.seconds_before + time.time() - started.time,
        device=devices.describe(),
        steps=outcome.step,
        metrics=_shown(history(read_metrics(workdir / METRICS))),
        timings=timings(read_metrics(workdir / TIMINGS)),
        compile_seconds=outcome.compile_seconds,
        outcomes=_figures(program, outcome.evaluation),
        layout=_layout_rows(explained),
        parameters=[_parameter_row(program, row) for row in explained.of("parameter")],
        mesh=Mesh(program.layout.sizes, [f"{device.platform}:{device.id}" for device in mesh.devices.flat]),
        config=config_text,
        versions={"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _VERSIONS},
        notes=notes,
        next_commands=_next_commands(started.gin_files, workdir),
    )


def _shown(metrics: dict[str, dict[str, Series]]) -> dict[str, dict[str, Series]]:
    return {
        split: {name: series for name, series in of.items() if not is_element(name)} for split, of in metrics.items()
    }


def _figures(program: Program, evaluation: dict[str, float]) -> list[Figure]:
    baseline = commonest_label_accuracy(program)
    figures = []
    for name, value in evaluation.items():
        if is_element(name):
            continue
        if name.endswith("accuracy") and baseline is not None:
            figures.append(Figure(name, value, baseline, "always predicting the commonest"))
        else:
            figures.append(Figure(name, value))
    return figures


def _layout_rows(explained: Explanation) -> list[LayoutRow]:
    rows = []
    for kind, label in (("parameter", ""), ("slot", "optimizer: ")):
        for part, (elements, whole, each) in explained.parts(kind).items():
            splits: dict[str, None] = {}
            for row in explained.of(kind):
                if row.part == part:
                    splits |= {
                        f"{name} over {_axes(axes)}": None
                        for name, axes in zip(row.names, row.spec, strict=False)
                        if axes is not None
                    }
            rows.append(
                LayoutRow(
                    label + part,
                    elements if kind == "parameter" else 0,
                    whole,
                    each,
                    ", ".join(splits) or "whole on every device",
                )
            )
    return rows


def _axes(entry: str | tuple[str, ...]) -> str:
    return entry if isinstance(entry, str) else " and ".join(entry)


def _parameter_row(program: Program, row) -> ParameterRow:
    rules = next(resolved for resolved in program.parameters if resolved.path == row.path).rules
    fired = [rule for rule in rules if rule is not None and rule.mesh_axes]
    places = ", ".join(dict.fromkeys(rule.place for rule in fired if rule.place))
    shown = "; ".join(dict.fromkeys(f"{rule.binding}: {rule.name!r}" for rule in fired))
    return ParameterRow(row.path, row.shape, row.dtype, row.names, row.spec, row.bytes_per_device, shown, places)


def _next_commands(gin_files: list[str], workdir: pathlib.Path) -> list[NextCommand]:
    files = " ".join(f"--gin_file={shlex.quote(file)}" for file in gin_files)
    run = f"uv run train.py {files}"
    here = shlex.quote(str(workdir))
    return [
        NextCommand("which rule put each tensor where, and how many bytes a device holds", f"{run} --mode=explain"),
        NextCommand("the same model on other meshes: same losses, same gradients", f"{run} --mode=prove"),
        NextCommand(
            "the same run with weights, gradients and optimizer state shared out (ZeRO-3), by one more file",
            f"{run} --gin_file=configs/parallel/zero3.gin --workdir={here}_zero3",
        ),
    ]


def primary() -> bool:
    """Whether this process is the one that writes and shows."""
    return jax.process_index() == 0
