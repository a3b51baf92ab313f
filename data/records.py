"""Reading one field of a record, whatever source it came from."""

from collections.abc import Mapping
from typing import Any

from mistake import Mistake, nearest


def field(record: Mapping[str, Any], name: str, binding: str) -> Any:
    """record[name]. Raises Mistake naming `binding`, which holds `name`, when there is no such field."""
    if name not in record:
        raise Mistake(
            f"{binding}: the records have no field {name!r}. They have: {', '.join(record)}. "
            f"{nearest(name, record)}".rstrip()
        )
    return record[name]


def text(record: Mapping[str, Any], name: str, binding: str) -> str:
    """A field that is text, or UTF-8 bytes as TFDS gives. Raises Mistake when it is neither."""
    return as_text(field(record, name, binding), f"{binding}: field {name!r}")


def as_text(value: Any, what: str) -> str:
    """str or UTF-8 bytes -> str. Raises Mistake beginning with `what`."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise Mistake(f"{what} is bytes that are not UTF-8 ({error.reason} at byte {error.start}).") from None
    if not isinstance(value, str):
        raise Mistake(f"{what} is {type(value).__name__}, not text.")
    return value
