"""What a reference gives, as far as the code says before it runs: its class, and whether it fits an annotation."""

import inspect
import sys
import typing
from typing import Any

from flax import nnx

from training.config import registered
from training.config.values import Reference, render

# What no class of ours is.
_PLAIN = (int, float, str, bool, bytes)
# Which models an objective can train only the objective knows, so it checks what it is given.
_LEFT_TO_THE_CODE = (nnx.Module, object)


def is_checked(annotation: Any) -> bool:
    """Whether values for `annotation` are told apart here: a class that is neither a literal's nor left to the code."""
    return inspect.isclass(annotation) and not _is_standard(annotation) and annotation not in _LEFT_TO_THE_CODE


def fits(reference: Reference, annotation: Any) -> bool:
    """Whether what `reference` gives is of the class `annotation`. What the code doesn't say is taken to fit."""
    if annotation is type(None):
        return False
    plain = annotation in _PLAIN
    if not (plain or is_checked(annotation)):
        return True
    if not reference.called:
        return False
    given = _given(reference.configurable)
    return given is None or (not plain and _is_one(given, annotation))


def givers(annotation: Any) -> list[str]:
    """'@name()' of every configurable that is known to give the class `annotation`."""
    named = [(name, _given(name)) for name in registered.names()]
    return [f"@{name}()" for name, given in named if given is not None and _is_one(given, annotation)]


def wanted(annotation: Any) -> str:
    """The class `annotation` and who gives it, for a message."""
    return f"a {annotation.__name__}, such as {', '.join(givers(annotation)) or 'nothing here gives'}"


def described(value: Any) -> str:
    """A value for a message; a reference that was left uncalled says so."""
    uncalled = isinstance(value, Reference) and not value.called
    return f"{render(value)} without ()" if uncalled else render(value)


def _given(name: str) -> type | None:
    """The class of what '@name()' gives: its own, or what it is annotated to return; None where that isn't a class."""
    found = registered.find(name)
    if found is None:
        return None
    if found.constructs is not None:
        return found.constructs
    try:
        returned = typing.get_type_hints(found.function).get("return")
    except (NameError, TypeError, AttributeError):
        return None
    returned = typing.get_origin(returned) or returned
    return returned if inspect.isclass(returned) and not _is_standard(returned) else None


def _is_standard(annotation: type) -> bool:
    return annotation.__module__.partition(".")[0] in sys.stdlib_module_names


def _is_one(given: type, annotation: type) -> bool:
    if given is annotation or not getattr(annotation, "_is_protocol", False):
        return given is annotation or issubclass(given, annotation)
    # Attributes are set in __init__, so that a class can be asked for its methods only.
    methods = [name for name, value in vars(annotation).items() if callable(value) and not name.startswith("_")]
    return all(hasattr(given, name) for name in methods)
