"""Rules: which mesh axis each logical axis goes on, for weights, activations and optimizer state.

    rules.weights     = {'embed': 'data', 'mlp': 'tensor', 'kv_heads?': 'tensor'}
    rules.activations = {'batch': 'data', 'mlp': 'tensor', 'residual.length': 'tensor'}

A value is a mesh axis, a tuple of them, or None (replicated, said aloud). A name that ends in '?' may go unused, and
falls back to replicated where the mesh does not divide a size, which --mode=explain lists; without it both are mistakes.
'residual.length' is the rule for the length of activations called 'residual', before that for 'length'; '*_out.length'
that of all whose name ends so.
"""

import dataclasses
from collections.abc import Callable
from fnmatch import fnmatchcase

import gin

from mistake import Mistake, nearest
from parallel import axes

Value = str | tuple[str, ...] | None
KINDS = ("weights", "activations", "optimizer")


@dataclasses.dataclass(frozen=True)
class Rule:
    """One line of a rule table. binding: 'rules.weights'; name: the logical axis; place: where it was written, '' when
    not known; activation: a glob over the names of those that it is for, '' for every tensor.
    """

    binding: str
    name: str
    mesh_axes: tuple[str, ...]
    optional: bool
    place: str
    activation: str = ""

    @property
    def key(self) -> str:
        """As it is written, but for a '?'."""
        return f"{self.activation}.{self.name}" if self.activation else self.name

    def __str__(self) -> str:
        value = "None" if not self.mesh_axes else self.mesh_axes[0] if len(self.mesh_axes) == 1 else self.mesh_axes
        return f"{self.binding}: {self.key!r} -> {value}" + (f" ({self.place})" if self.place else "")


Table = dict[str, Rule]


def rule_for(table: Table, name: str, tensor: str) -> Rule | None:
    """The rule for the logical axis `name` of the tensor called `tensor`: one for that tensor alone, else the longest glob
    that matches it, else the one for every tensor.
    """
    own = [
        rule
        for rule in table.values()
        if rule.name == name and rule.activation and fnmatchcase(tensor, rule.activation)
    ]
    default = table.get(name) or _implied(table, name)
    return max(own, key=lambda rule: (rule.activation == tensor, len(rule.activation)), default=default)


def _implied(table: Table, name: str) -> Rule | None:
    """Where nothing is said of them, groups of tokens are where their examples are, and stay there as far as the experts
    that they are sent to leave room.
    """
    if name == "group":
        return table.get("batch")
    group, expert = table.get("group") or table.get("batch"), table.get("expert")
    if name != "expert_group" or group is None:
        return None
    taken = expert.mesh_axes if expert else ()
    left = tuple(axis for axis in group.mesh_axes if axis not in taken)
    return dataclasses.replace(group, mesh_axes=left) if left else None


@gin.configurable("rules")
class Rules:
    """The rule tables of a model, or of a named part of it.

    Args:
      weights: for parameters.
      activations: for activations and batches.
      optimizer: changes to `weights` for optimizer slots; None is no change.
    """

    def __init__(self, weights: dict = gin.REQUIRED, activations: dict = gin.REQUIRED, optimizer: dict | None = None):
        self.tables = {"weights": weights, "activations": activations, "optimizer": optimizer or {}}

    def compile(
        self, mesh_axes: dict[str, int], origin: Callable[[str, str], str], scope: str = ""
    ) -> dict[str, Table]:
        """The checked tables: for each kind, the rules by key. Raises Mistake listing all that is wrong.

        origin: (binding, key) -> 'file:line', or ''. scope: the part these rules are for.
        """
        compiled, faults = {}, []
        for kind, table in self.tables.items():
            binding = f"{scope}/rules.{kind}" if scope else f"rules.{kind}"
            compiled[kind] = {}
            if not isinstance(table, dict):
                raise Mistake(
                    f"{binding}: {table!r} is not a table of rules. Write one such as {{'batch': 'data'}}; {{}} has none."
                )
            for key, value in table.items():
                try:
                    rule = _rule(binding, key, value, mesh_axes, origin(binding, key))
                    if rule.activation and kind != "activations":
                        raise Mistake(
                            f"{binding}: {rule.key!r} is for one activation; only rules.activations has such rules."
                        )
                    if rule.key in compiled[kind]:
                        raise Mistake(f"{binding}: {rule.key!r} is there twice, with and without '?'. Keep one.")
                    compiled[kind][rule.key] = rule
                except Mistake as mistake:
                    place = origin(binding, key)
                    faults.append(f"{mistake}" + (f" ({place})" if place else ""))
        if faults:
            raise Mistake("\n".join(faults))
        return compiled


def _rule(binding: str, key: str, value: Value, mesh_axes: dict[str, int], place: str) -> Rule:
    if not isinstance(key, str):
        raise Mistake(f"{binding}: {key!r} is not a logical axis: a name in quotes is meant.")
    activation, dot, name = key.removesuffix("?").rpartition(".")
    if dot and not activation:
        raise Mistake(
            f"{binding}: {key!r} names no activation before its point. Write {key.lstrip('.')!r} for all of them."
        )
    axes.require(name, binding)
    if not (value is None or isinstance(value, (str, tuple, list))):
        raise Mistake(f"{binding}: {name!r} -> {value!r}. A value is a mesh axis, a tuple of them, or None.")
    values = () if value is None else (value,) if isinstance(value, str) else tuple(value)
    for axis in values:
        if not isinstance(axis, str) or axis not in mesh_axes:
            known = ", ".join(mesh_axes)
            hint = " ".join(filter(None, (nearest(str(axis), mesh_axes), f"mesh.axes has: {known}.")))
            raise Mistake(f"{binding}: {name!r} -> {axis!r}, which is not a mesh axis. {hint}")
    if len(set(values)) != len(values):
        raise Mistake(f"{binding}: {name!r} -> {values} names a mesh axis twice.")
    return Rule(binding, name, values, key.endswith("?"), place, activation)
