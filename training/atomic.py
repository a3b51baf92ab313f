"""Writes a file as a whole or not at all."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Puts `content` in the place of `path`: at any moment, a kill included, the file is wholly old or wholly new."""
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
