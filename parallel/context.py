"""Context parallelism: attention over a sequence that devices share."""

import dataclasses
from typing import Literal

import gin


@gin.configurable("context")
@dataclasses.dataclass(frozen=True)
class ContextParallel:
    algorithm: Literal["ring", "allgather", "ulysses"] | None = None
    balance: bool = True
