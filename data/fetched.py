"""Where fetched packages lie, and paths that mean a file of one: 'fetched:minilm/tokenizer.json'."""

from pathlib import Path

from mistake import Mistake

PREFIX = "fetched:"


def locate(path: str, binding: str) -> Path:
    """The file that `path` means. Raises Mistake, beginning with `binding`, when it isn't there."""
    file = Path(path)
    if not file.exists():
        raise Mistake(f"{binding}: there is no {path}.")
    return file
