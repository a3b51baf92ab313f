"""What a field of a batch looks like, known without touching any data: plans and shardings are made from it."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Feature:
    """One field of an example.

    Args:
      shape: without the batch dimension.
      dtype: 'int32' or 'float32'.
      names: the logical axis of each dimension.
    """

    shape: tuple[int, ...]
    dtype: str
    names: tuple[str, ...]

    def __post_init__(self):
        assert len(self.shape) == len(self.names), self

    def zeros(self, *leading: int) -> np.ndarray:
        """Padding: zero means that in every field."""
        return np.zeros((*leading, *self.shape), self.dtype)


def sequence(length: int) -> dict[str, Feature]:
    """What an encoder reads: tokens, the document each is of (from 1; 0: padding), its position in that, its A/B type."""
    return {
        name: Feature((length,), "int32", ("length",)) for name in ("tokens", "segment_ids", "positions", "token_types")
    }
