"""Unpacks archives that strangers made: nothing lands outside the folder, and no links."""

import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

# Where a file of the archive goes, or None if it isn't wanted.
Keep = Callable[[str], PurePosixPath | None]


class UnsafeArchive(Exception):
    """An archive with a file that must not be unpacked; nothing of it should be used."""


def unpack(archive: Path, folder: Path, keep: Keep) -> None:
    """Writes the files that `keep` wants below `folder`: a .tgz, or a zip such as a wheel.

    Raises UnsafeArchive for a wanted entry that is no plain file, and for one that would land outside `folder`.
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                # The upper half of external_attr is the Unix mode; 0o120000 says symbolic link.
                if not entry.is_dir() and (path := _inside(entry.filename, folder, keep)):
                    if (entry.external_attr >> 16) & 0o170000 == 0o120000:
                        raise UnsafeArchive(f"{entry.filename} is a link")
                    with zipped.open(entry) as content:
                        _write(content, path)
        return
    with tarfile.open(archive) as tarred:
        for entry in tarred:
            if not entry.isdir() and (path := _inside(entry.name, folder, keep)):
                if not entry.isfile():
                    raise UnsafeArchive(f"{entry.name} is a link or a device")
                _write(tarred.extractfile(entry), path)


def _inside(name: str, folder: Path, keep: Keep) -> Path | None:
    """Where the file `name` goes, or None. The name is judged as it is written, before anything is resolved."""
    inner = keep(name)
    if inner is None:
        return None
    if PurePosixPath(name).is_absolute() or inner.is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name:
        raise UnsafeArchive(f"{name} would land outside of the folder")
    return folder / inner


def _write(content, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as out:
        shutil.copyfileobj(content, out)
