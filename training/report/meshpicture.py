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
_GLYPH_W, _GLYPH_H, _CELL_W, _CELL_H = 42, 30, 60, 58


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
    groups = by_split(parameters)
    cards = [_card(mesh, split, rows) for split, rows in list(groups.items())[:_MOST_SPLITS]]
    rest = len(groups) - len(cards)
    if rest > 0:
        cards.append(tag("p", f"Ways to be split not drawn here: {rest}; the table below has them.", class_="muted"))
    return tag("div", *cards, class_="cards")


def _card(mesh: Mesh, split: Split, rows: Sequence[ParameterRow]) -> Markup:
    title = ", ".join(f"{name} over {' and '.join(axes)}" for name, axes in split) or "whole on every device"
    most = max(rows, key=lambda row: math.prod(row.shape))
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    about = tag("p", tag("code", *breakable(most.path)), others, tag("br"), f"{data_size(sum(row.bytes_per_device for row in rows))} a device", class_="muted")
    return tag("div", tag("h4", title), about, _grid(mesh, most), class_="card")


def breakable(path: str) -> list[str]:
    """The pieces of a dotted path, with a place to break the line after each dot."""
    first, *others = path.split(".")
    return [first, *(piece for name in others for piece in (".", tag("wbr"), name))]


def _grid(mesh: Mesh, row: ParameterRow) -> Markup:
    """Devices as a grid, the last axis across; in each an outline of the parameter with the part it holds filled in, one colour a part."""
    axes = {axis: size for axis, size in mesh.axes.items() if size > 1} or dict(list(mesh.axes.items())[-1:])
    *down, across = axes
    num_rows, num_columns = math.prod(axes[axis] for axis in down), axes[across]
    shown_rows, shown_columns = min(num_rows, _MOST_ROWS), min(num_columns, _MOST_COLUMNS)
    margin = 10 + max((7 * len(_row_name(r, down, axes)) for r in range(shown_rows)), default=0) if down else 0
    width, height = margin + shown_columns * _CELL_W, 18 + shown_rows * _CELL_H
    parts = []
    for c in range(shown_columns):
        parts.append(tag("text", f"{across} {c}", x=margin + (c + 0.5) * _CELL_W, y=11, text_anchor="middle"))
    for r in range(shown_rows):
        if down:
            parts.append(tag("text", _row_name(r, down, axes), x=margin - 10, y=18 + r * _CELL_H + _GLYPH_H / 2 + 8, text_anchor="end"))
        for c in range(shown_columns):
            place = _coordinates(r, down, axes) | {across: c} | {axis: 0 for axis, size in mesh.axes.items() if size == 1}
            parts.append(_cell(row, place, mesh, margin + c * _CELL_W, 18 + r * _CELL_H, mesh.devices[r * num_columns + c]))
    hidden = num_rows * num_columns - shown_rows * shown_columns
    more = tag("p", f"{shown_rows * shown_columns} of {num_rows * num_columns:,} devices.", class_="muted") if hidden else ""
    return tag("div", tag("svg", *parts, viewBox=f"0 0 {width} {height}", width=width, role="img", aria_label="device grid", class_="mesh"), more)


def _coordinates(index: int, axes: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """The place of the index-th (row-major) device along `axes`."""
    place = {}
    for axis in reversed(axes):
        index, place[axis] = divmod(index, sizes[axis])
    return place


def _row_name(index: int, axes: Sequence[str], sizes: Mapping[str, int]) -> str:
    place = _coordinates(index, axes, sizes)
    return ", ".join(f"{axis} {place[axis]}" for axis in axes)


def _cell(row: ParameterRow, place: Mapping[str, int], mesh: Mesh, x: float, y: float, device: str) -> Markup:
    held = [shard(axes, place, mesh.axes) for axes in row.splits]
    (down, downs), (across, acrosses) = _two_dimensions(held)
    left, top = x + (_CELL_W - _GLYPH_W) / 2, y + 4
    part = 0
    for which, count in held:
        part = part * count + which
    count = math.prod(count for _, count in held)
    w, h = max(_GLYPH_W / acrosses, 2.0), max(_GLYPH_H / downs, 2.0)
    hue = round(200 + part * 360 / count) % 360
    ranges = " × ".join(_range(size, which, count) for size, (which, count) in zip(row.shape, held))
    return tag(
        "g",
        tag("title", f"{device} holds {row.path}[{ranges.replace(' × ', ', ')}]"),
        tag("rect", x=left, y=top, width=_GLYPH_W, height=_GLYPH_H, rx=2, class_="whole"),
        tag("rect", x=left + across * _GLYPH_W / acrosses, y=top + down * _GLYPH_H / downs, width=w, height=h, rx=1.5, fill=f"hsl({hue} 52% 52%)"),
        tag("text", device, x=x + _CELL_W / 2, y=y + _GLYPH_H + 16, text_anchor="middle", class_="device"),
    )


def _two_dimensions(held: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], tuple[int, int]]:
    """(which, count) down and across the outline: the first two split dimensions; a lone one lies across if it is the last dimension."""
    split = [(i, part) for i, part in enumerate(held) if part[1] > 1]
    if len(split) >= 2:
        return split[0][1], split[1][1]
    if not split:
        return (0, 1), (0, 1)
    dimension, part = split[0]
    return ((0, 1), part) if dimension == len(held) - 1 else (part, (0, 1))


def _range(size: int, which: int, count: int) -> str:
    """The part of a dimension as a slice: ':' for all of it."""
    return ":" if count == 1 else f"{which * size // count}:{(which + 1) * size // count}"
