"""Whether a literal fits the annotation of the parameter that it is bound to."""

import collections.abc
import inspect
import types
import typing
from typing import Any, Literal

from training.config import kinds
from training.config.values import Macro, Reference

_SEQUENCES = (tuple, list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_MAPPINGS = (dict, collections.abc.Mapping)
_ARTICLE = {int: "an int", float: "a float", bool: "True or False", str: "a string", bytes: "bytes", type(None): "None"}


def misfit(value: Any, annotation: Any) -> str:
    """What is wrong with `value`, '' where nothing is.

    An int is a float, and a list a tuple, but True is no int and a string no sequence. A reference fits the class that it
    is known to give; where that isn't known, any (see kinds). Left to the code that takes the value: other annotations,
    and constants.
    """
    return "" if _fits(value, annotation) else f"{kinds.described(value)} is not {_wanted(annotation)}"


def choices(annotation: Any) -> list[str]:
    """The strings in all Literals of the annotation."""
    if typing.get_origin(annotation) is Literal:
        return [choice for choice in typing.get_args(annotation) if isinstance(choice, str)]
    return [choice for member in typing.get_args(annotation) for choice in choices(member)]


def _fits(value: Any, annotation: Any) -> bool:
    if isinstance(value, Macro):
        return True
    origin, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if _is_union(annotation):
        return any(_fits(value, member) for member in arguments)
    if isinstance(value, Reference):
        return kinds.fits(value, annotation)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in arguments)
    if annotation is None or annotation is type(None):
        return value is None
    if annotation is float:
        return type(value) in (int, float)
    if annotation in (int, bool, str, bytes):
        return type(value) is annotation
    if origin in _SEQUENCES:
        return isinstance(value, tuple | list) and _items_fit(value, origin, arguments)
    if kinds.is_checked(annotation):
        return False  # No literal is an instance of a class of ours.
    if origin in _MAPPINGS:
        key, item = arguments or (Any, Any)
        return isinstance(value, dict) and all(_fits(k, key) and _fits(v, item) for k, v in value.items())
    return True


def _items_fit(value: tuple | list, origin: type, arguments: tuple) -> bool:
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    return not arguments or all(_fits(item, arguments[0]) for item in value)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _wanted(annotation: Any) -> str:
    """The annotation in words."""
    if _is_union(annotation):
        return " or ".join(_wanted(member) for member in typing.get_args(annotation))
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(annotation)))
    if annotation in _ARTICLE:
        return _ARTICLE[annotation]
    if kinds.is_checked(annotation):
        return kinds.wanted(annotation)
    return inspect.formatannotation(annotation).replace("collections.abc.", "")
