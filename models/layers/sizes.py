"""Sizes that go together, and numbers that mean something: what every family of Transformers asks of its arguments."""

from mistake import Mistake


def check_positive(family: str, **sizes: int | None) -> None:
    """Raises Mistake for a size below 1; None is no size."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise Mistake(f"{family}.{name}: {size}. It must be at least 1.")


def check_heads(
    family: str, width: int, num_heads: int, num_kv_heads: int | None, head_dim: int | None, positions: str
) -> None:
    """Raises Mistake for heads that don't divide the width, or key/value heads that don't divide them, and for dimensions
    that the kind of positions can't have.
    """
    if head_dim is None and width % num_heads:
        fits = [n for n in range(1, width + 1) if width % n == 0]
        close = sorted(sorted(fits, key=lambda n: abs(n - num_heads))[:4])
        raise Mistake(
            f"{family}.num_heads: {num_heads} does not divide {family}.width {width}. Near ones that do: {close}. "
            f"Or set {family}.head_dim."
        )
    if num_kv_heads is not None and num_heads % num_kv_heads:
        fits = [n for n in range(1, num_heads + 1) if num_heads % n == 0]
        raise Mistake(
            f"{family}.num_kv_heads: {num_kv_heads} does not divide {family}.num_heads {num_heads}. Those that do: {fits}."
        )
    if positions == "sinusoidal" and width % 2:
        raise Mistake(
            f"{family}.positions: 'sinusoidal' pairs sines with cosines, so an odd {family}.width ({width}) can't be."
        )
    dim = width // num_heads if head_dim is None else head_dim
    if positions == "rotary" and dim % 2:
        raise Mistake(
            f"{family}.positions: 'rotary' turns pairs of dimensions, so an odd head dimension ({dim}) can't be. "
            f"Set {family}.head_dim to an even one."
        )


def check_rates(family: str, **rates: float) -> None:
    """Raises Mistake for a rate of dropout outside [0, 1)."""
    for name, rate in rates.items():
        if not 0.0 <= rate < 1.0:
            raise Mistake(f"{family}.{name}: {rate} is not a rate. It must be at least 0 and below 1.")


def check_above_zero(family: str, **numbers: float | None) -> None:
    """Raises Mistake for a number that is not above 0; None is left out."""
    for name, number in numbers.items():
        if number is not None and not number > 0:
            raise Mistake(f"{family}.{name}: {number}. It must be above 0.")
