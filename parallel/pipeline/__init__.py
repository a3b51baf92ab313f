"""Pipelines."""

import dataclasses
from typing import Literal

import gin


@gin.configurable("pipeline")
@dataclasses.dataclass(frozen=True)
class Pipeline:
    schedule: Literal["gpipe", "circular", "1f1b"] | None = None
    axis: str | None = None
    microbatches: int | None = None
    repeats: int = 1
    split: tuple | None = None

    def check(self, sizes: dict[str, int]) -> None:
        """Raises Mistake for an axis that the mesh doesn't have."""
