"""TFDS's split syntax for any source: 'train', 'train[:90%]', 'train[100:]', 'train[-10%:]'."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mistake import Mistake, nearest

_SPLIT = re.compile(r"(?P<name>\w[\w.-]*)(\[(?P<start>-?\d+%?)?:(?P<stop>-?\d+%?)?\])?")


class SplitMistake(Mistake):
    """A split that isn't there. The message begins with the source: who named the split puts that binding first."""


@contextlib.contextmanager
def naming(binding: str) -> Iterator[None]:
    """Around the opening of a split that `binding` names: a mistake in it says so first."""
    try:
        yield
    except SplitMistake as mistake:
        raise Mistake(f"{binding}: {mistake}") from None


def check_split(source: Any, split: str, binding: str) -> None:
    """Raises Mistake, beginning with `binding`, for a split that `source` can tell at once that it hasn't."""
    if check := getattr(source, "check", None):
        with naming(binding):
            check(split)


class Slice(Sequence):
    """Some of `records`, those numbered by `indices`, by number."""

    def __init__(self, records: Sequence[Any], indices: range):
        self._records, self._indices = records, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index):
        return self._records[self._indices[index]]


def parse(split: str, names: Sequence[str] | None, source: str) -> tuple[str, str | None, str | None]:
    """(name, start, stop) as written. Raises SplitMistake for another syntax, and for a name that is not in `names` (None:
    any may be).
    """
    found = _SPLIT.fullmatch(split)
    if not found:
        raise SplitMistake(f"{source}: {split!r} is not a split. Write 'train', 'train[:90%]' or 'train[100:200]'.")
    if names is not None and found["name"] not in names:
        known = ", ".join(map(repr, names))
        raise SplitMistake(
            f"{source}: there is no split {found['name']!r}. Splits: {known}. {nearest(found['name'], names)}".rstrip()
        )
    return found["name"], found["start"], found["stop"]


def select(splits: Mapping[str, Sequence[Any]], split: str, source: str) -> Sequence[Any]:
    """The records that `split` means. Percentages round to the closest record, as in TFDS.

    Raises SplitMistake when an end lies outside of the split, or one is a percentage and the other is not.
    """
    name, start, stop = parse(split, list(splits), source)
    records = splits[name]
    if start is None and stop is None:
        return records
    if start and stop and start.endswith("%") != stop.endswith("%"):
        raise SplitMistake(f"{source}: {split!r} mixes percentages and numbers of records. Write both ends in one way.")
    count = len(records)
    low, high = _boundary(start, 0, count), _boundary(stop, count, count)
    if not 0 <= low <= high <= count:
        raise SplitMistake(f"{source}: {split!r} asks for records {low} to {high} of {count}.")
    return Slice(records, range(low, high))


def _boundary(written: str | None, default: int, count: int) -> int:
    if written is None:
        return default
    at = round(int(written[:-1]) * count / 100) if written.endswith("%") else int(written)
    return at + count if written.startswith("-") else at
