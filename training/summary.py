"""The closing page of a run in the terminal: how it was spread, what it learned, how fast, and what to try next."""

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from training.quantities import counted, data_size, duration, metric, percent, short, significant, words
from training.report.record import Outcome, Report, Series
from training.textplot import braille_plot

_PLOT_HEIGHT = 6


def print_summary(console: Console, report: Report, path: str, width: int) -> None:
    """Prints the page `width` columns wide; commands and paths may be longer, so that they can be copied."""
    _heading(console, report, width)
    if report.layout:
        console.print(_layout(report), width=width)
        console.print()
    _curve(console, report, width)
    _outcomes(console, report)
    for label, text in (("speed", _speed(report)), ("report", path)):
        if text:
            console.print(Text.assemble((f"  {label:<8}", "dim"), text), soft_wrap=True)
    for note in report.notes:
        console.print(Text.assemble(("  warning ", "bold yellow"), note), soft_wrap=True)
    if report.next_commands:
        console.print()
        console.print(Text("  Next", style="bold"))
        for following in report.next_commands:
            console.print(Text(f"  {following.purpose}", style="dim"), soft_wrap=True)
            console.print(Text(f"    {following.command}", style="cyan"), soft_wrap=True)
    console.print()


def _heading(console: Console, report: Report, width: int) -> None:
    time = f" {counted(report.steps, 'step')} in {duration(report.seconds)} "
    room = max(width - len(time) - 7, 8)
    title = Text(f" {report.title} ", style="bold")
    title.truncate(room, overflow="ellipsis")
    line = "─" * max(room - title.cell_len + 1, 1)
    console.print()
    console.print(Text.assemble(("───", "dim"), title, (line, "dim"), time, ("───", "dim")), soft_wrap=True)
    mesh = "" if report.mesh is None else f"mesh {report.mesh} on "
    console.print(Text(f"  {mesh}{report.device}", style="dim"), soft_wrap=True)
    console.print()


def _layout(report: Report) -> Table:
    rows = report.layout
    sums = (
        short(sum(row.parameters for row in rows)),
        data_size(sum(row.bytes_total for row in rows)),
        data_size(sum(row.bytes_per_device for row in rows)),
    )
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", footer_style="bold")
    table.show_footer = len(rows) > 1
    table.add_column("  part", footer="  in all", overflow="fold")
    for heading, total in zip(("parameters", "bytes", "a device"), sums):
        table.add_column(heading, footer=total, justify="right", no_wrap=True)
    table.add_column("how it is split", overflow="fold")
    for row in rows:
        parameters = short(row.parameters) if row.parameters else ""
        sizes = (data_size(row.bytes_total), data_size(row.bytes_per_device))
        table.add_row(Text(f"  {row.part}"), parameters, *sizes, Text(row.spec, style="cyan"))
    return table


def _loss(report: Report) -> Series:
    """The loss that stands for the run: that of 'train', or of the first split that has one; () for none."""
    losses = {split: names["loss"] for split, names in report.metrics.items() if names.get("loss")}
    return losses.get("train") or next(iter(losses.values()), ())


def _curve(console: Console, report: Report, width: int) -> None:
    points = _loss(report)
    finite = [value for _, value in points if math.isfinite(value)]
    if len(finite) < 2:
        return
    high, low = significant(max(finite)), significant(min(finite))
    margin = max(len(high), len(low), 8)
    plot_width = min(width - margin - 5, 72)
    labels = {0: high, 1: "loss", _PLOT_HEIGHT - 1: low}
    for row, line in enumerate(braille_plot(points, plot_width, _PLOT_HEIGHT)):
        edge = "┤" if row in (0, _PLOT_HEIGHT - 1) else "│"
        label = (f"  {labels.get(row, ''):>{margin}} ", "dim" if row == 1 else "")
        console.print(Text.assemble(label, (edge, "dim"), (line, "cyan")))
    first, last = f"step {points[0][0]:,}", f"{points[-1][0]:,}"
    console.print(Text(f"  {'':>{margin}} └{'─' * plot_width}", style="dim"))
    console.print(Text(f"  {'':>{margin}}  {first}{last:>{plot_width - len(first)}}", style="dim"))
    console.print()


def _outcomes(console: Console, report: Report) -> None:
    name_width = max((len(outcome.name) for outcome in report.outcomes), default=0)
    value_width = max((len(metric(outcome.name, outcome.value)) for outcome in report.outcomes), default=0)
    for outcome in report.outcomes:
        name, value = f"{words(outcome.name):<{name_width}}", f"{metric(outcome.name, outcome.value):>{value_width}}"
        line = Text.assemble(f"  {name}  ", (value, "bold green"), (f"   {_baseline(outcome)}", "dim"))
        line.rstrip()
        console.print(line, soft_wrap=True)
    if report.outcomes:
        console.print()


def _baseline(outcome: Outcome) -> str:
    """'vs 5.4% always predicting the commonest token', or ''."""
    if outcome.baseline is None:
        return ""
    return f"vs {metric(outcome.name, outcome.baseline)} {outcome.baseline_text}".rstrip()


def _speed(report: Report) -> str:
    parts = []
    if report.tokens_per_second is not None:
        parts.append(f"{short(report.tokens_per_second)} tokens/s")
    if report.step_seconds is not None:
        parts.append(f"{duration(report.step_seconds)} a step")
    if report.data_wait is not None:
        parts.append(f"{percent(report.data_wait)} waiting for data")
    if report.compile_seconds is not None:
        parts.append(f"compiled in {duration(report.compile_seconds)}")
    return " · ".join(parts)
