"""How a model, or a named part of it, is spread: its rules, and the short forms that go beyond rules."""

import dataclasses
from collections.abc import Callable, Iterator

from mistake import Mistake
from parallel.context import ContextParallel
from parallel.pipeline import Pipeline
from parallel.rules import Rule, Rules
from parallel.zero import Zero

Origin = Callable[[str, str], str]
Tables = dict[str, dict[str, Rule]]


@dataclasses.dataclass(frozen=True)
class Modes:
    """What a gin file says of one part (its scope), or of the whole model (no scope)."""

    rules: Rules
    zero: Zero = dataclasses.field(default_factory=Zero)
    pipeline: Pipeline = dataclasses.field(default_factory=Pipeline)
    context: ContextParallel = dataclasses.field(default_factory=ContextParallel)


# What setup constructs for each scope, by the field of Modes that it becomes; each is a gin configurable of that name.
CONFIGURABLES = {"rules": Rules, "zero": Zero, "pipeline": Pipeline, "context": ContextParallel}


@dataclasses.dataclass(frozen=True)
class PartModes:
    """The same, checked against a mesh. tables: by kind of tensor, the rule of each logical name that has one."""

    name: str
    tables: Tables
    zero: Zero
    pipeline: Pipeline
    context: ContextParallel


class Parts:
    """The modes of the whole model and of its parts, found by the path of a tensor.

    met: names of the parts that some path lay in.
    """

    def __init__(self, modes: dict[str, Modes], sizes: dict[str, int], origin: Origin):
        self.met: set[str] = set()
        self._parts: dict[str, PartModes] = {}
        whole = _tables(modes[""], sizes, origin, "")
        for scope, own in modes.items():
            own.zero.check(sizes)
            own.pipeline.check(sizes)
            tables = _tables(own, sizes, origin, scope)
            # What a part does not say itself it takes from the whole model: the same rules, at the same place.
            same = {kind for kind, table in own.rules.tables.items() if table == modes[""].rules.tables[kind]}
            if own.pipeline != modes[""].pipeline:
                same -= {"weights"}
            tables |= {kind: whole[kind] for kind in same}
            tables["optimizer"] = tables["weights"] | tables["optimizer"]
            tables["gradients"] = tables["weights"]
            name = scope.replace("/", ".")
            self._parts[name] = PartModes(name, tables, own.zero, own.pipeline, own.context)

    def __iter__(self) -> Iterator[PartModes]:
        return iter(self._parts.values())

    def of(self, path: str) -> PartModes:
        """The modes of the deepest part that `path` lies in, the longer name of two that end at the same depth."""
        path = path.rpartition(":")[2]  # An optimizer slot's path ends in its parameter's.
        inside = [name for name in self._parts if name and f".{name}." in f".{path}."]
        self.met.update(inside)
        depth = lambda name: (f".{path}.".rindex(f".{name}.") + len(name), len(name))
        return self._parts[max(inside, key=depth, default="")]

    def unmet(self) -> list[str]:
        """Names of the parts that no path lay in."""
        return [name for name in self._parts if name and name not in self.met]


def _tables(modes: Modes, sizes: dict[str, int], origin: Origin, scope: str) -> Tables:
    """The rules' tables, with the one that a pipeline adds: layers lie on the axis of its stages."""
    tables = modes.rules.compile(sizes, origin, scope)
    axis = modes.pipeline.axis
    if modes.pipeline.schedule is None:
        return tables
    written = tables["weights"].get("layers")
    if written is not None and written.mesh_axes != (axis,):
        raise Mistake(
            f"{written.binding}: 'layers' -> {written.mesh_axes}, and pipeline.axis puts layers on {axis!r}. "
            "Leave the rule out: the pipeline adds it."
        )
    binding = f"{scope}/pipeline.axis" if scope else "pipeline.axis"
    tables["weights"]["layers"] = Rule(binding, "layers", (axis,), False, origin(binding, ""))
    return tables
