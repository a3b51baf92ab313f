"""Records that are stretches of files: found once, then each is read by itself."""

import glob
import mmap
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from data import cache
from data.sources.source import Record
from data.sources.splits import parse
from mistake import Mistake

Paths = str | Sequence[str] | Mapping[str, str | Sequence[str]]


class Spans(Sequence):
    """The stretches that `pattern` finds in files, made records by `read(bytes, file, first byte)`.

    Without a pattern each file is one. Files are memory-mapped: what is kept are the stretches' ends.
    """

    def __init__(
        self, files: Sequence[Path], pattern: re.Pattern[bytes] | None, read: Callable[[bytes, Path, int], Record]
    ):
        self._files, self._read = files, read
        self._contents = [_map(file) for file in files]
        spans = [
            (number, *span)
            for number, content in enumerate(self._contents)
            for span in (
                [(0, len(content))] if pattern is None else (found.span() for found in pattern.finditer(content))
            )
        ]
        self._spans = np.asarray(spans, np.int64).reshape(-1, 3)

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, index: int) -> Record:
        file, start, stop = self._spans[index].tolist()
        return self._read(self._contents[file][start:stop], self._files[file], start)


def _map(file: Path) -> mmap.mmap | bytes:
    with file.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) if file.stat().st_size else b""


def decode(content: bytes, binding: str, file: Path, start: int) -> str:
    """UTF-8 from byte `start` of a file -> text. Raises Mistake that says where it isn't."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Mistake(f"{binding}: {file} is not UTF-8 at byte {start + error.start}.") from None


def files_of(paths: Paths, split: str, source: str) -> tuple[str, list[Path]]:
    """The name of the split that `split` is of, and its files.

    `paths` is a path or pattern ('corpus/**/*.txt'), or several, which are 'train'; or {split: those}. Raises Mistake,
    beginning with `source`, for one that matches no file.
    """
    splits = paths if isinstance(paths, Mapping) else {"train": paths}
    name, *_ = parse(split, list(splits), source)
    found: list[Path] = []
    for pattern in [splits[name]] if isinstance(splits[name], str) else splits[name]:
        files = [
            Path(file)
            for file in sorted(glob.glob(str(Path(pattern).expanduser()), recursive=True))
            if Path(file).is_file()
        ]
        if not files:
            raise Mistake(f"{source}.paths: {pattern!r} matches no file.")
        found += files
    return name, found


def identity(files: Sequence[Path]) -> str:
    """Of files: their paths, sizes and times, so that large ones need not be read."""
    return cache.key([(str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files])
