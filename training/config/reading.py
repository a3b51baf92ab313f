"""From gin files and flags to the bindings they write, in the order in which they count, with file and line."""

import collections
import dataclasses
import itertools
import os
import pathlib
import tokenize
from collections.abc import Iterator, Sequence
from typing import Any

from gin import config_parser

from mistake import Mistake, nearest
from training.config.values import Delegate, Name, render, walk


@dataclasses.dataclass(frozen=True)
class Written:
    """One 'name = value', where it stands.

    Fields:
      source: a gin file as the user would write its path, or '--gin.NAME'.
      line: None for a flag.
      key_lines: the line of each key of a dict.
      readings: the files being read, outermost first, a number for each time a file is read; () for a flag.
    """

    name: Name
    value: Any
    source: str
    line: int | None
    key_lines: dict[Any, int]
    readings: tuple[int, ...]

    def place(self, key: str | None = None) -> str:
        """'configs/x.gin:7', or '--gin.NAME'."""
        return self.source if self.line is None else f"{self.source}:{self.key_lines.get(key, self.line)}"

    @property
    def text(self) -> str:
        """The value as gin text. Equal texts are equal values, of equal types."""
        return render(self.value)


@dataclasses.dataclass(frozen=True)
class Include:
    """An include statement: the path as written, and 'file:line' of the statement."""

    path: str
    place: str


class _Parser(config_parser.ConfigParser):
    """Knows the line of each item in a value, which gin's parser forgets."""

    def __init__(self, text: str):
        self._depth = 0
        self._item_lines: collections.deque[list[tuple[Any, int]]] = collections.deque()
        super().__init__(text, Delegate())

    def parse_value(self) -> Any:
        line = self.current_token.start[0]
        if self._depth == 0:
            self._item_lines.append([])
        self._depth += 1
        value = super().parse_value()
        self._depth -= 1
        if self._depth == 1:
            self._item_lines[-1].append((value, line))
        return value

    def keys(self, value: Any) -> list[tuple[Any, int]]:
        """(key, line) of each key in the next value read, a dict; one written twice is there twice."""
        items = self._item_lines.popleft()
        # The items of a dict are key, value, key, value, ...; a dict in parentheses is an item itself.
        return items[::2] if isinstance(value, dict) and len(items) != 1 else []


class Reader:
    """Reads gin files with all that they include.

    Paths are relative to the current directory, to the including file's folder, or to one of `roots`.
    """

    def __init__(self, roots: Sequence[str]):
        self._roots = [pathlib.Path(root).absolute() for root in roots]
        self._readings = itertools.count()

    def file(self, path: str) -> Iterator[Written]:
        """What the file and its includes write, in order. Raises Mistake for a missing file, a circle, bad syntax."""
        yield from self._file(self._locate(path, "--gin_file", None), ())

    def flag(self, binding: str) -> Written:
        """The one binding of 'NAME=VALUE'. Raises Mistake where it is something else."""
        source = f"--gin.{binding.split('=')[0].strip()}"
        written = list(parse(binding, source, is_flag=True))
        if len(written) != 1 or not isinstance(written[0], Written):
            raise Mistake(f"{source}: a flag binds one value, such as --gin.batch.size=64.")
        return written[0]

    def _file(self, path: pathlib.Path, above: tuple[tuple[pathlib.Path, int, str], ...]) -> Iterator[Written]:
        """above: of each file that is being read its path, the reading's number, and where it includes the next."""
        if path in (other for other, _, _ in above):
            circle = " -> ".join(place for _, _, place in above)
            raise Mistake(
                f"{above[-1][2]}: including {self._shown(path)!r} closes a circle: {circle}. Take one include out."
            )
        number = next(self._readings)
        readings = (*(number for _, number, _ in above), number)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Mistake(f"{self._shown(path)}: can't be read as text: {error}.") from None
        for found in parse(text, self._shown(path), readings):
            if isinstance(found, Include):
                included = self._locate(found.path, found.place, path.parent)
                yield from self._file(included, (*above, (path, number, found.place)))
            else:
                yield found

    def _locate(self, path: str, place: str, beside: pathlib.Path | None) -> pathlib.Path:
        folders = [pathlib.Path.cwd(), *([beside] if beside else []), *self._roots]
        candidates = [pathlib.Path(os.path.normpath(folder / path)) for folder in folders]
        for candidate in candidates:
            if candidate.is_file():
                return candidate
        raise Mistake(f"{place}: there is no file {path!r}. {_like_path(candidates)}".rstrip())

    def _shown(self, path: pathlib.Path) -> str:
        """As the user would write it."""
        for folder in (pathlib.Path.cwd(), *self._roots):
            if path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return str(path)


def _like_path(candidates: Sequence[pathlib.Path]) -> str:
    """What may be meant by a path at which there is no file: another file of its folder, or another folder."""
    for path in candidates:
        if path.parent.is_dir():
            there = sorted(file.name for file in path.parent.iterdir() if file.suffix == ".gin")
            return nearest(path.name, there) or f"Its folder has: {', '.join(there) or 'no gin file'}."
    beside = {folder.name for path in candidates if path.parents[1].is_dir() for folder in path.parents[1].iterdir()}
    return f"There is no such folder. {nearest(candidates[0].parent.name, sorted(beside))}"


def parse(
    text: str, source: str, readings: tuple[int, ...] = (), *, is_flag: bool = False
) -> Iterator[Written | Include]:
    """The statements of `text`. Raises Mistake, with file and line, for what is not gin."""
    try:
        parser = _Parser(text)
        while (statement := parser.parse_statement()) is not None:
            place = source if is_flag else f"{source}:{statement.location.line_num}"
            match statement:
                case config_parser.IncludeStatement():
                    yield Include(statement.filename, place)
                case config_parser.ImportStatement():
                    raise Mistake(
                        f"{place}: a configuration imports nothing; what it may name is registered in Python."
                    )
                case config_parser.BindingStatement():
                    line = None if is_flag else statement.location.line_num
                    yield _written(statement, parser, source, line, readings)
    except (SyntaxError, tokenize.TokenError, TypeError, StopIteration) as error:
        raise Mistake(_not_gin(error, text, source, is_flag)) from None


def _written(
    statement: config_parser.BindingStatement, parser: _Parser, source: str, line: int | None, readings: tuple[int, ...]
) -> Written:
    name = Name.of(statement.scope, statement.selector, statement.arg_name)
    key_lines = {}
    found = Written(name, statement.value, source, line, key_lines, readings)
    for key, key_line in parser.keys(statement.value):
        if key in key_lines:
            again = "" if line is None else f" and line {key_line}"
            raise Mistake(f"{name}: the key {render(key)} is written twice ({found.place(key)}{again}). Keep one.")
        key_lines[key] = key_line
    if any(isinstance(leaf, complex) for leaf in walk(statement.value)):
        raise Mistake(f"{name}: a complex number is no value of a configuration ({found.place()}).")
    return found


def _not_gin(error: Exception, text: str, source: str, is_flag: bool) -> str:
    """The message of a Mistake about text that gin's parser does not take."""
    reason, line = "ends too early", None
    match error:
        case SyntaxError():
            reason, line = error.msg.rstrip("."), error.lineno
        case tokenize.TokenError():
            reason, (line, _) = error.args
        case TypeError():
            reason = str(error)
    _, failed, token = reason.partition("Failed to parse token ")
    if failed:
        reason = f"{token} is no value; write a string in quotes, a reference as @name or @name(), a macro as %NAME"
    lines = text.splitlines() or [""]
    line = min(line or len(lines), len(lines))
    place = source if is_flag else f"{source}:{line}"
    return f"{place}: not gin: {reason}.\n    {lines[line - 1].strip()}"
