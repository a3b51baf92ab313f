"""Labels of records as numbers of classes."""

from collections.abc import Sequence
from typing import Any

from data.records import as_text, field
from data.sources.source import Record
from mistake import Mistake, nearest


class Labels:
    """Reads the field `name`, which `binding`.label says: a number below `num_classes`, or a name among `labels`."""

    def __init__(self, binding: str, name: str, num_classes: int, labels: Sequence[str] | None):
        if num_classes < 2:
            raise Mistake(f"{binding}.num_classes: {num_classes}. There must be at least 2 to tell apart.")
        if labels is not None and len(labels) != num_classes:
            raise Mistake(f"{binding}.labels: {len(labels)} names for {binding}.num_classes = {num_classes}.")
        self._binding, self._name, self._num_classes = binding, name, num_classes
        self._numbers = None if labels is None else {label: number for number, label in enumerate(labels)}

    def number(self, record: Record) -> int:
        """The class of a record."""
        return self._number(field(record, self._name, f"{self._binding}.label"))

    def numbers(self, record: Record) -> list[int]:
        """The classes in a record whose field is a list of them."""
        return [self._number(value) for value in field(record, self._name, f"{self._binding}.label")]

    def _number(self, value: Any) -> int:
        if self._numbers is not None:
            text = as_text(value, f"{self._binding}.label: field {self._name!r}")
            if text not in self._numbers:
                raise Mistake(
                    f"{self._binding}.labels: there is no {text!r}, which a record has. "
                    f"{nearest(text, self._numbers)}".rstrip()
                )
            return self._numbers[text]
        if isinstance(value, (str, bytes)):
            raise Mistake(
                f"{self._binding}.labels: the records' {self._name!r} is text ({value!r}). Name the classes, in order."
            )
        if not 0 <= int(value) < self._num_classes:
            raise Mistake(
                f"{self._binding}.num_classes: {self._num_classes}, and a record's label is {value}; they begin at 0."
            )
        return int(value)
