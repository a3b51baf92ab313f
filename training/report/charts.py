"""Line charts as inline SVG: axes, ticks, several lines, smoothed over raw, gaps where a value isn't finite."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence

from training.quantities import percent, significant
from training.report.markup import Markup, join, tag
from training.report.record import Series
from training.report.series import linear_ticks, log_ticks, smoothed, thinned

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
        low, high, value = (math.log(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def figure(title: str, lines: Sequence[Line], write: Callable[[float], str] = significant, wide: bool = False) -> Markup:
    """A chart with its title and legend; a wide one of positive values can be switched to a logarithmic scale."""
    lines = [line for line in lines if line.points]
    values = [value for line in lines for _, value in line.points if math.isfinite(value)]
    width, height = (1040, 330) if wide else (508, 210)
    heading = tag("figcaption", tag("b", title), _legend(lines, write))
    if not lines:
        return tag("figure", heading, tag("p", "Nothing was recorded.", class_="muted"))
    charts = [tag("div", _svg(title, lines, write, width, height, log=False), class_="linear")]
    if wide and values and min(values) > 0:
        switch = tag("label", tag("input", type="checkbox", class_="log-switch"), "logarithmic", class_="switch")
        charts = [switch, *charts, tag("div", _svg(title, lines, write, width, height, log=True), class_="log")]
    return tag("figure", heading, *charts, class_="wide" if wide else "")


def _legend(lines: Sequence[Line], write: Callable[[float], str]) -> Markup:
    entries = [
        tag("span", tag("i", class_=f"swatch c{place}"), line.name, " ", tag("span", write(line.points[-1][1]), class_="last"))
        for place, line in enumerate(lines)
    ]
    return tag("span", *entries, class_="legend")


def _svg(title: str, lines: Sequence[Line], write: Callable[[float], str], width: int, height: int, log: bool) -> Markup:
    x, y = _scales(lines, width, height, log)
    bottom = height - _BOTTOM
    parts = [_axes(x, y, write, width, height)]
    hover = []
    for place, line in enumerate(lines):
        raw, mean = thinned(line.points, _POINTS), thinned(smoothed(line.points), _POINTS)
        parts.append(_path(raw, x, y, f"line c{place}{' raw' if mean else ''}"))
        if mean:
            parts.append(_path(mean, x, y, f"line c{place}"))
        parts.append(_dots(line, raw, x, y, write, place))
        parts.extend(_gap_mark(line.name, step, value, x(step), bottom) for step, value in raw if not math.isfinite(value))
        points = [[round(x(s), 1), round(y(v), 1) if math.isfinite(v) else bottom, f"{s:,}", write(v)] for s, v in raw]
        hover.append({"name": line.name, "points": points})
    cursor = tag("g", tag("line", y1=_TOP, y2=bottom, class_="cursor"), class_="hover")
    return tag(
        "svg", *parts, cursor, viewBox=f"0 0 {width} {height}", role="img", aria_label=title, data_hover=json.dumps(hover, separators=(",", ":"))
    )


def _scales(lines: Sequence[Line], width: int, height: int, log: bool) -> tuple[Scale, Scale]:
    """Scales that hold every finite point, with room above and below; a single step or a single value gets room around it."""
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


def _axes(x: Scale, y: Scale, write: Callable[[float], str], width: int, height: int) -> Markup:
    bottom = height - _BOTTOM
    ticks = (log_ticks if y.log else linear_ticks)(y.low, y.high, height // 45)
    labels = _tick_labels(ticks, as_percent=write is percent)
    parts = []
    for tick, label in zip(ticks, labels):
        parts.append(tag("line", x1=_LEFT, x2=width - _RIGHT, y1=y(tick), y2=y(tick), class_="grid"))
        parts.append(tag("text", label, x=_LEFT - 8, y=y(tick) + 4, text_anchor="end"))
    parts.append(tag("line", x1=_LEFT, x2=width - _RIGHT, y1=bottom, y2=bottom, class_="axis"))
    for tick in sorted({round(t) for t in linear_ticks(x.low, x.high, width // 110)}):
        parts.append(tag("line", x1=x(tick), x2=x(tick), y1=bottom, y2=bottom + 4, class_="axis"))
        parts.append(tag("text", f"{tick:,}", x=x(tick), y=bottom + 19, text_anchor="middle"))
    return tag("g", *parts, class_="axes")


def _tick_labels(ticks: Sequence[float], as_percent: bool) -> list[str]:
    """The ticks with as many places as tell neighbours apart."""
    scale, unit = (100, "%") if as_percent else (1, "")
    apart = min((b - a for a, b in zip(ticks, ticks[1:])), default=abs(ticks[0]) if ticks and ticks[0] else 1) * scale
    largest = max(map(abs, ticks), default=1) * scale
    if largest >= 1e7 or largest < 1e-3:
        return [f"{tick * scale:.0e}" if tick else "0" for tick in ticks]
    places = max(0, -math.floor(math.log10(apart) + 1e-9))
    return [f"{tick * scale:,.{places}f}{unit}" for tick in ticks]


def _path(points: Series, x: Scale, y: Scale, class_: str) -> Markup:
    """One path; it is interrupted where a value isn't finite."""
    commands, down = [], False
    for step, value in points:
        if math.isfinite(value):
            commands.append(f"{'L' if down else 'M'}{x(step):.1f} {y(value):.1f}")
        down = math.isfinite(value)
    return tag("path", d="".join(commands), class_=class_) if commands else join()


def _dots(line: Line, points: Series, x: Scale, y: Scale, write: Callable[[float], str], place: int) -> Markup:
    """A dot for each point of a short series, and for each that has no neighbour to be joined to."""
    finite = [False, *(math.isfinite(value) for _, value in points), False]
    dots = []
    for i, (step, value) in enumerate(points):
        alone = not finite[i] and not finite[i + 2]
        if finite[i + 1] and (len(points) <= _DOTS_UP_TO or alone):
            label = tag("title", f"{line.name}: {write(value)} at step {step:,}")
            dots.append(tag("circle", label, cx=x(step), cy=y(value), r=3, class_=f"dot c{place}"))
    return join(*dots)


def _gap_mark(name: str, step: int, value: float, at: float, bottom: float) -> Markup:
    """A mark on the axis where a value is NaN or infinite."""
    label = tag("title", f"{name}: {value} at step {step:,}")
    return tag("path", label, d=f"M{at:.1f} {bottom - 9:.1f}l4 8h-8z", class_="gap")
