"""The record of a run as plain data, of which the terminal's closing page and report.html are made.

It knows no layout, model or array.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

# Of one metric: (step, value), in order of steps.
Series = Sequence[tuple[int, float]]


@dataclasses.dataclass(frozen=True)
class LayoutRow:
    """A part of the train state: bytes in all, on the fullest device, and its split in words ('vocab over tensor').

    `parameters` is 0 for what isn't parameters, such as the optimizer's slots.
    """

    part: str
    parameters: int
    bytes_total: int
    bytes_per_device: int
    spec: str


@dataclasses.dataclass(frozen=True)
class ParameterRow:
    """One parameter.

    `names` are its dimensions' logical axes. `spec` says which mesh axes split each, as a PartitionSpec's entries do:
    None, an axis, or several, major first; a short one leaves the last dimensions whole. `rule`, at its `place`
    (file:line), decided it.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    names: tuple[str, ...]
    spec: tuple[str | tuple[str, ...] | None, ...]
    bytes_per_device: int
    rule: str = ""
    place: str = ""

    @property
    def splits(self) -> tuple[tuple[str, ...], ...]:
        """For each dimension, the mesh axes that split it, () for none."""
        padded = (*self.spec, *(None for _ in self.shape[len(self.spec) :]))
        return tuple((axes,) if isinstance(axes, str) else tuple(axes or ()) for axes in padded)


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Axes and sizes, first axis slowest; `devices` are their names in that (row-major) order."""

    axes: Mapping[str, int]
    devices: Sequence[str]

    def __post_init__(self):
        assert len(self.devices) == math.prod(self.axes.values()), (self.axes, len(self.devices))

    def __str__(self) -> str:
        """'data 4 × tensor 2'."""
        return " × ".join(f"{axis} {size}" for axis, size in self.axes.items())


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A final metric beside what it would be without learning.

    For example 'masked_accuracy', 0.312, 0.054, 'always predicting the commonest token'.
    """

    name: str
    value: float
    baseline: float | None = None
    baseline_text: str = ""


@dataclasses.dataclass(frozen=True)
class NextCommand:
    """A command to try next, and what it does."""

    purpose: str
    command: str


@dataclasses.dataclass(frozen=True)
class Report:
    """A run. Times are in seconds.

    Args:
      title: the run's name.
      command: as typed.
      started: date and time as text.
      seconds: of the whole run, compiling, evaluation and checkpoints included.
      device: in words, '8 simulated CPU devices'.
      steps: updates done.
      metrics: by split and name, as `training.sinks.history` gives them.
      timings: by name, as `training.sinks.timings` gives them; known are step_seconds, data_wait_seconds (the part of
        it spent waiting for data) and tokens_per_second.
      compile_seconds: until the first step could run.
      config: the operative configuration, a binding a line, '# file:line' behind each.
      versions: of Python and libraries.
      notes: warnings, one a string.
    """

    title: str
    command: str
    started: str
    seconds: float
    device: str
    steps: int
    metrics: Mapping[str, Mapping[str, Series]] = dataclasses.field(default_factory=dict)
    timings: Mapping[str, Series] = dataclasses.field(default_factory=dict)
    compile_seconds: float | None = None
    outcomes: Sequence[Outcome] = ()
    layout: Sequence[LayoutRow] = ()
    parameters: Sequence[ParameterRow] = ()
    mesh: Mesh | None = None
    config: str = ""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()
    next_commands: Sequence[NextCommand] = ()

    @property
    def step_seconds(self) -> float | None:
        """The median time of a step, or None when none was timed."""
        return _median([value for _, value in self.timings.get("step_seconds", ())])

    @property
    def tokens_per_second(self) -> float | None:
        """The median rate, or None."""
        return _median([value for _, value in self.timings.get("tokens_per_second", ())])

    @property
    def data_wait(self) -> float | None:
        """The share of the step time that went into waiting for data, or None."""
        if not self.timings.get("data_wait_seconds"):
            return None
        total = sum(value for _, value in self.timings.get("step_seconds", ()))
        waited = sum(value for _, value in self.timings["data_wait_seconds"])
        return waited / total if total > 0 else None


def _median(values: list[float]) -> float | None:
    values = sorted(value for value in values if math.isfinite(value))
    if not values:
        return None
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
