"""What every source of records offers."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Record = Mapping[str, Any]


class Source(Protocol):
    """Records by number, in splits that are named as TFDS names them: 'train', 'validation[:10%]', 'train[1000:]'."""

    def open(self, split: str) -> Sequence[Record]:
        """The records of a split. Raises Mistake for a split that isn't there."""

    def identity(self, split: str) -> str:
        """A name for the records of a split that changes whenever they do: caches are keyed by it."""
