"""The cache folder, outside the repository: what is costly is made once, and is there as a whole or not at all."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def folder() -> Path:
    """$MESHWRIGHT_CACHE, or ~/.cache/meshwright."""
    return Path(os.environ.get("MESHWRIGHT_CACHE") or Path.home() / ".cache" / "meshwright").absolute()


def key(*parts) -> str:
    """A short name for `parts` (plain JSON values): other parts, another name."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def build(target: Path, make: Callable[[Path], None]) -> Path:
    """The folder `target`, filled by `make` unless it is there already.

    `make` fills a folder beside it that takes its name only when complete, so one that was killed half-way is never
    found. Processes that make the same folder at once each make their own; the first to finish is kept.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    try:
        make(partial)
        partial.chmod(0o755)
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
