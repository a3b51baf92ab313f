"""Which bindings a run has read, which of its values were defaults, and why a binding was not read."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from mistake import nearest
from training.config.checks import Bindings, covers
from training.config.values import Name, Reference, walk

Calls = Mapping[tuple[str, str], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Reads:
    """read: the bindings that were; defaults: the parameters that had theirs. Macros are in neither."""

    read: frozenset[Name]
    defaults: dict[Name, Any]


def reads(bindings: Bindings, calls: Calls) -> Reads:
    """What gin's `calls` took from `bindings`.

    A default is named without a scope: where a call had it, nothing is bound without a scope.
    """
    read, defaults = set(), {}
    for (scope, configurable), parameters in calls.items():
        for parameter, value in parameters.items():
            applying = [name for name in bindings if _applies(name, scope, configurable, parameter)]
            if applying:
                read.add(max(applying, key=lambda name: len(name.scope)))
            else:
                defaults[Name("", configurable, parameter)] = value
    return Reads(frozenset(read), defaults)


def unread(bindings: Bindings, calls: Calls) -> list[str]:
    """Of every binding that nothing read, why not."""
    read = reads(bindings, calls).read
    opened = {scope for scope, _ in calls} | {leaf.scope for leaf in _references(bindings)}
    return [
        f"{name}: {_why(name, written.place(), bindings, calls, opened)}".rstrip()
        for name, written in bindings.items()
        if not name.is_macro and name not in read
    ]


def _why(name: Name, place: str, bindings: Bindings, calls: Calls, opened: set[str]) -> str:
    if name.scope and not any(covers(name.scope, scope) for scope in opened):
        return f"nothing opens the scope {name.scope!r} ({place}). {nearest(name.scope, filter(None, opened))}"
    scopes = [scope for scope, configurable in calls if configurable == name.configurable and covers(name.scope, scope)]
    if not scopes:
        where = f" in the scope {name.scope!r}" if name.scope else ""
        return f"nothing uses {name.configurable!r}{where} ({place}). Take this out, or refer to @{name.configurable}."
    rivals = [other for other in bindings if other[1:] == name[1:] and len(other.scope) > len(name.scope)]
    inner = [str(other) for other in rivals if any(covers(other.scope, scope) for scope in scopes)]
    if inner:
        return f"no effect: {' and '.join(inner)} holds wherever it would ({place}). Take this out."
    return f"no effect: the code that calls {name.configurable!r} sets it itself ({place}). Take this out."


def _applies(name: Name, scope: str, configurable: str, parameter: str) -> bool:
    return (name.configurable, name.parameter) == (configurable, parameter) and covers(name.scope, scope)


def _references(bindings: Bindings) -> Iterator[Reference]:
    for written in bindings.values():
        yield from (leaf for leaf in walk(written.value) if isinstance(leaf, Reference))
