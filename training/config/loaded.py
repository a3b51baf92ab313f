"""A configuration that is loaded into gin: where each value came from, and what the run made of it."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import gin

from mistake import Mistake
from training.config import checks, registered
from training.config.notes import notes
from training.config.reading import Reader, Written
from training.config.reads import reads, unread
from training.config.values import Macro, Name, render, resolve, statement, walk

# 'image/rules.weights: ' at the start of a line, and a key that the message may name first.
_BEGINS_WITH_BINDING = re.compile(r"((?:\w+/)*\w+(?:\.\w+)*): (?:'([^']*)')?")


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration that gin holds now. `notes`: lines worth telling the user, none of them a mistake."""

    bindings: dict[Name, Written]
    notes: list[str]

    def origin(self, binding: str, key: str | None = None) -> str:
        """Where a value was set: 'configs/x.gin:7', '--gin.mesh.axes', or 'default'.

        'configs/x.gin:7, STEPS: configs/y.gin:3' where it is set to a macro. key: of a dict, for the line of that key.
        """
        written = self._holding(_canonical(Name.parse(binding)))
        if written is None:
            return "default"
        if isinstance(written.value, Macro) and Name("", written.value.name, "") in self.bindings:
            return f"{written.place()}, {written.value.name}: {self.origin(written.value.name, key)}"
        return written.place(key)

    def point(self, message: str) -> str:
        """`message` with ' (file:line)' after each line that begins with a binding and doesn't say its place."""
        return "\n".join(map(self._point_line, message.split("\n")))

    def scopes(self, configurable: str) -> list[str]:
        """The scopes in which parameters of `configurable` are bound, without ''."""
        found = _canonical(Name("", configurable, "any")).configurable
        return list(dict.fromkeys(name.scope for name in self.bindings if name.scope and name.configurable == found))

    def check_read(self) -> None:
        """Raises Mistake with every binding that nothing has read. To be called once everything is constructed."""
        faults = unread(self.bindings, registered.calls())
        if faults:
            raise Mistake("\n".join(faults))

    def values(self) -> dict[str, str]:
        """binding -> value as gin text, of all that was read, defaults included; macros first, then by configurable."""
        return {str(name): render(value) for name, value in self._operative().items()}

    def operative(self) -> str:
        """What was read, as gin: load reads it as the same configuration. A comment says where each value came from.

        Macros are replaced by their values, except those of references, which gin calls in a scope of the macro's name.
        """
        lines, above = [], None
        for name, value in self._operative().items():
            group = "" if name.is_macro else name.configurable
            if above not in (None, group):
                lines.append("")
            lines.append(statement(name, value, self.origin(str(name))))
            above = group
        return "\n".join(lines) + "\n"

    def _operative(self) -> dict[Name, Any]:
        found = reads(self.bindings, registered.calls())
        macros = {name.configurable: written.value for name, written in self.bindings.items() if name.is_macro}
        values = found.defaults | {name: resolve(self.bindings[name].value, macros) for name in found.read}
        ahead = list(values.values())
        while ahead:
            kept = {leaf.name for value in ahead for leaf in walk(value) if isinstance(leaf, Macro)} & set(macros)
            new = {Name("", macro, ""): resolve(macros[macro], macros) for macro in kept}
            ahead = [value for name, value in new.items() if name not in values]
            values |= new
        return dict(sorted(values.items(), key=_order))

    def _holding(self, name: Name) -> Written | None:
        """The binding that holds for `name`: its own, or that of a scope around it."""
        holding = [other for other in self.bindings if other[1:] == name[1:] and checks.covers(other.scope, name.scope)]
        return self.bindings[max(holding, key=lambda other: len(other.scope))] if holding else None

    def _point_line(self, line: str) -> str:
        begins = _BEGINS_WITH_BINDING.match(line)
        if begins is None:
            return line
        name = _canonical(Name.parse(begins[1]))
        # Code knows no scopes: it says 'rules.weights' where only 'image/rules.weights' may be bound.
        scoped = [other for other in self.bindings if other[1:] == name[1:]]
        written = self._holding(name) or (self.bindings[scoped[0]] if len(scoped) == 1 else None)
        if written is None or f"({written.source}" in line:
            return line
        return f"{line} ({self.origin(str(written.name), begins[2])})"


def load(
    gin_files: Sequence[str], bindings: Sequence[str] = (), roots: Sequence[str] = (), constructs: Sequence[str] = ()
) -> Config:
    """Reads gin files, then 'NAME=VALUE' of flags, later ones win, and binds all of it in gin, which is cleared before.

    Everything that they may name is registered already.
    roots: folders, besides the current one, that paths may be relative to.
    constructs: configurables that the caller will construct without a reference; what they require is checked too.
    Raises Mistake for all that is wrong, each line with its file and line; gin then stays as it was.
    """
    reader = Reader(roots)
    history = [written for path in gin_files for written in reader.file(path)]
    history += [reader.flag(binding) for binding in bindings]
    history = [dataclasses.replace(written, name=_canonical(written.name)) for written in history]
    final = {written.name: written for written in history}
    faults = [fault for written in final.values() if (fault := checks.known(written))]
    faults += checks.values(final, history)
    faults += checks.missing(final, [_canonical(Name("", name, "any")).configurable for name in constructs])
    if faults:
        raise Mistake("\n".join(faults))
    gin.clear_config()
    gin.parse_config([f"{written.name} = {written.text}" for written in final.values()])
    return Config(final, notes(final, history))


def _canonical(name: Name) -> Name:
    """With the configurable's shortest name, so that one parameter has one name."""
    configurable = None if name.is_macro else registered.find(name.configurable)
    return name._replace(configurable=configurable.name) if configurable else name


def _order(entry: tuple[Name, Any]) -> tuple[bool, str, str, str]:
    name = entry[0]
    return not name.is_macro, name.configurable, name.scope, name.parameter
