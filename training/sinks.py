"""Where a run's numbers go: metrics.jsonl, timings.jsonl and TensorBoard events, in the run's workdir.

A line of metrics.jsonl is one object, {"step": 10, "split": "train", "loss": 2.3, ...}. It holds nothing that depends
on the clock, so that a resumed run writes the very lines of an uninterrupted one; times go to timings.jsonl.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Self

from tensorboardX import SummaryWriter

from mistake import Mistake
from training.atomic import replace_file

METRICS, TIMINGS, EVENTS = "metrics.jsonl", "timings.jsonl", "tensorboard"

# TensorBoard's writer is a thread of its own: a killed run may lose its last events, never a line of the files above.
_FLUSH_SECONDS = 10

# Of one metric: (step, value), in order of steps.
Series = list[tuple[int, float]]


class Sinks:
    """Appends to the files of `workdir`, a line at a time, each flushed: a killed run loses no line that it wrote.

    Args:
      workdir: made if it isn't there.
      start_step: the step whose checkpoint the run starts from. Lines of later steps were written by a run that was
        killed after that checkpoint; they are dropped. None drops none.
      enabled: False makes every write a no-op. True on one process alone.

    Raises Mistake when a file has a damaged line other than the last.
    """

    def __init__(self, workdir: str | os.PathLike, start_step: int | None = 0, enabled: bool = True):
        self.enabled = enabled
        if not enabled:
            return
        self.workdir = Path(workdir)
        self.workdir.mkdir(parents=True, exist_ok=True)
        self._metrics = _open_after(self.workdir / METRICS, start_step)
        self._timings = _open_after(self.workdir / TIMINGS, start_step)
        # TensorBoard hides events at and after `purge_step`.
        purge_step = None if start_step is None else start_step + 1
        self._events = SummaryWriter(
            str(self.workdir / EVENTS),
            purge_step=purge_step,
            flush_secs=_FLUSH_SECONDS,
            # Files are named by the second: a run resumed within one must not write over the file it continues.
            filename_suffix=f".{os.getpid()}",
        )

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """The metrics of one split ('train', 'validation', ...) at `step`."""
        if self.enabled:
            self._append(self._metrics, {"step": int(step), "split": split}, values, tag=split)

    def write_timings(self, step: int, values: Mapping[str, float]) -> None:
        """What depends on the clock: step_seconds, data_wait_seconds, tokens_per_second, ..."""
        if self.enabled:
            self._append(self._timings, {"step": int(step)}, values, tag="time")

    def _append(self, out: IO[str], line: dict, values: Mapping[str, float], tag: str) -> None:
        assert not {"step", "split"} & values.keys(), sorted(values)
        out.write(as_line(line, values) + "\n")
        out.flush()
        for name, value in values.items():
            self._events.add_scalar(f"{tag}/{name}", float(value), line["step"])

    def close(self) -> None:
        """Flushes and closes all; a closed Sinks can't be written to."""
        if self.enabled:
            self._metrics.close()
            self._timings.close()
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def as_line(line: Mapping[str, int | str], values: Mapping[str, float]) -> str:
    """One line of a file: `line` ('step', and maybe 'split'), then the values, at full precision."""
    return json.dumps({**line, **{name: _encode(float(value)) for name, value in values.items()}}, allow_nan=False)


def read_metrics(path: str | os.PathLike) -> list[dict]:
    """The lines of a metrics.jsonl or timings.jsonl: 'step' an int, 'split' a string, all else floats.

    A torn last line (of a run that was killed, or is writing now) is left out. No file is no lines.
    Raises Mistake for any other damaged line.
    """
    return [_decode(line) for _, line in _whole_lines(Path(path))]


def history(lines: Iterable[Mapping]) -> dict[str, dict[str, Series]]:
    """Lines of metrics.jsonl as series, by split and name, in order of steps.

    Of two lines for one step and split the later counts.
    """
    values: dict[str, dict[str, dict[int, float]]] = {}
    for line in lines:
        for name, value in line.items():
            if name not in ("step", "split"):
                values.setdefault(line["split"], {}).setdefault(name, {})[line["step"]] = value
    return {split: {name: sorted(steps.items()) for name, steps in names.items()} for split, names in values.items()}


def timings(lines: Iterable[Mapping]) -> dict[str, Series]:
    """Lines of timings.jsonl as series by name."""
    return history({"split": "", **line} for line in lines).get("", {})


def _open_after(path: Path, start_step: int | None) -> IO[str]:
    """`path` opened for appending, without the lines after `start_step` and without a torn last line."""
    texts = [text for text, line in _whole_lines(path) if start_step is None or line["step"] <= start_step]
    kept = "".join(text + "\n" for text in texts).encode()
    if path.exists() and kept != path.read_bytes():
        replace_file(path, kept)
    return open(path, "a", encoding="utf-8")


def _whole_lines(path: Path) -> list[tuple[str, dict]]:
    """(text, object) of each line; a last one that isn't whole was torn by the end of its writer, and is left out."""
    if not path.exists():
        return []
    found = []
    texts = path.read_bytes().removesuffix(b"\n").split(b"\n")
    for number, raw in enumerate(texts, start=1):
        try:
            text = raw.decode()
            line = json.loads(text)
        except ValueError:
            text, line = "", None
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            found.append((text, line))
        elif number < len(texts):
            raise Mistake(f"{path}:{number}: not a line of metrics. Mend or remove it, or use another --workdir.")
    return found


def _encode(value: float) -> float | str:
    """JSON has no NaN and no infinity: they are the strings 'nan', 'inf' and '-inf'."""
    return value if math.isfinite(value) else str(value)


def _decode(line: dict) -> dict:
    return {name: value if name in ("step", "split") else float(value) for name, value in line.items()}
