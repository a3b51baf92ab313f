"""Writes a folder as a whole or not at all, and never over something that isn't of this program's making."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mistake import Mistake
from models.pretrained.checkpoint import BINDINGS, CONFIG
from models.pretrained.tensors import INDEX, TENSORS

TOKENIZER = ("tokenizer.json", "vocab.txt")
_OURS = {TENSORS, INDEX, CONFIG, BINDINGS, *TOKENIZER}


@contextlib.contextmanager
def writing(target: Path, overwrite: bool) -> Iterator[Path]:
    """An empty folder to fill, which becomes `target` when the block ends without an exception.

    Raises Mistake when `target` has files already, unless `overwrite` is set and all of them are a checkpoint's.
    """
    target = target.resolve()
    check(target, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.partial-", dir=target.parent) as scratch:
        filled = Path(scratch, "new")
        filled.mkdir()
        yield filled
        old = Path(scratch, "old")
        if target.exists():
            target.rename(old)
        try:
            filled.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise


def copy_tokenizer(src: Path, folder: Path) -> list[str]:
    """Copies what of a tokenizer lies beside a checkpoint; the names of the files."""
    names = [name for name in TOKENIZER if (src / name).is_file()]
    for name in names:
        shutil.copyfile(src / name, folder / name)
    return names


def check(target: Path, overwrite: bool) -> None:
    """Raises Mistake where `writing` would."""
    if not target.exists():
        return
    if not target.is_dir():
        raise Mistake(f"{target}: it is a file. Name a folder.")
    present = {each.name for each in target.iterdir()}
    if present and not overwrite:
        raise Mistake(f"{target}: it is not empty. Name another folder, or add --overwrite.")
    if others := sorted(present - _OURS):
        raise Mistake(
            f"{target}: it has files that no checkpoint has ({', '.join(others[:5])}), so it isn't overwritten."
        )
