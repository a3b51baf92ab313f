"""Plain text files as records."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import gin

from data.sources import spans
from data.sources.source import Record
from data.sources.splits import select
from mistake import Mistake

_DOCUMENTS = {
    "file": None,
    # Lines with something on them, up to the next that is blank.
    "paragraph": re.compile(rb"(?:[^\n]*[^\s][^\n]*(?:\n|\Z))+"),
    "line": re.compile(rb"[^\n]*[^\s][^\n]*"),
}


@gin.configurable("text_files")
class TextFiles:
    """Records {'text'} of UTF-8 files.

    Args:
      paths: a path or a pattern ('corpus/**/*.txt'), or several: the split 'train', of which 'train[:90%]' is a part.
        Or {'train': ..., 'validation': ...}.
      document: what a record is: a 'file', a 'paragraph' (up to a blank line) or a 'line'.
    """

    def __init__(self, paths: spans.Paths = gin.REQUIRED, document: Literal["file", "paragraph", "line"] = "paragraph"):
        if document not in _DOCUMENTS:
            raise Mistake(f"text_files.document: {document!r}. It is one of {', '.join(map(repr, _DOCUMENTS))}.")
        self._paths, self._document = paths, document

    def check(self, split: str) -> None:
        spans.files_of(self._paths, split, "text_files")

    def open(self, split: str) -> Sequence[Record]:
        name, files = spans.files_of(self._paths, split, "text_files")
        return select({name: spans.Spans(files, _DOCUMENTS[self._document], _read)}, split, "text_files")

    def identity(self, split: str) -> str:
        return (
            f"text_files {self._document} {split} {spans.identity(spans.files_of(self._paths, split, 'text_files')[1])}"
        )


def _read(content: bytes, file: Path, start: int) -> Record:
    return {"text": spans.decode(content, "text_files.paths", file, start).strip()}
