"""JSON lines as records."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import gin

from data.sources import spans
from data.sources.source import Record
from data.sources.splits import select
from mistake import Mistake

_LINE = re.compile(rb"[^\n]*[^\s][^\n]*")


@gin.configurable("json_lines")
class JsonLines:
    """Records as they stand in UTF-8 files with a JSON object a line.

    Args:
      paths: as for text_files.
    """

    def __init__(self, paths: spans.Paths = gin.REQUIRED):
        self._paths = paths

    def check(self, split: str) -> None:
        spans.files_of(self._paths, split, "json_lines")

    def open(self, split: str) -> Sequence[Record]:
        name, files = spans.files_of(self._paths, split, "json_lines")
        return select({name: spans.Spans(files, _LINE, _read)}, split, "json_lines")

    def identity(self, split: str) -> str:
        return f"json_lines {split} {spans.identity(spans.files_of(self._paths, split, 'json_lines')[1])}"


def _read(content: bytes, file: Path, start: int) -> Record:
    try:
        record = json.loads(spans.decode(content, "json_lines.paths", file, start))
    except json.JSONDecodeError as error:
        raise Mistake(f"json_lines.paths: {file}: the line at byte {start} is not JSON ({error.msg}).") from None
    if not isinstance(record, dict):
        raise Mistake(f"json_lines.paths: {file}: the line at byte {start} is {type(record).__name__}, not an object.")
    return record
