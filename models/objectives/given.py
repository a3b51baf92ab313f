"""What an objective is given, checked before it is used: its model, and numbers that mean something."""

from typing import Any

from flax import nnx

from mistake import Mistake


def check_model(binding: str, model: Any, offers: tuple[str, ...], meant: str) -> None:
    """Raises Mistake, beginning with `binding`, unless `model` is a module that has all of `offers`.

    meant: what the user should write instead, such as '@bert()'.
    """
    if isinstance(model, nnx.Module) and all(hasattr(model, name) for name in offers):
        return
    if isinstance(model, type):
        raise Mistake(f"{binding}: this is the class {model.__name__}, not a model. Write it with (): {meant}.")
    what = repr(model) if isinstance(model, int | float | str | None) else type(model).__name__
    raise Mistake(f"{binding}: {what} is not a model that this objective can train. Give it {meant}.")


def check_label_smoothing(objective: str, label_smoothing: float) -> None:
    """Raises Mistake for a share outside [0, 1)."""
    if not 0.0 <= label_smoothing < 1.0:
        raise Mistake(f"{objective}.label_smoothing: {label_smoothing}. It must be at least 0 and below 1.")
