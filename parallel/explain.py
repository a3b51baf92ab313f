"""What goes where and why: every parameter, optimizer slot, batch input and named activation, as rows, as JSON and as a
page for the terminal.
"""

import dataclasses
import math
from collections.abc import Iterable

import rich.console
from rich import box
from rich.table import Table
from rich.text import Text

from parallel.layout import Layout, Resolved


@dataclasses.dataclass(frozen=True)
class Row:
    """One tensor. kind: 'parameter', 'slot', 'input' or 'activation'; spec: mesh axes of each dimension; why: the rules
    that decided.
    """

    kind: str
    path: str
    shape: tuple[int, ...]
    dtype: str
    names: tuple[str | None, ...]
    spec: tuple
    why: tuple[str, ...]
    bytes: int
    bytes_per_device: int
    replicated_because: str

    @property
    def part(self) -> str:
        """The first two steps of the path that it lies in: 'encoder.blocks', 'head'. An optimizer's counts lie in none."""
        if self.kind == "slot" and ":" not in self.path:
            return "counts"
        return ".".join(self.path.rpartition(":")[2].split(".")[:-1][:2]) or self.path


@dataclasses.dataclass(frozen=True)
class Explanation:
    """All rows of a program, and the mesh they were resolved for."""

    mesh: dict[str, int]
    rows: tuple[Row, ...]

    def of(self, kind: str) -> list[Row]:
        """The rows of one kind."""
        return [row for row in self.rows if row.kind == kind]

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters."""
        return sum(math.prod(row.shape) for row in self.of("parameter"))

    def parts(self, kind: str) -> dict[str, tuple[int, int, int]]:
        """By part: elements, bytes, bytes a device."""
        totals: dict[str, tuple[int, int, int]] = {}
        for row in self.of(kind):
            n, whole, each = totals.get(row.part, (0, 0, 0))
            totals[row.part] = (n + math.prod(row.shape), whole + row.bytes, each + row.bytes_per_device)
        return totals

    def to_json(self) -> dict:
        """Plain values. 'totals' by kind: elements, bytes, bytes_per_device."""
        kinds = ("parameter", "slot", "input", "activation")
        totals = {
            kind: {
                "elements": sum(math.prod(r.shape) for r in self.of(kind)),
                "bytes": sum(r.bytes for r in self.of(kind)),
                "bytes_per_device": sum(r.bytes_per_device for r in self.of(kind)),
            }
            for kind in kinds
        }
        return {
            "mesh": self.mesh,
            "devices": math.prod(self.mesh.values()),
            "totals": totals,
            "tensors": [dataclasses.asdict(r) for r in self.rows],
        }


def explanation(layout: Layout, **kinds: Iterable[Resolved]) -> Explanation:
    """Rows of what was resolved: parameters=..., slots=..., inputs=..., activations=...."""
    singular = {"parameters": "parameter", "slots": "slot", "inputs": "input", "activations": "activation"}
    rows = [_row(singular[kind], resolved) for kind, all_resolved in kinds.items() for resolved in all_resolved]
    return Explanation(dict(layout.sizes), tuple(dict.fromkeys(rows)))


def _row(kind: str, resolved: Resolved) -> Row:
    fired = dict.fromkeys(
        f"{rule}, which does not divide: whole" if rule in resolved.fallbacks else str(rule)
        for rule in (*resolved.rules, resolved.shared)
        if rule is not None
    )
    because = ""
    if resolved.ways == 1 and resolved.shape:
        missing = [name for name, rule in zip(resolved.names, resolved.rules, strict=True) if name and rule is None]
        because = "; ".join(
            [f"{rule.name!r} does not divide" for rule in resolved.fallbacks]
            + [f"{rule.name!r}: None" for rule in resolved.rules if rule and not rule.mesh_axes]
            + ([f"no rule for {', '.join(map(repr, dict.fromkeys(missing)))}"] if missing else [])
        )
    return Row(
        kind,
        resolved.path,
        resolved.shape,
        resolved.dtype.name,
        resolved.names,
        tuple(resolved.spec),
        tuple(fired),
        resolved.bytes,
        resolved.bytes_per_device,
        because,
    )


def render(explained: Explanation, console: rich.console.Console) -> None:
    """The page for the terminal: one table a kind, totals by part, and what every device holds whole and why."""
    axes = " x ".join(f"{name} {size}" for name, size in explained.mesh.items())
    console.print(Text.assemble("mesh  ", (axes, "bold"), f"  = {math.prod(explained.mesh.values()):,} devices"))
    titles = {"parameter": "Parameters", "slot": "Optimizer state", "input": "Batch", "activation": "Named activations"}
    for kind, title in titles.items():
        rows = explained.of(kind)
        if rows:
            console.print(_tensor_table(title, rows))
    console.print(_totals(explained))
    whole = [row for row in explained.rows if row.replicated_because and row.kind in ("parameter", "slot")]
    if whole:
        each = sum(row.bytes for row in whole)
        console.print(Text(f"Whole on every device ({each:,} bytes in all):", style="bold"))
        reasons: dict[str, list[str]] = {}
        for row in whole:
            reasons.setdefault(row.replicated_because, []).append(row.path)
        for reason, paths in reasons.items():
            shown = ", ".join(paths[:4]) + (f" and {len(paths) - 4} more" if len(paths) > 4 else "")
            console.print(Text.assemble(f"  {reason}: ", (shown, "dim")))
    console.print(Text.assemble("total parameters  ", (f"{explained.num_parameters:,}", "bold")))


def _tensor_table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold")
    for heading, options in {
        "tensor": {"overflow": "fold"},
        "dimensions": {"overflow": "fold"},
        "dtype": {},
        "a device": {"justify": "right"},
        "rules": {"overflow": "fold", "style": "dim"},
    }.items():
        table.add_column(heading, **options)
    for row in rows:
        padded = (*row.spec, *(None for _ in row.shape[len(row.spec) :]))
        dims = " ".join(_dimension(*dim) for dim in zip(row.names, row.shape, padded, strict=True))
        table.add_row(row.path, dims, row.dtype, f"{row.bytes_per_device:,}", "\n".join(row.why))
    return table


def _dimension(name: str | None, size: int, axes) -> str:
    """'embed 1024/data': the dimension's name, size, and the mesh axes that split it."""
    split = "" if axes is None else "/" + (axes if isinstance(axes, str) else "+".join(axes))
    return f"{name or '-'} {size}{split}"


def _totals(explained: Explanation) -> Table:
    table = Table(
        title="By part", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold", show_footer=True
    )
    parts, slots = explained.parts("parameter"), explained.parts("slot")
    table.add_column("part", footer="total")
    totals = [
        sum(p[0] for p in parts.values()),
        *(sum(p[i] for p in group.values()) for group in (parts, slots) for i in (1, 2)),
    ]
    for heading, total in zip(("parameters", "bytes", "a device", "optimizer bytes", "a device"), totals, strict=True):
        table.add_column(heading, justify="right", footer=f"{total:,}")
    for part in dict.fromkeys([*parts, *slots]):
        elements, *weights = parts.get(part, (0, 0, 0))
        table.add_row(part, f"{elements:,}", *(f"{n:,}" for n in (*weights, *slots.get(part, (0, 0, 0))[1:])))
    return table
