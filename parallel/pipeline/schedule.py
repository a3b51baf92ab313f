"""What a gin file says of a pipeline, and what follows from it: stages, layers a stage, the share of time in the bubble."""

import dataclasses
from typing import Literal

import gin
import numpy as np

from mistake import Mistake, nearest

SCHEDULES = ("gpipe", "circular", "1f1b")


@gin.configurable("pipeline")
@dataclasses.dataclass(frozen=True)
class Pipeline:
    """How a stack of equal layers is cut into stages that work on different microbatches at once.

    Args:
      schedule: None (no pipeline); 'gpipe', all microbatches forward, then all backward (Huang et al. 2019); 'circular',
        the same with each stage visited `repeats` times, which divides the bubble; '1f1b', one forward and one backward
        in turn (Narayanan et al. 2019), whose memory does not grow with the number of microbatches.
      axis: the mesh axis of the stages; stacked layers lie on it.
      microbatches: into how many the batch (of one accumulation pass) is cut.
      repeats: circular only: how often a microbatch goes round.
      split: layers of each stage where they are not equal, (3, 3, 4, 2); not with 'circular'.
    """

    schedule: Literal["gpipe", "circular", "1f1b"] | None = None
    axis: str | None = None
    microbatches: int | None = None
    repeats: int = 1
    split: tuple[int, ...] | None = None

    def __post_init__(self):
        if self.schedule is None:
            for name, default in {"axis": None, "microbatches": None, "repeats": 1, "split": None}.items():
                if getattr(self, name) != default:
                    raise Mistake(
                        f"pipeline.{name}: {getattr(self, name)!r} has no effect without pipeline.schedule. "
                        f"Set that to one of {', '.join(map(repr, SCHEDULES))}, or leave this out."
                    )
            return
        if self.schedule not in SCHEDULES:
            hint = nearest(str(self.schedule), SCHEDULES)
            raise Mistake(
                f"pipeline.schedule: {self.schedule!r} is not a schedule. {hint} All: {', '.join(SCHEDULES)}."
            )
        if self.axis is None:
            raise Mistake("pipeline.axis: nothing says which mesh axis the stages are on, as in 'stage'.")
        if self.microbatches is None or self.microbatches < 1:
            raise Mistake(
                f"pipeline.microbatches: {self.microbatches}. A pipeline cuts the batch into a positive number of them; "
                "four times the stages leaves a fifth of the time in the bubble."
            )
        if self.repeats < 1:
            raise Mistake(f"pipeline.repeats: {self.repeats} is not a positive number.")
        if self.repeats > 1 and self.schedule != "circular":
            raise Mistake(
                f"pipeline.repeats: {self.repeats} is for pipeline.schedule = 'circular', and it is {self.schedule!r}."
            )
        if self.split is not None and self.schedule == "circular":
            raise Mistake(
                "pipeline.split: a circular pipeline has equal stages. Leave it out, or take 'gpipe' or '1f1b'."
            )

    def check(self, sizes: dict[str, int]) -> None:
        """Raises Mistake for an axis that the mesh, of `sizes`, doesn't have, and for what doesn't go with its size."""
        if self.schedule is None:
            return
        if self.axis not in sizes:
            raise Mistake(
                f"pipeline.axis: {self.axis!r} is not a mesh axis. {nearest(self.axis, sizes)} mesh.axes has: {', '.join(sizes)}."
            )
        stages = sizes[self.axis]
        if self.schedule == "circular" and self.microbatches < stages:
            raise Mistake(
                f"pipeline.microbatches: {self.microbatches} for {stages} stages. A circular pipeline takes at least as many "
                "microbatches as stages: the first must have come round when the last has entered."
            )
        if self.split is not None and (len(self.split) != stages or any(n < 1 for n in self.split)):
            raise Mistake(
                f"pipeline.split: {self.split} must give each of the {stages} stages a positive number of layers."
            )

    def arrangement(self, num_layers: int, num_stages: int) -> np.ndarray:
        """int [repeats, stages, layers a visit]: which layer is where; -1 where a stage has fewer than the longest.

        Raises Mistake when the layers can't be cut so.
        """
        if self.split is not None:
            if sum(self.split) != num_layers:
                raise Mistake(f"pipeline.split: {self.split} has {sum(self.split)} layers, and the stack {num_layers}.")
            rows, first = np.full((1, num_stages, max(self.split)), -1), 0
            for stage, count in enumerate(self.split):
                rows[0, stage, :count] = np.arange(first, first + count)
                first += count
            return rows
        visits = self.repeats * num_stages
        if num_layers % visits:
            fits = sorted({max(visits, num_layers // visits * visits), (num_layers // visits + 1) * visits})
            times = f" visited {self.repeats} times" if self.repeats > 1 else ""
            raise Mistake(
                f"pipeline.axis: {num_stages} stages{times} don't divide a stack of {num_layers} layers. Numbers of layers "
                f"that fit: {', '.join(map(str, fits))}. Or say how many each stage has: pipeline.split."
            )
        return np.arange(num_layers).reshape(self.repeats, num_stages, -1)

    def microbatch_size(self, batch_size: int) -> int:
        """Examples of a microbatch. Raises Mistake, with the numbers that fit, when they don't divide the batch."""
        if batch_size % self.microbatches:
            fits = [n for n in range(1, batch_size + 1) if batch_size % n == 0]
            raise Mistake(
                f"pipeline.microbatches: {self.microbatches} don't divide a batch of {batch_size} examples. "
                f"These do: {', '.join(map(str, fits))}."
            )
        return batch_size // self.microbatches

    def bubble_fraction(self, num_stages: int) -> float:
        """The share of the time in which a stage waits: (L - 1) / (R M + L - 1) with L stages, M microbatches, R repeats."""
        return (num_stages - 1) / (self.repeats * self.microbatches + num_stages - 1)
