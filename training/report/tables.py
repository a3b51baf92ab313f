"""The tables of the page: the layout by part, every parameter, the configuration line by line."""

import re
from collections.abc import Iterable, Sequence

from training.quantities import data_size
from training.report.markup import Markup, join, tag
from training.report.record import LayoutRow, ParameterRow

# A line of gin: what stands before a comment (quotes may hold a #), and the comment.
_CONFIG_LINE = re.compile(r"""((?:[^#'"]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|['"])*)(#.*)?""")


def layout_table(parts: Sequence[LayoutRow]) -> Markup:
    """A row for each part, and their sum."""

    def row(part: str, parameters: int, bytes_total: int, bytes_per_device: int, spec: str) -> Markup:
        numbers = (f"{parameters:,}" if parameters else "", data_size(bytes_total), data_size(bytes_per_device))
        return tag("tr", tag("td", part), *map(_number, numbers), tag("td", spec))

    heads = tag("th", "part"), *map(_number_head, ("parameters", "bytes", "a device")), tag("th", "how it is split")
    rows = [row(p.part, p.parameters, p.bytes_total, p.bytes_per_device, p.spec) for p in parts]
    sums = [sum(getattr(p, name) for p in parts) for name in ("parameters", "bytes_total", "bytes_per_device")]
    return _table(heads, rows, tag("tfoot", row("in all", *sums, "")))


def parameter_table(parameters: Sequence[ParameterRow]) -> Markup:
    """A row for each parameter, with the rule that split it, and a box to search them."""
    dimensions = "dimensions, and the mesh axis that splits each"
    heads = tag("th", "parameter"), tag("th", dimensions), _number_head("a device"), tag("th", "by rule")
    table = _table(heads, map(_parameter, parameters), id="parameter-table")
    return join(_search("parameter-table", "filter: a path, an axis, a file"), table)


def configuration(text: str) -> Markup:
    """A line for each binding, where it came from at its right, and a box to search them."""
    lines = [_config_line(line) for line in text.strip("\n").split("\n")]
    listing = tag("div", *lines, class_="config scroll", id="config-lines")
    return join(_search("config-lines", "filter: a binding, a value, a file"), listing)


def _parameter(row: ParameterRow) -> Markup:
    path = tag("td", tag("code", row.path), tag("br"), tag("span", row.dtype, class_="muted"))
    dimensions = tag("td", *map(_dimension, row.names, row.shape, row.splits))
    rule = join(tag("code", row.rule), tag("br"), tag("span", row.place, class_="muted"))
    rule = rule if row.rule else tag("span", "whole: no rule", class_="muted")
    return tag("tr", path, dimensions, _number(data_size(row.bytes_per_device)), tag("td", rule))


def _dimension(name: str, size: int, axes: Sequence[str]) -> Markup:
    split = tag("em", " / ".join(axes)) if axes else ""
    return tag("span", name, " ", tag("b", f"{size:,}"), split, class_="dim")


def _config_line(line: str) -> Markup:
    code, comment = _CONFIG_LINE.fullmatch(line).groups()
    comment = tag("span", comment or "", class_="muted")
    if not code.strip():
        return tag("div", comment, class_="title")
    name, equals, value = code.rstrip().partition("=")
    return tag("div", tag("span", tag("b", name) if equals else name, equals, value), comment)


def _table(heads: Iterable[str], rows: Iterable[str], foot: str = "", **attributes: str) -> Markup:
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), foot, **attributes)
    return tag("div", table, class_="scroll")


def _number(text: str) -> Markup:
    return tag("td", text, class_="number")


def _number_head(text: str) -> Markup:
    return tag("th", text, class_="number")


def _search(target: str, hint: str) -> Markup:
    """A box that hides what doesn't match among the rows of the element with that id."""
    return tag("input", type="search", class_="filter", data_filters=target, placeholder=hint, aria_label=hint)
