"""Values as gin files write them, Python literals in which references and macros may stand."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gin import config_parser

# How gin's parser reads infinity: a literal too large for a float. Its repr, 'inf', is no literal.
_INFINITY = "1e999"
_LINE_LENGTH = 100


@dataclasses.dataclass(frozen=True)
class Reference:
    """'@scope/configurable', and with `called` what it returns: '@scope/configurable()'."""

    name: str
    called: bool

    @property
    def scope(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def configurable(self) -> str:
        return self.name.rpartition("/")[2]

    def __str__(self) -> str:
        return f"@{self.name}" + ("()" if self.called else "")


@dataclasses.dataclass(frozen=True)
class Macro:
    """'%NAME': what NAME is bound to, or a constant that Python code gave to gin."""

    name: str

    def __str__(self) -> str:
        return f"%{self.name}"


class Name(NamedTuple):
    """Of a binding. A macro has its name as the configurable, and no parameter."""

    scope: str
    configurable: str
    parameter: str

    @classmethod
    def parse(cls, text: str) -> "Name":
        """Of 'scope/configurable.parameter'."""
        return cls.of(*config_parser.parse_binding_key(text))

    @classmethod
    def of(cls, scope: str, configurable: str, parameter: str) -> "Name":
        """Of what gin's parser found; the scope of a macro is a part of its name."""
        return (
            cls("", f"{scope}/{configurable}", "") if scope and not parameter else cls(scope, configurable, parameter)
        )

    @property
    def is_macro(self) -> bool:
        return not self.parameter

    def __str__(self) -> str:
        scope = f"{self.scope}/" if self.scope else ""
        return self.configurable if self.is_macro else f"{scope}{self.configurable}.{self.parameter}"


class Delegate(config_parser.ParserDelegate):
    """Keeps references and macros as they are written, whether they are known or not."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Reference:
        return Reference(scoped_configurable_name, evaluate)

    def macro(self, macro_name: str) -> Macro:
        return Macro(macro_name)


def walk(value: Any) -> Iterator[Any]:
    """All leaves of nested tuples, lists and dicts; a dict's keys are leaves too."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from walk(key)
            yield from walk(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from walk(item)
    else:
        yield value


def resolve(value: Any, macros: Mapping[str, Any]) -> Any:
    """`value` with the macros in it replaced by their values.

    A macro stays where its value has a reference: gin calls that one in a scope of the macro's name. So do constants.
    """
    match value:
        case Macro(name) if name in macros:
            inner = resolve(macros[name], macros)
            return value if any(isinstance(leaf, Reference) for leaf in walk(inner)) else inner
        case dict():
            return {resolve(key, macros): resolve(item, macros) for key, item in value.items()}
        case tuple() | list():
            return type(value)(resolve(item, macros) for item in value)
        case _:
            return value


def render(value: Any, width: int | None = None) -> str:
    """The gin text that reads as `value`, a dict in its order; on one line, or one item a line beyond `width`."""
    match value:
        case dict():
            items, (left, right) = [f"{render(key)}: {render(item)}" for key, item in value.items()], "{}"
        case tuple() | list():
            items, (left, right) = [render(item) for item in value], "()" if isinstance(value, tuple) else "[]"
        case float():
            return repr(value).replace("inf", _INFINITY)
        case Reference() | Macro():
            return str(value)
        case _:
            return repr(value)
    if width is not None and sum(len(item) + 2 for item in items) > width:
        return "\n".join([left, *(f"    {item}," for item in items), right])
    comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
    return left + ", ".join(items) + comma + right


def statement(name: Name, value: Any, comment: str) -> str:
    """'name = value  # comment', a long value over several lines."""
    return f"{name} = {render(value, width=_LINE_LENGTH - len(str(name)))}  # {comment}"
