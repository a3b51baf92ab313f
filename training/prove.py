"""--mode=prove: the configuration is one program. On one device and on each of several meshes its losses and gradients
agree.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import gin
import jax
import numpy as np
import rich.console
from rich import box
from rich.table import Table

from data.loader import Loader
from mistake import Mistake
from training import hosts
from training.metrics import fetch
from training.program import Program

# On one device, for the others to agree with.
REFERENCE = "configs/parallel/single.gin"
# The configuration as it is, with no file on top.
OWN = "as configured"


@gin.configurable("prove")
class Proof:
    """What is compared, and how closely.

    Args:
      layouts: gin files with a mesh and rules, each put on top of the configuration; None is every one of
        configs/parallel, but those that the model has not the dimensions for, which are listed with the reason. The
        configuration's own layout is compared too, where there are devices for it.
      accumulations: each layout runs with each number of microbatches a step.
      shrink: bindings that make the configuration small enough to run here, {'bert.num_layers': 2, ...}.
      batch_size: examples a step.
      steps: training steps whose losses are compared.
      loss_tolerance: largest relative difference of a step's loss.
      gradient_tolerance: largest difference of a parameter's gradient at the first step, relative to the norm of the
        reference's (or to a thousandth of all parameters' together, where it is less: some are zero by nature, such as
        that of a key's bias, which no softmax can see, and hold rounding only).
    """

    def __init__(
        self,
        layouts: Sequence[str] | None = None,
        accumulations: Sequence[int] = (1, 4),
        shrink: dict | None = None,
        batch_size: int = 64,
        steps: int = 5,
        loss_tolerance: float = 1e-5,
        gradient_tolerance: float = 1e-4,
    ):
        for name, value in {"batch_size": batch_size, "steps": steps}.items():
            if value < 1:
                raise Mistake(f"prove.{name}: {value}. It must be at least 1.")
        if not accumulations:
            raise Mistake("prove.accumulations: () compares nothing. Give one at least, such as (1, 4).")
        for count in accumulations:
            if count < 1 or batch_size % count:
                divisors = [n for n in range(1, batch_size + 1) if batch_size % n == 0]
                raise Mistake(
                    f"prove.accumulations: {count} microbatches don't divide prove.batch_size {batch_size}. "
                    f"These do: {', '.join(map(str, divisors))}."
                )
        for name, value in {"loss_tolerance": loss_tolerance, "gradient_tolerance": gradient_tolerance}.items():
            if not value > 0:
                raise Mistake(
                    f"prove.{name}: {value}. It must be above 0: no two orders of summation agree to the bit."
                )
        self.every_preset = layouts is None
        self.layouts = presets() if layouts is None else tuple(layouts)
        self.accumulations, self.shrink = tuple(accumulations), dict(shrink or {})
        self.batch_size, self.steps = batch_size, steps
        self.loss_tolerance, self.gradient_tolerance = loss_tolerance, gradient_tolerance

    def bindings(self, accumulation: int) -> list[str]:
        """What is bound for one run of the comparison, as 'name=value'."""
        own = {"batch.size": self.batch_size, "batch.accumulation": accumulation, "batch.microbatch_size": None}
        return [f"{name}={value!r}" for name, value in (self.shrink | own).items()]


@dataclasses.dataclass(frozen=True)
class Trace:
    """What one layout computed: the loss of each step, and the first step's gradients by path, float32."""

    losses: tuple[float, ...]
    gradients: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One layout against the reference. loss: largest relative difference; gradient: largest relative difference, of
    parameter `worst`.
    """

    layout: str
    mesh: dict[str, int]
    accumulation: int
    loss: float
    gradient: float
    worst: str
    agrees: bool


def presets() -> tuple[str, ...]:
    """Every layout of configs/parallel, but those that are no kind of parallelism."""
    folder = pathlib.Path(__file__).resolve().parents[1] / "configs" / "parallel"
    names = sorted(path.name for path in folder.glob("*.gin") if path.name not in ("none.gin", "single.gin"))
    return tuple(f"configs/parallel/{name}" for name in names)


def _short(layout: str) -> str:
    return layout.removeprefix("configs/parallel/")


def run(program: Program, steps: int) -> Trace:
    """The first `steps` steps of `program` on its data, noise included."""
    experiment = program.experiment
    size = experiment.batch.size
    state, losses, first = program.fresh_state(), [], None
    with Loader(experiment.data, "train", size, experiment.seed, rows=program.rows(size), end="repeat") as loader:
        for _, rows in zip(range(steps), loader, strict=False):
            state, sums, gradients = program.proving_step(state, program.global_batch(rows, size))
            total, weight = fetch(sums)["loss"]
            losses.append(total / weight)
            if first is None:
                first = {path: hosts.whole(value) for path, value in gradients.items()}
    return Trace(tuple(losses), first)


def prove(
    proof: Proof,
    own_layout: bool,
    whole_batch: bool,
    build: Callable[[Sequence[str], Sequence[str]], Program],
    console: rich.console.Console,
) -> bool:
    """Runs and compares all; prints the table. Returns whether everything agreed.

    own_layout: whether the configuration's own layout can run here. whole_batch: whether the objective needs a batch
    whole; then there is one microbatch a step. build(gin files, bindings) makes the program of the configuration with
    these on top.
    """
    accumulations = (1,) if whole_batch else proof.accumulations
    reference = run(build([REFERENCE], proof.bindings(1)), proof.steps)
    comparisons, refused = [], {}
    for layout in ((OWN,) if own_layout else ()) + (REFERENCE, *proof.layouts):
        for accumulation in accumulations:
            if (layout, accumulation) == (REFERENCE, 1):
                continue
            try:
                program = build([] if layout == OWN else [layout], proof.bindings(accumulation))
                trace = run(program, proof.steps)
            except Mistake as mistake:
                if not (proof.every_preset and layout in proof.layouts):
                    raise
                refused.setdefault(layout, str(mistake).splitlines()[0])
                continue
            comparisons.append(_compare(proof, layout, program.layout.sizes, accumulation, trace, reference))
            jax.clear_caches()
    left_out = [count for count in proof.accumulations if count not in accumulations]
    console.print(_table(proof, comparisons, reference, left_out))
    for layout, why in refused.items():
        console.print(f"{_short(layout)} does not apply: {why}", style="dim", markup=False, highlight=False)
    if not own_layout:
        console.print("The configuration's own layout takes other devices than are here, so it was left out.")
    agreed = all(comparison.agrees for comparison in comparisons)
    console.print(
        "One program: every layout agrees with one device." if agreed else "Not one program: see the rows that differ."
    )
    return agreed


def _compare(
    proof: Proof, layout: str, mesh: dict[str, int], accumulation: int, trace: Trace, reference: Trace
) -> Comparison:
    differences = [abs(a - b) / max(abs(b), 1e-12) for a, b in zip(trace.losses, reference.losses, strict=True)]
    # max() passes over a NaN that is not its first argument; a loss that is not finite agrees with nothing.
    loss = max(differences) if np.all(np.isfinite(differences)) else float("inf")
    norms = {path: float(np.linalg.norm(value.astype(np.float64))) for path, value in reference.gradients.items()}
    least = 1e-3 * float(np.linalg.norm(list(norms.values())))
    differences = {
        path: _distance(trace.gradients[path], value) / max(norms[path], least)
        for path, value in reference.gradients.items()
    }
    worst = max(differences, key=differences.get)
    agrees = loss <= proof.loss_tolerance and differences[worst] <= proof.gradient_tolerance
    return Comparison(layout, mesh, accumulation, loss, differences[worst], worst, agrees)


def _distance(value: np.ndarray, reference: np.ndarray) -> float:
    distance = float(np.linalg.norm(value.astype(np.float64) - reference))
    return distance if np.isfinite(distance) else float("inf")


def _table(proof: Proof, comparisons: Sequence[Comparison], reference: Trace, left_out: Sequence[int]) -> Table:
    """left_out: the numbers of microbatches that the objective can't have."""
    losses = ", ".join(f"{loss:.6f}" for loss in reference.losses)
    caption = None
    if left_out:
        counts = ", ".join(map(str, left_out))
        caption = (
            f"Left out: {counts} microbatches. The objective compares every example of a batch with every other, "
            "so a batch can't be split."
        )
    table = Table(
        title=f"Against one device, noise on. Losses there: {losses}.\nLargest relative difference allowed: loss {proof.loss_tolerance:g}, gradient {proof.gradient_tolerance:g}.",
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("layout", "mesh", "microbatches"):
        table.add_column(heading)
    for heading in (f"loss of {proof.steps} steps", "gradient"):
        table.add_column(heading, justify="right")
    table.add_column("worst parameter", style="dim", overflow="fold")
    table.add_column("")
    for c in comparisons:
        mesh = " x ".join(f"{name} {size}" for name, size in c.mesh.items())
        mark = "[green]agrees" if c.agrees else "[bold red]DIFFERS"
        table.add_row(
            _short(c.layout),
            mesh,
            str(c.accumulation),
            f"{c.loss:.1e}",
            f"{c.gradient:.1e}",
            c.worst,
            mark,
        )
    return table
