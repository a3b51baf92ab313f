"""Line charts as inline SVG: axes, ticks, several lines, smoothed over raw, gaps where a value isn't finite."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Sequence

from training.quantities import percent, significant
from training.report.markup import Markup, join, tag
from training.report.record import Series
from training.report.series import linear_ticks, log_ticks, smoothed, thinned

# How a value is written.
Write = Callable[[float], str]

# Points a line, at most: more can't be told apart on a screen.
_POINTS = 600
_DOTS_UP_TO = 40
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 24, 12, 30


@dataclasses.dataclass(frozen=True)
class Line:
    """A named series. Its place in the chart gives its colour."""

    name: str
    points: Series


@dataclasses.dataclass(frozen=True)
class Scale:
    """A map from values to pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def figure(title: str, lines: Sequence[Line], write: Write = significant, wide: bool = False) -> Markup:
    """A chart with its title and legend; a wide one of positive values can be switched to a logarithmic scale."""
    lines = [line for line in lines if line.points]
    values = [value for line in lines for _, value in line.points if math.isfinite(value)]
    size = (1040, 330) if wide else (508, 210)
    entries = [(f"c{place}", line.name, write(line.points[-1][1])) for place, line in enumerate(lines)]
    heading = tag("figcaption", tag("b", title), legend(entries))
    if not lines:
        return tag("figure", heading, tag("p", "Nothing was recorded.", class_="muted"))
    charts = [tag("div", _svg(title, lines, write, *size, log=False), class_="linear")]
    if wide and values and min(values) > 0:
        switch = tag("label", tag("input", type="checkbox"), "logarithmic", class_="switch")
        charts = [switch, *charts, tag("div", _svg(title, lines, write, *size, log=True), class_="log")]
    return tag("figure", heading, *charts, class_="wide" if wide else "")


def legend(entries: Sequence[tuple[str, str, str]]) -> Markup:
    """Colour (a class of the style sheet), name and value of each thing drawn."""
    shown = [
        tag("span", tag("i", class_=f"swatch {color}"), name, " ", tag("span", value, class_="last"))
        for color, name, value in entries
    ]
    return tag("span", *shown, class_="legend")


def _svg(title: str, lines: Sequence[Line], write: Write, width: int, height: int, log: bool) -> Markup:
    x, y = _scales(lines, width, height, log)
    parts = [_axes(x, y, write, width, height)]
    for place, line in enumerate(lines):
        parts.append(_drawn(line, x, y, write, f"c{place}"))
    parts.append(tag("line", y1=_TOP, y2=y.start, class_="cursor"))
    hover = json.dumps([_hover(line, x, y, write) for line in lines], separators=(",", ":"))
    return tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=title, data_hover=hover)


def _drawn(line: Line, x: Scale, y: Scale, write: Write, color: str) -> Markup:
    """The line as recorded, faint under its moving average if it has one; dots if it is short; marks for its gaps."""
    recorded, average = thinned(line.points, _POINTS), thinned(smoothed(line.points), _POINTS)
    paths = [_path(recorded, x, y, f"line {color}{' raw' if average else ''}"), _path(average, x, y, f"line {color}")]
    gaps = [_gap(line.name, step, value, x(step), y.start) for step, value in recorded if not math.isfinite(value)]
    return join(*paths, _dots(line.name, recorded, x, y, write, color), *gaps)


def _hover(line: Line, x: Scale, y: Scale, write: Write) -> dict:
    """What page.js shows under the pointer: for each point its pixel across, its step and its value."""
    points = [[round(x(step), 1), f"{step:,}", write(value)] for step, value in thinned(line.points, _POINTS)]
    return {"name": line.name, "points": points}


def _scales(lines: Sequence[Line], width: int, height: int, log: bool) -> tuple[Scale, Scale]:
    """Scales that hold every finite point, with room above and below; a lone step or value gets room around it."""
    steps = [step for line in lines for step, _ in line.points]
    values = [value for line in lines for _, value in line.points if math.isfinite(value)] or [0.0, 1.0]
    left, right = min(steps), max(steps)
    if left == right:
        left, right = left - 1, right + 1
    low, high = min(values), max(values)
    if low == high:
        low, high = (low * 0.9, high * 1.1) if low > 0 else (low - 1, high + 1)
    if log:
        room = (high / low) ** 0.04
        low, high = low / room, high * room
    else:
        # Room below must not make a quantity that is never negative look as if it could be.
        room = (high - low) * 0.06
        low, high = (max(low - room, 0.0) if low >= 0 else low - room), high + room
    return Scale(left, right, _LEFT, width - _RIGHT), Scale(low, high, height - _BOTTOM, _TOP, log)


def _axes(x: Scale, y: Scale, write: Write, width: int, height: int) -> Markup:
    bottom = height - _BOTTOM
    ticks = (log_ticks if y.log else linear_ticks)(y.low, y.high, height // 45)
    labels = tick_labels(ticks, as_percent=write is percent)
    parts = []
    for tick, label in zip(ticks, labels):
        parts.append(tag("line", x1=_LEFT, x2=width - _RIGHT, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(tag("text", label, x=_LEFT - 8, y=y(tick) + 4, text_anchor="end"))
    parts.append(tag("line", x1=_LEFT, x2=width - _RIGHT, y1=bottom, y2=bottom, class_="axis"))
    for tick in sorted({round(t) for t in linear_ticks(x.low, x.high, width // 110)}):
        parts.append(tag("line", x1=x(tick), x2=x(tick), y1=bottom, y2=bottom + 4, class_="axis"))
        parts.append(tag("text", f"{tick:,}", x=x(tick), y=bottom + 19, text_anchor="middle"))
    return tag("g", *parts, class_="axes")


def tick_labels(ticks: Sequence[float], as_percent: bool = False) -> list[str]:
    """The ticks, of which there is at least one, with as many places as tell neighbours apart."""
    scale, unit = (100, "%") if as_percent else (1, "")
    apart = min((b - a for a, b in itertools.pairwise(ticks)), default=abs(ticks[0]) or 1.0) * scale
    largest = max(map(abs, ticks)) * scale
    places = max(-_exponent(apart), 0)
    if 1e-3 <= largest < 1e7:
        return [f"{tick * scale:,.{places}f}{unit}" for tick in ticks]
    digits = max(_exponent(largest) - _exponent(apart), 0) if largest else 0
    return [f"{tick * scale:.{digits}e}{unit}" if tick else "0" for tick in ticks]


def _exponent(x: float) -> int:
    """The power of ten of the first digit of x > 0, which may be a hair below a round number."""
    return math.floor(math.log10(x) + 1e-9)


def _path(points: Series, x: Scale, y: Scale, class_: str) -> Markup:
    """One path; it is interrupted where a value isn't finite."""
    commands, down = [], False
    for step, value in points:
        if math.isfinite(value):
            commands.append(f"{'L' if down else 'M'}{x(step):.1f} {y(value):.1f}")
        down = math.isfinite(value)
    return tag("path", d="".join(commands), class_=class_) if commands else join()


def _dots(name: str, points: Series, x: Scale, y: Scale, write: Write, color: str) -> Markup:
    """A dot for each point of a short series, and for each that has no neighbour to be joined to."""
    finite = [False, *(math.isfinite(value) for _, value in points), False]
    dots = []
    for (step, value), (before, here, after) in zip(points, zip(finite, finite[1:], finite[2:])):
        if here and (len(points) <= _DOTS_UP_TO or not (before or after)):
            label = tag("title", f"{name}: {write(value)} at step {step:,}")
            dots.append(tag("circle", label, cx=x(step), cy=y(value), r=3, class_=f"dot {color}"))
    return join(*dots)


def _gap(name: str, step: int, value: float, at: float, bottom: float) -> Markup:
    """A mark on the axis where a value is NaN or infinite."""
    label = tag("title", f"{name}: {value} at step {step:,}")
    return tag("path", label, d=f"M{at:.1f} {bottom - 9:.1f}l4 8h-8z", class_="gap")
