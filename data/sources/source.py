"""What every source of records offers."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Record = Mapping[str, Any]


class Source(Protocol):
    """Records by number, in splits that are named as TFDS names them: 'train', 'validation[:10%]', 'train[1000:]'.

    A source may have check(split) too, which raises Mistake for a split that is known not to be there without reading
    anything, or whose files are not.
    """

    def open(self, split: str) -> Sequence[Record]:
        """The records of a split. Raises Mistake for a split that isn't there."""

    def identity(self, split: str) -> str:
        """A name for the records of a split that changes whenever they do: caches are keyed by it."""
