"""Curves in text: a one-line sparkline, and a small plot in braille dots."""

import itertools
import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
# The bit of each dot of a braille cell, [row from the top][column].
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def sparkline(values: Sequence[float], width: int) -> str:
    """At most `width` blocks, from ▁ for the least to █ for the greatest.

    Each is the mean of its share of `values`, or '×' where one of them isn't finite.
    """
    if len(values) > width:
        bounds = [i * len(values) // width for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(bounds)]
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    span = high - low or 1.0

    def block(value: float) -> str:
        return _BLOCKS[round((value - low) / span * 7)] if math.isfinite(value) else "×"

    return "".join(map(block, values))


def braille_plot(points: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """`height` lines of `width` characters: the points (x, y), x increasing, joined; a y that isn't finite is a gap.

    The first point lies in the first column of dots, the last in the last; the greatest y in the top row, the least in
    the bottom row.
    """
    columns, rows = 2 * width, 4 * height
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if not finite:
        return [" " * width] * height
    (left, right), (low, high) = (points[0][0], points[-1][0]), (min(y for _, y in finite), max(y for _, y in finite))

    def dot(x: float, y: float) -> tuple[int, int]:
        column = (x - left) / ((right - left) or 1) * (columns - 1)
        row = (high - y) / ((high - low) or 1) * (rows - 1)
        return round(column), round(row)

    cells = [[0] * width for _ in range(height)]
    previous = None
    for x, y in points:
        current = dot(x, y) if math.isfinite(y) else None
        if current is not None:
            for column, row in _line(previous or current, current):
                cells[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
        previous = current
    return ["".join(chr(0x2800 + bits) if bits else " " for bits in line) for line in cells]


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots of a straight line, ends included."""
    (x0, y0), (x1, y1) = start, end
    count = max(abs(x1 - x0), abs(y1 - y0), 1)
    return [(round(x0 + (x1 - x0) * i / count), round(y0 + (y1 - y0) * i / count)) for i in range(count + 1)]
