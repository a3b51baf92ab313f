"""The one file that looks inside gin: which configurables there are, and with which values they were called."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

import gin
from gin import config as internals

_BUILTINS = ("gin.macro", "gin.constant")
# gin appends the configurables that an exception passed through, innermost first.
_GIN_TAIL = re.compile(r"\n  (No values supplied by Gin or caller|In call to configurable ').*", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Configurable:
    """A registered function or class.

    name: the shortest that is its own; parameters: those that may be bound; any_parameter: it takes **kwargs;
    constructs: the class, None for a function.
    """

    name: str
    function: Callable
    parameters: dict[str, inspect.Parameter]
    any_parameter: bool
    constructs: type | None

    def annotation(self, parameter: str) -> Any:
        """Of the parameter; Any where it has none, or one that can't be evaluated."""
        try:
            return typing.get_type_hints(self.function).get(parameter, Any)
        except (NameError, TypeError, AttributeError):
            return Any

    def default(self, parameter: str) -> Any:
        """Of the parameter; inspect.Parameter.empty where it has none."""
        return self.parameters[parameter].default if parameter in self.parameters else inspect.Parameter.empty

    @property
    def required(self) -> list[str]:
        """The parameters that a configuration has to set."""
        return [name for name, parameter in self.parameters.items() if parameter.default is gin.REQUIRED]


def names() -> list[str]:
    """Of all configurables, each as short as it can be."""
    registry = internals._REGISTRY
    return [registry.minimal_selector(full) for full, _ in registry.items() if full not in _BUILTINS]


def matches(name: str) -> list[str]:
    """The full names of the configurables that `name` may mean."""
    return sorted(internals._REGISTRY.matching_selectors(name))


def find(name: str) -> Configurable | None:
    """The one that `name` means; None where there is none, or several."""
    found = matches(name)
    if len(found) != 1:
        return None
    entry = internals._REGISTRY[found[0]]
    function = _function(entry.wrapped)
    signature = list(inspect.signature(function).parameters.values())[inspect.isclass(entry.wrapped) :]
    named = [
        parameter
        for parameter in signature
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    return Configurable(
        name=internals._REGISTRY.minimal_selector(found[0]),
        function=function,
        parameters={parameter.name: parameter for parameter in named if _may_bind(entry, parameter.name)},
        any_parameter=any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature),
        constructs=entry.wrapped if inspect.isclass(entry.wrapped) else None,
    )


def name_of(value: Any) -> str:
    """The configurable that made `value`, or the name of its class."""
    made_by = [full for full, entry in internals._REGISTRY.items() if entry.wrapped is type(value)]
    return internals._REGISTRY.minimal_selector(made_by[0]) if made_by else type(value).__name__


def is_constant(name: str) -> bool:
    """Whether Python code gave gin a constant of this name."""
    return bool(internals._CONSTANTS.matching_selectors(name))


def is_required(name: str) -> bool:
    """Whether %name is gin.REQUIRED."""
    return is_constant(name) and gin.query_parameter(name) is gin.REQUIRED


def calls() -> dict[tuple[str, str], dict[str, Any]]:
    """(scope, configurable) -> the parameters that gin gave it there, since the last load.

    They are the bound ones and the defaults that are literals.
    gin.operative_config_str() would say the same, but sorts dicts, and the order of a mesh's axes has a meaning.
    """
    with internals._OPERATIVE_CONFIG_LOCK:
        return {
            (scope, internals._REGISTRY.minimal_selector(full)): dict(parameters)
            for (scope, full), parameters in internals._OPERATIVE_CONFIG.items()
            if full not in _BUILTINS
        }


def clean(exc: BaseException) -> str:
    """The exception's message without what gin adds to it on its way."""
    return _GIN_TAIL.sub("", str(exc))


def _function(configurable: Callable) -> Callable:
    """What is called in the end: of a class its nearest __init__ or __new__, gin's own wrapping taken off."""
    if not inspect.isclass(configurable):
        return inspect.unwrap(configurable)
    inherited = (vars(base) for base in configurable.__mro__)
    constructor = next(own[name] for own in inherited for name in ("__init__", "__new__") if name in own)
    return inspect.unwrap(getattr(constructor, "__func__", constructor))


def _may_bind(entry: internals.Configurable, parameter: str) -> bool:
    return parameter in entry.allowlist if entry.allowlist else parameter not in (entry.denylist or ())
