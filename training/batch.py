"""The batch triple: size = microbatch_size * accumulation. Give two, the third follows."""

import gin

from mistake import Mistake


@gin.configurable("batch")
class Batch:
    """How many examples a step takes, and in how many passes.

    Args:
      size: examples of the global batch, of one step.
      microbatch_size: examples of one forward and backward pass, over all devices.
      accumulation: passes a step; their gradients are added before the update. With `size` alone it is 1.

    Raises Mistake, with the numbers that would work, when they don't go together.
    given: the bindings that said it.
    """

    def __init__(self, size: int | None = None, microbatch_size: int | None = None, accumulation: int | None = None):
        given = {"batch.size": size, "batch.microbatch_size": microbatch_size, "batch.accumulation": accumulation}
        self.given = [name for name, value in given.items() if value is not None]
        for name, value in given.items():
            if value is not None and value < 1:
                raise Mistake(f"{name}: {value} is not a positive number of examples or passes.")
        if size is None:
            if microbatch_size is None:
                raise Mistake(
                    "batch.size: nothing says how many examples a step takes. Give two of "
                    + ", ".join(given)
                    + ", or batch.size alone."
                )
            size = microbatch_size * (accumulation or 1)
        if microbatch_size is None:
            microbatch_size = _divide(size, accumulation or 1, "batch.accumulation")
        if accumulation is None:
            accumulation = _divide(size, microbatch_size, "batch.microbatch_size")
        if microbatch_size * accumulation != size:
            raise Mistake(
                f"batch.size: {size} is not batch.microbatch_size {microbatch_size} * batch.accumulation {accumulation} "
                f"= {microbatch_size * accumulation}. Give two of the three."
            )
        self.size, self.microbatch_size, self.accumulation = size, microbatch_size, accumulation


def _divide(size: int, by: int, binding: str) -> int:
    if size % by:
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        raise Mistake(f"{binding}: {by} does not divide batch.size {size}. These do: {', '.join(map(str, divisors))}.")
    return size // by
