"""The page: its sections in reading order, each a function from the record to HTML."""

import math
import os
import re
from pathlib import Path

from training.atomic import replace_file
from training.quantities import counted, data_size, duration, metric, percent, short, significant, words
from training.report.charts import Line, figure
from training.report.markup import Markup, join, raw, tag
from training.report.meshpicture import mesh_pictures
from training.report.record import Outcome, ParameterRow, Report
from training.report.series import smoothed

# The page may fetch nothing, whatever a run's texts hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


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
    return tag("header", tag("h1", report.title), tag("p", join(*facts, between=" · "), class_="muted"), tag("pre", report.command, class_="command"))


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
        tiles.append(_tile("state a device", data_size(sum(row.bytes_per_device for row in report.layout)), f"of {data_size(total)} in all"))
    return tag("div", *tiles, class_="tiles") if tiles else join()


def _tile(name: str, value: str, below: str) -> Markup:
    return tag("div", tag("span", name, class_="name"), tag("span", value, class_="value"), tag("span", below, class_="muted"), class_="tile")


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
        if len(values) == 1 and max(len(line.points) for line in lines) > 1 and math.isfinite(value := next(iter(values))):
            constant.append(f"{words(name)} was {metric(name, value)} throughout")
        else:
            charts.append(figure(words(name), lines, percent if metric(name, 0.5).endswith("%") else significant))
    losses = [Line(split, series["loss"]) for split, series in report.metrics.items() if series.get("loss")]
    below = tag("p", f"{'; '.join(constant)}.", class_="muted") if constant else ""
    averaged = any(smoothed(points) for series in report.metrics.values() for points in series.values())
    explained = tag("p", "Faint lines are values as recorded, strong lines over them a moving average.", class_="muted") if averaged else ""
    return _section("What it learned", figure("loss", losses, wide=True), tag("div", *charts, class_="charts"), below, explained, id="curves")


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
    parts = [("c2", "compiling", compiling), ("c0", "training steps", stepping - waiting), ("c1", "waiting for data", waiting)]
    parts = [part for part in (*parts, ("rest", "evaluation, checkpoints and the rest", rest)) if part[2] > 0]
    total = sum(seconds for *_, seconds in parts)
    bar = [tag("i", class_=color, style=f"width:{seconds / total:.2%}", title=f"{name}: {duration(seconds)}") for color, name, seconds in parts]
    legend = [
        tag("span", tag("i", class_=f"swatch {color}"), name, " ", tag("span", f"{duration(seconds)}, {percent(seconds / total)}", class_="last"))
        for color, name, seconds in parts
    ]
    return join(tag("div", *bar, class_="bar"), tag("p", *legend, class_="legend"))


def _layout(report: Report) -> Markup:
    """What was split how: by part in a table, by device in a picture."""
    if not report.layout and report.mesh is None:
        return join()
    parts = []
    if report.mesh is not None:
        axes = " × ".join(f"{axis} {size}" for axis, size in report.mesh.axes.items())
        parts.append(tag("p", "The mesh is ", tag("b", axes), f": {counted(len(report.mesh.devices), 'device')}."))
    if report.layout:
        parts.append(_layout_table(report))
    if report.mesh is not None and report.parameters:
        parts.append(tag("h3", "Who holds what"))
        about = "Each outline is a parameter, the filled part what that device holds of it; the same colour is the same part."
        parts.append(tag("p", about, class_="muted"))
        parts.append(mesh_pictures(report.mesh, report.parameters))
    return _section("How it was spread", *parts, id="layout")


def _layout_table(report: Report) -> Markup:
    def row(part: str, parameters: int, total: int, per_device: int, spec: str) -> list[Markup]:
        numbers = (f"{parameters:,}" if parameters else "", data_size(total), data_size(per_device))
        return [tag("td", part), *(tag("td", number, class_="number") for number in numbers), tag("td", spec)]

    rows = [tag("tr", *row(r.part, r.parameters, r.bytes_total, r.bytes_per_device, r.spec)) for r in report.layout]
    sums = [sum(getattr(r, name) for r in report.layout) for name in ("parameters", "bytes_total", "bytes_per_device")]
    heads = [("part", ""), ("parameters", "number"), ("bytes", "number"), ("a device", "number"), ("how it is split", "")]
    head = tag("thead", tag("tr", *(tag("th", name, class_=kind) for name, kind in heads)))
    foot = tag("tfoot", tag("tr", *row("in all", *sums, "")))
    return tag("div", tag("table", head, tag("tbody", *rows), foot), class_="scroll")


def _parameters(report: Report) -> Markup:
    """Every parameter, with the rule that split it."""
    if not report.parameters:
        return join()
    heads = [("parameter", ""), ("dimensions, and the mesh axis that splits each", ""), ("a device", "number"), ("by rule", "")]
    head = tag("thead", tag("tr", *(tag("th", name, class_=kind) for name, kind in heads)))
    table = tag("table", head, tag("tbody", *map(_parameter, report.parameters)), id="parameter-table")
    search = tag("input", type="search", class_="filter", data_filters="parameter-table", placeholder="filter: a path, an axis, a file")
    return _section(f"Every parameter ({len(report.parameters):,})", search, tag("div", table, class_="scroll"), id="parameters")


def _parameter(row: ParameterRow) -> Markup:
    dims = [
        tag("span", name, " ", tag("b", f"{size:,}"), *((tag("em", " / ".join(axes)),) if axes else ()), class_="dim split" if axes else "dim")
        for name, size, axes in zip(row.names, row.shape, row.splits)
    ]
    rule = [tag("code", row.rule), tag("br"), tag("span", row.place, class_="muted")] if row.rule else [tag("span", "whole: no rule", class_="muted")]
    cells = [tag("td", tag("code", row.path), tag("br"), tag("span", row.dtype, class_="muted")), tag("td", *dims)]
    return tag("tr", *cells, tag("td", data_size(row.bytes_per_device), class_="number"), tag("td", *rule))


# A line of gin: what stands before a comment (quotes may hold a #), and the comment.
_CONFIG_LINE = re.compile(r"""((?:[^#'"]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|['"])*)(#.*)?""")


def _config(report: Report) -> Markup:
    """The operative configuration; where each value came from stands beside it."""
    if not report.config:
        return join()
    lines = []
    for line in report.config.strip("\n").split("\n"):
        code, comment = _CONFIG_LINE.fullmatch(line).groups()
        comment = tag("span", comment or "", class_="muted")
        lines.append(tag("div", comment, class_="title") if not code.strip() else tag("div", tag("span", _binding(code.rstrip())), comment))
    search = tag("input", type="search", class_="filter", data_filters="config-lines", placeholder="filter: a binding, a value, a file")
    return _section("Configuration as it ran", search, tag("div", *lines, class_="config scroll", id="config-lines"), id="config")


def _binding(code: str) -> Markup:
    name, equals, value = code.partition("=")
    return join(tag("b", name), equals, value) if equals else join(code)


def _next(report: Report) -> Markup:
    if not report.next_commands:
        return join()
    items = [join(tag("p", following.purpose), tag("pre", following.command, class_="command")) for following in report.next_commands]
    return _section("What to try next", *items, id="next")


def _versions(report: Report) -> Markup:
    versions = join(*(f"{name} {version}" for name, version in report.versions.items()), between=" · ")
    return tag("footer", versions, class_="muted") if report.versions else join()
