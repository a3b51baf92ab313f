"""The page: its sections in reading order, each a function from the record to HTML."""

import math
import os
from pathlib import Path

from training.atomic import replace_file
from training.quantities import counted, data_size, duration, is_share, metric, percent, short, significant, words
from training.report.charts import Line, figure, legend
from training.report.markup import Markup, join, raw, tag
from training.report.meshpicture import mesh_pictures
from training.report.record import Outcome, Report
from training.report.series import smoothed
from training.report.tables import configuration, layout_table, parameter_table

# The page may fetch nothing, whatever a run's texts hold.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


def write_report(path: str | os.PathLike, report: Report) -> None:
    """Writes report.html at `path`, whole or not at all."""
    replace_file(Path(path), page(report).encode())


def page(report: Report) -> str:
    """The document: one file, no other needed."""
    here = Path(__file__)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", report.title),
        tag("style", raw(here.with_name("page.css").read_text(encoding="utf-8"))),
    )
    sections = (_heading, _figures, _notes, _curves, _time, _layout, _parameters, _config, _next, _versions)
    body = tag("main", *(section(report) for section in sections))
    script = tag("script", raw(here.with_name("page.js").read_text(encoding="utf-8")))
    return f"<!doctype html>\n{tag('html', head, tag('body', body, script), lang='en')}\n"


def _section(title: str, *children: str, id: str) -> Markup:
    return tag("section", tag("h2", title), *children, id=id)


def _heading(report: Report) -> Markup:
    facts = [report.started, f"{counted(report.steps, 'step')} in {duration(report.seconds)}", report.device]
    return tag(
        "header",
        tag("h1", report.title),
        tag("p", join(*facts, between=" · "), class_="muted"),
        tag("pre", report.command, class_="command"),
    )


def _figures(report: Report) -> Markup:
    """The numbers that one looks for first."""
    tiles = [_outcome(outcome) for outcome in report.outcomes]
    if report.tokens_per_second is not None:
        tiles.append(_tile("tokens a second", short(report.tokens_per_second), f"on {report.device}"))
    if report.step_seconds is not None:
        wait = "" if report.data_wait is None else f"{percent(report.data_wait)} of it waiting for data"
        tiles.append(_tile("a step, median", duration(report.step_seconds), wait))
    if report.layout:
        parameters, total = sum(row.parameters for row in report.layout), sum(row.bytes_total for row in report.layout)
        tiles.append(_tile("parameters", short(parameters), f"{parameters:,}"))
        per_device = sum(row.bytes_per_device for row in report.layout)
        tiles.append(_tile("state a device", data_size(per_device), f"of {data_size(total)} in all"))
    return tag("div", *tiles, class_="tiles") if tiles else join()


def _tile(name: str, value: str, below: str) -> Markup:
    return tag(
        "div",
        tag("span", name, class_="name"),
        tag("span", value, class_="value"),
        tag("span", below, class_="muted"),
        class_="tile",
    )


def _outcome(outcome: Outcome) -> Markup:
    below = ""
    if outcome.baseline is not None:
        below = f"against {metric(outcome.name, outcome.baseline)} {outcome.baseline_text}".rstrip()
    return _tile(words(outcome.name), metric(outcome.name, outcome.value), below)


def _notes(report: Report) -> Markup:
    return tag("ul", *(tag("li", note) for note in report.notes), class_="notes") if report.notes else join()


def _curves(report: Report) -> Markup:
    """The loss, large; then every other metric; those that never changed in words."""
    names = list(dict.fromkeys(name for split in report.metrics.values() for name in split))
    charts, constant = [], []
    for name in [name for name in names if name != "loss"]:
        lines = [Line(split, series[name]) for split, series in report.metrics.items() if series.get(name)]
        values = {value for line in lines for _, value in line.points}
        if len(values) == 1 and max(len(line.points) for line in lines) > 1:
            constant.append(f"{words(name)} was {metric(name, values.pop())} throughout")
        else:
            charts.append(figure(words(name), lines, percent if is_share(name) else significant))
    losses = [Line(split, series["loss"]) for split, series in report.metrics.items() if series.get("loss")]
    below = tag("p", f"{'; '.join(constant)}.", class_="muted") if constant else ""
    averaged = any(smoothed(points) for series in report.metrics.values() for points in series.values())
    about = "Faint lines are values as recorded, strong lines over them a moving average." if averaged else ""
    charts = tag("div", *charts, class_="charts")
    return _section(
        "What it learned",
        figure("loss", losses, wide=True),
        charts,
        below,
        tag("p", about, class_="muted"),
        id="curves",
    )


def _time(report: Report) -> Markup:
    """Where the time went, and how steady it was."""
    if not report.timings and report.compile_seconds is None:
        return join()
    milliseconds = [
        Line(name, [(step, value * 1e3) for step, value in report.timings[key]])
        for key, name in (("step_seconds", "step"), ("data_wait_seconds", "waiting for data"))
        if report.timings.get(key)
    ]
    charts = [figure("milliseconds a step", milliseconds)] if milliseconds else []
    if report.timings.get("tokens_per_second"):
        charts.append(figure("tokens a second", [Line("all devices", report.timings["tokens_per_second"])], short))
    return _section("Where the time went", _time_bar(report), tag("div", *charts, class_="charts"), id="time")


def _time_bar(report: Report) -> Markup:
    steps = [value for _, value in report.timings.get("step_seconds", ()) if math.isfinite(value)]
    stepping = sum(steps) / len(steps) * report.steps if steps else 0.0
    waiting = stepping * (report.data_wait or 0.0)
    compiling = report.compile_seconds or 0.0
    rest = max(report.seconds - compiling - stepping, 0.0)
    parts = [
        ("c2", "compiling", compiling),
        ("c0", "training steps", stepping - waiting),
        ("c1", "waiting for data", waiting),
    ]
    parts = [part for part in (*parts, ("rest", "evaluation, checkpoints and the rest", rest)) if part[2] > 0]
    total = sum(seconds for *_, seconds in parts)
    bar = [
        tag("i", class_=color, style=f"width:{seconds / total:.2%}", title=f"{name}: {duration(seconds)}")
        for color, name, seconds in parts
    ]
    entries = [(color, name, f"{duration(seconds)}, {percent(seconds / total)}") for color, name, seconds in parts]
    return join(tag("div", *bar, class_="bar"), tag("p", legend(entries)))


def _layout(report: Report) -> Markup:
    """What was split how: by part in a table, by device in a picture."""
    if not report.layout and report.mesh is None:
        return join()
    parts = []
    if report.mesh is not None:
        devices = counted(len(report.mesh.devices), "device")
        parts.append(tag("p", "The mesh is ", tag("b", str(report.mesh)), f": {devices}."))
    if report.layout:
        parts.append(layout_table(report.layout))
    if report.mesh is not None and report.parameters:
        parts.append(tag("h3", "Who holds what"))
        about = "Each outline is a parameter, the filled part what that device holds of it. One colour is one part."
        parts.append(tag("p", about, class_="muted"))
        parts.append(mesh_pictures(report.mesh, report.parameters))
    return _section("How it was spread", *parts, id="layout")


def _parameters(report: Report) -> Markup:
    """Every parameter, with the rule that split it."""
    title = f"Every parameter ({len(report.parameters):,})"
    return _section(title, parameter_table(report.parameters), id="parameters") if report.parameters else join()


def _config(report: Report) -> Markup:
    """The operative configuration; where each value came from stands beside it."""
    return _section("Configuration as it ran", configuration(report.config), id="config") if report.config else join()


def _next(report: Report) -> Markup:
    if not report.next_commands:
        return join()
    items = [
        join(tag("p", following.purpose), tag("pre", following.command, class_="command"))
        for following in report.next_commands
    ]
    return _section("What to try next", *items, id="next")


def _versions(report: Report) -> Markup:
    versions = join(*(f"{name} {version}" for name, version in report.versions.items()), between=" · ")
    return tag("footer", versions, class_="muted") if report.versions else join()
