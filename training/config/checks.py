"""What a configuration can be told to be wrong about before anything is constructed from it."""

import inspect
from collections.abc import Iterator, Mapping, Sequence

from mistake import nearest
from training.config import registered
from training.config.annotations import choices, misfit
from training.config.reading import Written
from training.config.values import Macro, Name, Reference, render, resolve, walk

Bindings = Mapping[Name, Written]


def known(written: Written) -> str:
    """What is wrong with the name that is bound, '' where nothing is."""
    name, place = written.name, written.place()
    if name.is_macro and registered.is_constant(name.configurable):
        return f"{name}: a constant has this name, and %{name} means that one ({place}). Take another name."
    if name.is_macro:
        return ""
    configurable = registered.find(name.configurable)
    if configurable is None:
        return f"{name}: {_unknown_configurable(name.configurable, place)}"
    if configurable.any_parameter or name.parameter in configurable.parameters:
        return ""
    parameters = list(configurable.parameters)
    hint = nearest(name.parameter, parameters) or f"All: {', '.join(parameters) or 'none'}."
    return f"{name}: {configurable.name!r} has no parameter {name.parameter!r} ({place}). {hint}"


def values(bindings: Bindings, history: Sequence[Written]) -> list[str]:
    """Mistakes in the values: references, macros, types. history: all that was written, undone or not."""
    macros = {name.configurable: written.value for name, written in bindings.items() if name.is_macro}
    faults = [fault for written in bindings.values() for fault in _leaves(written, macros)]
    faults += _unread_macros(bindings, history)
    # A type can be told where every macro can be resolved.
    circles = list(_circles(bindings, macros))
    circles = circles or list(_reference_circles(bindings, macros))
    return faults + (circles or [fault for written in bindings.values() for fault in _type(written, macros)])


def missing(bindings: Bindings, constructs: Sequence[str]) -> list[str]:
    """Every required parameter that nothing sets, of all that is bound, referred to, or constructed by the caller."""
    faults, unset = [], set()
    for name, written in bindings.items():
        if any(isinstance(leaf, Macro) and registered.is_required(leaf.name) for leaf in walk(written.value)):
            unset.add((name.configurable, name.parameter))
            faults.append(f"{name}: required, but nothing sets it ({written.place()}). {_mend(name)}")
    for (scope, configurable), place in _in_use(bindings, constructs).items():
        for parameter in registered.find(configurable).required:
            scopes = [name.scope for name in bindings if name[1:] == (configurable, parameter)]
            # A use without a scope may yet happen within any scope, where gin will tell.
            reached = scopes if not scope else [other for other in scopes if covers(other, scope)]
            if not reached and (configurable, parameter) not in unset:
                unset.add((configurable, parameter))
                name = Name("", configurable, parameter)
                faults.append(f"{name}: required, but nothing sets it{place}. {_mend(name)}")
    return faults


def covers(outer: str, inner: str) -> bool:
    """Whether what is bound in scope `outer` holds in `inner`: the same, one that it is part of, or ''."""
    return not outer or inner == outer or inner.startswith(f"{outer}/")


def _in_use(bindings: Bindings, constructs: Sequence[str]) -> dict[tuple[str, str], str]:
    """(scope, configurable) of each use -> where it is, for a message."""
    uses = {("", configurable): "" for configurable in constructs}
    for written in bindings.values():
        for leaf in walk(written.value):
            if isinstance(leaf, Reference) and (found := registered.find(leaf.configurable)):
                uses.setdefault((leaf.scope, found.name), f", and {leaf} is used ({written.place()})")
    referred = {configurable for _, configurable in uses}
    for name, written in bindings.items():
        if not name.is_macro and name.configurable not in referred and registered.find(name.configurable):
            uses.setdefault(("", name.configurable), f", though {name} is ({written.place()})")
    return uses


def _leaves(written: Written, macros: Mapping[str, object]) -> Iterator[str]:
    name, place = written.name, written.place()
    for leaf in walk(written.value):
        if isinstance(leaf, Reference) and registered.find(leaf.configurable) is None:
            yield f"{name}: {leaf}: {_unknown_configurable(leaf.configurable, place)}"
        if isinstance(leaf, Macro) and leaf.name not in macros and not registered.is_constant(leaf.name):
            hint = nearest(leaf.name, macros) or f"Set it: {leaf.name} = VALUE, or --gin.{leaf.name}=VALUE."
            yield f"{name}: nothing sets the macro {leaf} ({place}). {hint}"


def _circles(bindings: Bindings, macros: Mapping[str, object]) -> Iterator[str]:
    reads = {macro: {leaf.name for leaf in walk(value) if isinstance(leaf, Macro)} for macro, value in macros.items()}
    for macro in macros:
        reached, ahead = set(), reads[macro]
        while ahead:
            reached |= ahead
            ahead = set().union(*(reads.get(other, ()) for other in ahead)) - reached
        if macro in reached:
            yield f"{macro}: the macro's value needs itself ({bindings[Name('', macro, '')].place()})."


def _reference_circles(bindings: Bindings, macros: Mapping[str, object]) -> Iterator[str]:
    """Configurables that take themselves as arguments, directly or through others.

    A reference without a scope is called in that of its caller, one in a macro in the macro's.
    """
    path: list[tuple[str, str]] = []
    seen: set[tuple[str, str]] = set()

    def visit(scope: str, configurable: str) -> Iterator[str]:
        node = (scope, configurable)
        if node in seen:
            return
        path.append(node)
        for written in _holding_in(bindings, scope, configurable):
            for inner, reference in _called(written.value, macros, scope):
                found = registered.find(reference.configurable)
                if found is None:
                    continue
                if (inner, found.name) in path:
                    circle = f"{reference} would be given to itself, without end ({written.place()})"
                    yield f"{written.name}: {circle}. Refer to another configurable."
                else:
                    yield from visit(inner, found.name)
        seen.add(path.pop())

    starts = dict.fromkeys((name.scope, name.configurable) for name in bindings if not name.is_macro)
    yield from dict.fromkeys(fault for start in starts for fault in visit(*start))


def _holding_in(bindings: Bindings, scope: str, configurable: str) -> list[Written]:
    """What the parameters of `configurable` are bound to where it is called in `scope`."""
    holding: dict[str, Name] = {}
    for name in bindings:
        if name.configurable == configurable and not name.is_macro and covers(name.scope, scope):
            known = holding.get(name.parameter)
            if known is None or len(name.scope) > len(known.scope):
                holding[name.parameter] = name
    return [bindings[name] for name in holding.values()]


def _called(value: object, macros: Mapping[str, object], scope: str) -> Iterator[tuple[str, Reference]]:
    """(scope that it is called in, reference) of each '@name()' in a value."""
    for leaf in walk(value):
        if isinstance(leaf, Reference) and leaf.called:
            yield leaf.scope or scope, leaf
        elif isinstance(leaf, Macro) and leaf.name in macros:
            yield from _called(macros[leaf.name], macros, leaf.name)


def _unread_macros(bindings: Bindings, history: Sequence[Written]) -> Iterator[str]:
    # A macro that only an overridden binding reads is no misspelling: load notes it.
    read = {leaf.name for written in history for leaf in walk(written.value) if isinstance(leaf, Macro)}
    for name, written in bindings.items():
        if name.is_macro and name.configurable not in read:
            hint = nearest(name.configurable, read)
            yield f"{name}: nothing reads this macro, as %{name} ({written.place()}). {hint}".rstrip()


def _type(written: Written, macros: Mapping[str, object]) -> Iterator[str]:
    configurable, parameter = registered.find(written.name.configurable), written.name.parameter
    if written.name.is_macro or configurable is None:
        return
    value, default = resolve(written.value, macros), configurable.default(parameter)
    # Code may have a default that its own annotation leaves out; it is no mistake of the user's.
    if default is not inspect.Parameter.empty and render(value) == render(default):
        return
    annotation = configurable.annotation(parameter)
    wrong = misfit(value, annotation)
    if wrong:
        hint = nearest(value, choices(annotation)) if isinstance(value, str) else ""
        yield f"{written.name}: {wrong} ({written.place()}). {hint}".rstrip()


def _unknown_configurable(name: str, place: str) -> str:
    several = registered.matches(name)
    if several:
        return f"{name!r} may be any of {', '.join(several)} ({place}). Write one of them."
    return f"there is no configurable {name!r} ({place}). {nearest(name, registered.names())}".rstrip()


def _mend(name: Name) -> str:
    return f"Set it: --gin.{name}=VALUE, or in a gin file."
