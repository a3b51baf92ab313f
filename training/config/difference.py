"""What changed between two operative configurations, for a workdir that goes on with another one."""

import fnmatch
import io
import tokenize
from collections.abc import Iterable

from training.config.reading import Written, parse


def difference(old_text: str, new_text: str, ignore: Iterable[str] = ()) -> str:
    """'binding: old -> new (origin)' a line, '' when all values are equal; both texts as Config.operative() makes them.

    Neither is loaded, so that names may be gone.
    ignore: bindings, or patterns such as 'checkpoint.*', that may change freely.
    """
    old, new = _by_name(old_text), _by_name(new_text)
    origins, ignored, lines = _origins(new_text), tuple(ignore), []
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name), new.get(name)
        values = [written.text if written else "nothing" for written in (before, after)]
        if values[0] == values[1] or any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored):
            continue
        origin = origins.get(after.line) if after else None
        lines.append(f"{name}: {values[0]} -> {values[1]}" + (f" ({origin})" if origin else ""))
    return "\n".join(lines)


def _by_name(text: str) -> dict[str, Written]:
    return {str(written.name): written for written in parse(text, "config.gin") if isinstance(written, Written)}


def _origins(text: str) -> dict[int, str]:
    """The comment of the statement that begins at each line."""
    origins, begin = {}, None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and begin is not None:
            origins[begin] = token.string.lstrip("# ")
        elif token.type == tokenize.NEWLINE:
            begin = None
        elif token.type not in (tokenize.NL, tokenize.ENDMARKER) and begin is None:
            begin = token.start[0]
    return origins
