"""What a run shows in the terminal: a live line while it trains, and a closing page.

Where stdout isn't a terminal (a CI log, a file) the live line becomes a plain line every so many steps, without
control codes.
"""

import dataclasses
import os
import sys
from collections.abc import Mapping
from typing import Self, TextIO

import rich.console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from training.metrics import is_element
from training.quantities import duration, metric, short, significant, words
from training.report.record import Report
from training.summary import print_summary
from training.textplot import sparkline

# Columns: lines longer than this are hard to read on any terminal.
_WIDEST = 112
_LOG_WIDTH = 100


@dataclasses.dataclass(frozen=True)
class Moment:
    """Training at one step. data_wait is the share of the step's time spent waiting for data, 0 to 1."""

    step: int
    loss: float
    learning_rate: float
    tokens_per_second: float
    step_seconds: float
    data_wait: float


class TrainingConsole:
    """A context manager: the live line lives within it. Every method may be called outside it too.

    Args:
      total_steps: of the whole run.
      start_step: where this process starts.
      plain_every: steps between two lines where stdout isn't a terminal.
      enabled: False shows nothing. True on one process alone.
      stream: stdout by default.
      width: None asks the terminal.
    """

    def __init__(
        self,
        total_steps: int,
        start_step: int = 0,
        plain_every: int = 100,
        enabled: bool = True,
        stream: TextIO | None = None,
        width: int | None = None,
    ):
        stream = sys.stdout if stream is None else stream
        if hasattr(stream, "reconfigure"):
            # A terminal that can't show a block character is no reason to end a run.
            stream.reconfigure(errors="replace")
        terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        # Rich would follow FORCE_COLOR into a log file.
        plain = {} if terminal else {"force_terminal": False, "force_interactive": False, "color_system": None}
        width = width if terminal else width or _LOG_WIDTH
        self._console = rich.console.Console(file=stream, width=width, highlight=False, quiet=not enabled, **plain)
        self._total, self._plain_every = total_steps, plain_every
        self._last_line = start_step
        self._moment: Moment | None = None
        self._status = ""
        self._start = start_step
        self._losses: list[float] = []
        self._live: Live | None = None
        if terminal and enabled:
            self._live = Live(console=self._console, auto_refresh=False, get_renderable=self._render)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_) -> None:
        if self._live:
            self._live.stop()

    def status(self, text: str) -> None:
        """What happens while no step is done ('compiling the training step'), until the next step is shown."""
        self._status = text
        if self._live:
            self._live.refresh()
        else:
            self.note(text)

    def train(self, moment: Moment) -> None:
        """Shows a training step: always on the live line, in a plain log every `plain_every` steps and at the last."""
        self._status, self._moment = "", moment
        self._losses.append(moment.loss)
        if self._live:
            self._live.refresh()
        elif moment.step - self._last_line >= self._plain_every or moment.step >= self._total:
            self._last_line = moment.step
            step = f"step {moment.step:>{len(f'{self._total:,}')},}/{self._total:,}"
            self._print(Text("  ".join([step, *self._values(moment), self._remaining(moment)])))

    def evaluation(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """A lasting line with the metrics of an evaluation."""
        shown = "  ".join(
            f"{words(name)} {metric(name, value)}" for name, value in values.items() if not is_element(name)
        )
        self._print(Text.assemble((split, "bold cyan"), f" at step {step:,}  ", shown))

    def note(self, text: str) -> None:
        """A lasting line: a checkpoint, a resume."""
        self._print(Text(text, style="dim"))

    def warn(self, text: str) -> None:
        """A lasting line that shouldn't be missed."""
        self._print(Text.assemble(("warning  ", "bold yellow"), text))

    def _print(self, line: Text) -> None:
        # A log line stays one line, and a terminal wraps it itself, so that it can be searched and copied.
        self._console.print(line, soft_wrap=True)

    def _values(self, moment: Moment) -> list[str]:
        return [
            f"loss {significant(moment.loss)}",
            f"rate {moment.learning_rate:.2e}",
            f"{short(moment.tokens_per_second)} tokens/s",
            f"{significant(moment.step_seconds * 1e3, 3)} ms/step",
            f"{moment.data_wait:.0%} data wait",
        ]

    def _remaining(self, moment: Moment) -> str:
        steps = self._total - moment.step
        return f"{duration(steps * moment.step_seconds)} left" if steps > 0 else "done"

    def _render(self) -> Table:
        """Two lines: how far, and how it goes."""
        moment, width = self._moment, min(self._console.width, _WIDEST)
        done = moment.step if moment else self._start
        place = Text.assemble((f"{done:,}", "bold"), (f" / {self._total:,}", "dim"))
        remaining = self._remaining(moment) if moment else ""
        end = Text(f"{done / max(self._total, 1):4.0%}  {remaining}")
        # Room for the longest remaining time, so that the bar keeps its length from step to step.
        room = width - place.cell_len - max(end.cell_len, 21) - 4
        bar = ProgressBar(total=max(self._total, 1), completed=done, width=max(room, 8))
        lines = Table.grid(padding=0)
        first = Table.grid(padding=(0, 2, 0, 0))
        first.add_row(place, bar, end)
        lines.add_row(first)
        if self._status or moment is None:
            lines.add_row(Text(self._status, style="dim italic"))
            return lines
        separator = "   " if width >= 90 else "  "
        values = Text(separator.join(self._values(moment)), overflow="ellipsis", no_wrap=True)
        if width - values.cell_len >= 14:
            values.append(f"   {sparkline(self._losses, min(width - values.cell_len - 3, 40))}", style="cyan")
        lines.add_row(values)
        return lines

    def summary(self, report: Report, path: str) -> None:
        """The closing page of a run, whose report.html is at `path`."""
        print_summary(self._console, report, path, min(self._console.width, _WIDEST))
