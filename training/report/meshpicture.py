"""The picture of a mesh: for each way in which parameters are split, which part of a parameter each device holds."""

import math
from collections.abc import Mapping, Sequence

from training.quantities import data_size
from training.report.markup import Markup, tag
from training.report.record import Mesh, ParameterRow

# (logical axis, the mesh axes that split it) of each dimension that is split.
Split = tuple[tuple[str, tuple[str, ...]], ...]

_MOST_ROWS = _MOST_COLUMNS = 8
_MOST_SPLITS = 12
_LETTERS = 10
# Pixels.
_GLYPH_W, _GLYPH_H, _CELL_W, _CELL_H, _HEAD_H, _LETTER_W = 42, 30, 58, 58, 18, 7
_CARD_EDGES = 40


def by_split(parameters: Sequence[ParameterRow]) -> dict[Split, list[ParameterRow]]:
    """The parameters of each way to be split, the way with the most elements first."""
    groups: dict[Split, list[ParameterRow]] = {}
    for row in parameters:
        split = tuple((name, axes) for name, axes in zip(row.names, row.splits) if axes)
        groups.setdefault(split, []).append(row)
    return dict(sorted(groups.items(), key=lambda item: -sum(math.prod(row.shape) for row in item[1])))


def shard(axes: Sequence[str], place: Mapping[str, int], sizes: Mapping[str, int]) -> tuple[int, int]:
    """(which, of how many) parts of a dimension split by `axes`, major first, the device at `place` holds."""
    which, count = 0, 1
    for axis in axes:
        which, count = which * sizes[axis] + place[axis], count * sizes[axis]
    return which, count


def mesh_pictures(mesh: Mesh, parameters: Sequence[ParameterRow]) -> Markup:
    """A card for each way in which parameters are split, twelve at most."""
    grid, groups = _Grid(mesh), by_split(parameters)
    cards = [_card(grid, split, rows) for split, rows in list(groups.items())[:_MOST_SPLITS]]
    rest = len(groups) - len(cards)
    if rest > 0:
        cards.append(tag("p", f"Ways to be split not drawn here: {rest}; the table below has them.", class_="muted"))
    return tag("div", *cards, class_="cards", style=f"--card: {grid.width + _CARD_EDGES}px")


class _Grid:
    """Where each device is drawn: the mesh's last axis across, the others down, eight by eight devices at most."""

    def __init__(self, mesh: Mesh):
        *down, self.across = [axis for axis, size in mesh.axes.items() if size > 1] or list(mesh.axes)[-1:]
        num_columns = mesh.axes[self.across]
        self.mesh = mesh
        self.rows = range(min(len(mesh.devices) // num_columns, _MOST_ROWS))
        self.columns = range(min(num_columns, _MOST_COLUMNS))
        # Of each row, the indices of its devices.
        self.indices = [[r * num_columns + c for c in self.columns] for r in self.rows]
        places = [_place(mesh, line[0]) for line in self.indices]
        self.names = [", ".join(f"{axis} {place[axis]}" for axis in down) for place in places]
        self.margin = max(_LETTER_W * len(name) for name in self.names) + 10 if down else 0
        longest = max(len(_label(mesh.devices[i])) for line in self.indices for i in line)
        self.cell_w = max(_CELL_W, _LETTER_W * longest + 14)
        self.width = self.margin + len(self.columns) * self.cell_w
        self.height = _HEAD_H + len(self.rows) * _CELL_H


def _card(grid: _Grid, split: Split, rows: Sequence[ParameterRow]) -> Markup:
    title = ", ".join(f"{name} over {' and '.join(axes)}" for name, axes in split) or "whole on every device"
    largest = max(rows, key=lambda row: math.prod(row.shape))
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    held = f"{data_size(sum(row.bytes_per_device for row in rows))} a device"
    about = tag("p", tag("code", *_breakable(largest.path)), others, tag("br"), held, class_="muted")
    return tag("div", tag("h4", title), about, _picture(grid, largest), class_="card")


def _breakable(path: str) -> list[str]:
    """The pieces of a dotted path, with a place to break the line after each dot."""
    first, *others = path.split(".")
    return [first, *(piece for name in others for piece in (".", tag("wbr"), name))]


def _picture(grid: _Grid, row: ParameterRow) -> Markup:
    """Each device as an outline of the parameter, the part it holds filled in."""
    parts = []
    for c in grid.columns:
        middle = grid.margin + (c + 0.5) * grid.cell_w
        parts.append(tag("text", f"{grid.across} {c}", x=middle, y=11, text_anchor="middle"))
    for r in grid.rows:
        top = _HEAD_H + r * _CELL_H
        parts.append(tag("text", grid.names[r], x=grid.margin - 10, y=top + _GLYPH_H / 2 + 8, text_anchor="end"))
        for c, index in enumerate(grid.indices[r]):
            parts.append(_cell(grid.mesh, row, index, grid.margin + (c + 0.5) * grid.cell_w, top))
    box = f"0 0 {grid.width} {grid.height}"
    svg = tag("svg", *parts, viewBox=box, width=grid.width, role="img", aria_label="device grid")
    shown, devices = len(grid.rows) * len(grid.columns), len(grid.mesh.devices)
    more = tag("p", f"{shown} of {devices:,} devices", class_="muted")
    return tag("div", svg, more if shown < devices else "")


def _label(device: str) -> str:
    """A device's name, shortened to fit under its outline."""
    return device if len(device) <= _LETTERS else device[: _LETTERS - 1] + "…"


def _place(mesh: Mesh, index: int) -> dict[str, int]:
    """The coordinate on each axis of the index-th device."""
    place = {}
    for axis in reversed(mesh.axes):
        index, place[axis] = divmod(index, mesh.axes[axis])
    return place


def _cell(mesh: Mesh, row: ParameterRow, index: int, middle: float, top: float) -> Markup:
    """The outline of the parameter with the part that the index-th device holds, one colour a part."""
    place, device = _place(mesh, index), mesh.devices[index]
    held = [shard(axes, place, mesh.axes) for axes in row.splits]
    (down, downs), (across, acrosses) = _two_dimensions(held)
    part, parts = 0, 1
    for which, count in held:
        part, parts = part * count + which, parts * count
    slices = ", ".join(_slice(size, which, count) for size, (which, count) in zip(row.shape, held))
    left, width, height = middle - _GLYPH_W / 2, _GLYPH_W / acrosses, _GLYPH_H / downs
    filled = tag(
        "rect",
        x=left + across * width,
        y=top + 4 + down * height,
        # A part too small to be seen is drawn two pixels wide.
        width=max(width, 2.0),
        height=max(height, 2.0),
        rx=1.5,
        fill=f"hsl({round(200 + part * 360 / parts) % 360} 52% 52%)",
    )
    outline = tag("rect", x=left, y=top + 4, width=_GLYPH_W, height=_GLYPH_H, rx=2, class_="whole")
    label = tag("text", _label(device), x=middle, y=top + _GLYPH_H + 16, text_anchor="middle")
    return tag("g", tag("title", f"{device} holds {row.path}[{slices}]"), outline, filled, label)


def _two_dimensions(held: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], tuple[int, int]]:
    """(which, count) down and across the outline: the first two split dimensions.

    A lone one lies across if it is the parameter's last dimension.
    """
    split = [(i, part) for i, part in enumerate(held) if part[1] > 1]
    if len(split) >= 2:
        return split[0][1], split[1][1]
    if not split:
        return (0, 1), (0, 1)
    dimension, part = split[0]
    return ((0, 1), part) if dimension == len(held) - 1 else (part, (0, 1))


def _slice(size: int, which: int, count: int) -> str:
    """The part of a dimension as a slice: ':' for all of it."""
    return ":" if count == 1 else f"{which * size // count}:{(which + 1) * size // count}"
