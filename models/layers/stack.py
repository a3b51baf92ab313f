"""A stack of equal blocks, whole or cut into named parts that may be spread each in its own way."""

from collections.abc import Callable
from typing import Any

from flax import nnx

from mistake import Mistake
from parallel.annotate import Randomness, Sums, part, run_blocks, stack

# (name, number of blocks) of each part, in order.
Cuts = tuple[tuple[str, int], ...]


def build_stacks(
    owner: nnx.Module,
    make_block: Callable[[], nnx.Module],
    num_blocks: int,
    parts: dict[str, int] | None,
    binding: str,
) -> Cuts:
    """Gives `owner` its `num_blocks` equal blocks as one stack called 'blocks', or as one under each name in `parts`.

    parts: {'early': 8, 'late': 4}: how many blocks each named part has, in order. `binding` is what to call it in a
    Mistake, which is raised when they don't add up or a name can't be one. Blocks are drawn by the path of their part,
    so a cut stack starts from other weights than a whole one.
    """
    parts = {"blocks": num_blocks} if parts is None else parts
    for name, count in parts.items():
        if not isinstance(name, str) or not name.isidentifier() or hasattr(owner, name):
            raise Mistake(f"{binding}: {name!r} can't be the name of a part. Take another word.")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise Mistake(f"{binding}: {name!r} has {count!r} blocks. It must be a positive number.")
    if sum(parts.values()) != num_blocks:
        raise Mistake(f"{binding}: {parts} has {sum(parts.values())} blocks in all, and the model has {num_blocks}.")
    for name, count in parts.items():
        setattr(owner, name, stack(make_block(), count))
    return tuple(parts.items())


def run_stacks(
    owner: nnx.Module, cuts: Cuts, x: Any, *inputs: Any, randomness: Randomness | None = None
) -> tuple[Any, Sums]:
    """run_blocks over all parts that `build_stacks` made, one after another."""
    sums: Sums = {}
    first = 0
    for name, count in cuts:
        with part(name):
            x, own = run_blocks(getattr(owner, name), x, *inputs, randomness=randomness, first_layer=first)
        sums = {k: (s + own[k][0], w + own[k][1]) for k, (s, w) in sums.items()} if sums else own
        first += count
    return x, sums
