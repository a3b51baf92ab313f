"""Reads a compiled program: its computations, how often each runs, and every collective with its bytes and groups.

The text is what `compiled.as_text()` gives for TPU, GPU and CPU. Its grammar is XLA's HLO text; what is looked for here was
read off programs compiled with jax 0.10 and 0.12.
"""

import collections
import dataclasses
import functools
import math
import re

import numpy as np

_BYTES = {"pred": 1, "s4": 0.5, "u4": 0.5, "s8": 1, "u8": 1, "f8e4m3fn": 1, "f8e5m2": 1, "bf16": 2, "f16": 2, "s16": 2}
_BYTES |= {"u16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8, "c64": 8, "c128": 16}
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")
_HEADER = re.compile(r"^(?:ENTRY )?%?(?P<name>[\w.-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?(?P<name>[\w.-]+) = (?P<shape>\(.*?\)|\S+) (?P<opcode>[\w-]+)\((?P<rest>.*)$"
)
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|branch_computations|called_computations)=(\{[^}]*\}|%?[\w.-]+)")
_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")
# A TPU's reduce-scatter is a fusion of this name, around an all-reduce.
_FUSED_REDUCE_SCATTER = "all-reduce-scatter"


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line. shape: the text of its result's shape; rest: operands and attributes, as text."""

    name: str
    shape: str
    opcode: str
    rest: str

    @property
    def arrays(self) -> list[tuple[str, tuple[int, ...]]]:
        """(element type, dimensions) of each array of the result."""
        return [(kind, _dims(dims)) for kind, dims in _ARRAY.findall(self.shape) if kind in _BYTES]

    @property
    def operands(self) -> list[str]:
        """Names of the operands."""
        return re.findall(r"%([\w.-]+)", self.rest[: _closing(self.rest)])

    @property
    def called(self) -> list[str]:
        """Names of the computations that it calls."""
        return [name for group in _CALLED.findall(self.rest) for name in re.findall(r"%?([\w.-]+)", group)]

    def attribute(self, name: str) -> str | None:
        """The text of an attribute, up to the comma that ends it."""
        found = re.search(rf"\b{name}=", self.rest)
        if found is None:
            return None
        text, depth = self.rest[found.end() :], 0
        for end, letter in enumerate(text):
            depth += (letter in "{[(") - (letter in "}])")
            if depth < 0 or (depth == 0 and letter == "," and not text[end + 1 :].startswith(" {")):
                return text[:end]
        return text


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective of the program.

    kind: 'all-gather', ... arrays: of the result, on one device (a reduce-scatter's: before scattering). groups: the
    devices that exchange with each other, by their place in the mesh, row-major; a permutation's are the cycles' members.
    times: how often it runs a step. source: the operation in the user's program that it came from.
    """

    kind: str
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    groups: tuple[tuple[int, ...], ...]
    times: int
    source: str

    @property
    def bytes(self) -> int:
        """Of the arrays, in all."""
        return round(sum(_BYTES[kind] * math.prod(dims) for kind, dims in self.arrays))

    def axes(self, mesh: dict[str, int]) -> tuple[str, ...]:
        """The mesh axes along which the devices of a group differ."""
        sizes = tuple(mesh.values())
        crossed = np.zeros(len(sizes), bool)
        for group in self.groups:
            places = np.stack(np.unravel_index(np.array(group), sizes), -1)
            crossed |= (places != places[0]).any(0)
        return tuple(name for name, crosses in zip(mesh, crossed, strict=True) if crosses)


class Program:
    """A compiled program. computations: by name, the instructions of each; the entry's name is `entry`."""

    def __init__(self, text: str):
        self.computations: dict[str, list[Instruction]] = {}
        self.entry = ""
        current: list[Instruction] | None = None
        for line in text.splitlines():
            header = None if line.startswith(" ") else _HEADER.match(line)
            if header is not None:
                current = self.computations[header["name"]] = []
                if line.startswith("ENTRY"):
                    self.entry = header["name"]
            elif current is not None and (found := _INSTRUCTION.match(line)):
                current.append(Instruction(found["name"], found["shape"], found["opcode"], found["rest"]))
        assert self.entry, "no entry computation: this is not the text of a compiled program"

    @functools.cached_property
    def times(self) -> dict[str, int]:
        """How often each computation runs a step: loops by their trip counts, the rest as often as what calls it."""
        order, seen = [], set()

        def visit(name: str) -> None:
            if name not in seen and name in self.computations:
                seen.add(name)
                for instruction in self.computations[name]:
                    for called in instruction.called:
                        visit(called)
                order.append(name)

        visit(self.entry)
        times: collections.Counter = collections.Counter({self.entry: 1})
        for name in reversed(order):
            for instruction in self.computations[name]:
                trips = self.trip_count(instruction) if instruction.opcode == "while" else 1
                for called in instruction.called:
                    times[called] += times[name] * trips
        return dict(times)

    def trip_count(self, loop: Instruction) -> int:
        """Of a `while` over a counter that starts at zero and goes up by one, as every scan is."""
        known = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.rest)
        if known is not None:
            return int(known[1])
        condition = self.computations[loop.attribute("condition").removeprefix("%")]
        constants = [
            int(i.rest.split(")")[0]) for i in condition if i.opcode == "constant" and re.match(r"-?\d+\)", i.rest)
        ]
        assert len(constants) == 1, f"{loop.name}: no trip count in its condition"
        return constants[0]

    @functools.cached_property
    def collectives(self) -> list[Collective]:
        """Every collective, each once: what an asynchronous one starts, steps through and ends with is one."""
        found: dict[tuple, Collective] = {}
        for name, times in self.times.items():
            for i in self.computations.get(name, ()):
                opcode = i.opcode.removesuffix("-start")
                if opcode not in _KINDS:
                    continue
                fused = name.startswith(_FUSED_REDUCE_SCATTER)
                kind = "reduce-scatter" if fused else opcode
                arrays = i.arrays
                # A start's result holds its operand too, and the counters of the exchange.
                if i.opcode.endswith("-start"):
                    arrays = [array for array in arrays if array[1]][-1:] if opcode != "all-reduce" else arrays
                groups = _permuted(i) if opcode == "collective-permute" else _groups(i)
                op_name = re.search(r'op_name="([^"]*)"', i.rest)
                collective = Collective(kind, tuple(arrays), groups, times, op_name[1] if op_name else "")
                key = (name, i.name) if fused else (kind, i.attribute("channel_id") or i.name, collective.bytes)
                # Of the pieces of one asynchronous collective the one that runs oftenest is the whole of it.
                if key not in found or found[key].times < times:
                    found[key] = collective
        return list(found.values())


def _dims(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",") if n)


def _closing(text: str) -> int:
    """Where the parenthesis that is open at the start of `text` closes."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    return len(text)


_MESH = re.compile(
    r"mesh\[(?P<sizes>[^\]]*)\](?:, device_ids=\((?:\[(?P<source>[\d,]+)\](?:T\((?P<order>[\d,]+)\))?|(?P<ids>[\d,]+))\))?"
    r" \{(?P<named>[^}]*)\}"
)


def _groups(instruction: Instruction) -> tuple[tuple[int, ...], ...]:
    """replica_groups in each of its forms: {{0,1},{2,3}}, [2,2]<=[4], [2,2]<=[2,2]T(1,0), mesh['a'=2,'b'=2] {'a'}."""
    found = re.search(r"\breplica_groups=", instruction.rest)
    if found is None:
        return ()
    text = instruction.rest[found.end() :]
    if text.startswith("mesh"):
        return _mesh_groups(_MESH.match(text))
    if text.startswith("["):
        shape, source, order = re.match(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text).groups()
        return tuple(map(tuple, _iota(source, order).reshape(_dims(shape)).tolist()))
    return tuple(_dims(group) for group in re.findall(r"\{([\d,]+)\}", text[: _closing(text[1:]) + 1]))


def _iota(source: str, order: str | None) -> np.ndarray:
    """0, 1, ... in the shape `source`, its dimensions in `order`."""
    ids = np.arange(math.prod(_dims(source))).reshape(_dims(source))
    return ids.transpose(_dims(order)) if order else ids


def _mesh_groups(found: re.Match) -> tuple[tuple[int, ...], ...]:
    """The groups of mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}: devices that differ in the axes named at the end.

    A part of an axis, 'b':(1)2, is the factor 2 of its size that follows a factor 1. Without device_ids they are counted up.
    """
    sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", found["sizes"])}
    if found["ids"]:
        ids = np.array(_dims(found["ids"]))
    else:
        ids = _iota(found["source"] or str(math.prod(sizes.values())), found["order"])
    parts = {name: (int(b), int(p)) for name, b, p in re.findall(r"'(\w+)':\((\d+)\)(\d+)", found["named"])}
    whole = set(re.findall(r"'(\w+)'(?!:)", found["named"]))
    dims, inside = [], []
    for name, size in sizes.items():
        before, part = parts.get(name, (1, size))
        dims += [before, part, size // before // part]
        inside += [False, name in parts or name in whole, False]
    order = [d for d, i in enumerate(inside) if not i] + [d for d, i in enumerate(inside) if i]
    group = math.prod(dims[d] for d, i in enumerate(inside) if i)
    return tuple(map(tuple, ids.reshape(dims).transpose(order).reshape(-1, group).tolist()))


def _permuted(instruction: Instruction) -> tuple[tuple[int, ...], ...]:
    """(from, to) of each pair of a collective-permute."""
    return tuple(
        _dims(pair) for pair in re.findall(r"\{([\d,]+)\}", instruction.attribute("source_target_pairs") or "")
    )
