"""Reads and writes checkpoints, theirs and ours: safetensors only, since reading a pickle runs what is in it."""

import ast
import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import safetensors.numpy

from mistake import Mistake, nearest
from models.pretrained.bert import BERT
from models.pretrained.table import Family, Row, Settings, problems, their_shapes, to_ours, to_theirs
from models.pretrained.tensors import TENSORS, json_object, opening, read_tensors, tensor_files

FAMILIES = {family.name: family for family in (BERT,)}

CONFIG, BINDINGS = "config.json", "model.gin"
# Where our file says which head it has, if its tensors would tell another: a token classifier that kept its pooler.
_HEAD = "head"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model on the host.

    Args:
      params: our parameters, float32.
      settings: the gin bindings of the model that has them, such as 'bert.width'.
      head: the head, by the name its family gives it; None for an encoder alone.
      notes: what was left out in reading, and why.
    """

    params: dict[str, np.ndarray]
    settings: Settings
    head: str | None
    notes: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """Of a classification head; 0 for another."""
        return self.params["head.kernel"].shape[1] if "head.kernel" in self.params else 0


def import_checkpoint(src: str | Path, family: str = "bert") -> tuple[dict[str, np.ndarray], Settings]:
    """Our parameters (float32) and gin bindings of a folder: theirs or one of our own. See `read`."""
    checkpoint = read(src, family)
    return checkpoint.params, checkpoint.settings


def find(name: str) -> Family:
    """Raises Mistake for a family that isn't known."""
    if name not in FAMILIES:
        raise Mistake(f"family: there is no {name!r}. {nearest(name, FAMILIES)} All: {', '.join(FAMILIES)}.")
    return FAMILIES[name]


def is_ours(src: str | Path) -> bool:
    """Whether a folder, or that of a model.safetensors, is one that `write_ours` made."""
    return (folder_of(src) / BINDINGS).is_file()


def folder_of(src: str | Path) -> Path:
    """`src` itself, or the folder that a file lies in."""
    return Path(src).parent if Path(src).is_file() else Path(src)


def read(src: str | Path, family: str = "bert") -> Checkpoint:
    """The model in a folder, or in a single safetensors file with its config.json beside it.

    The folder has config.json with model.safetensors or with shards and their model.safetensors.index.json, as
    transformers saves them, or is our own. Half precision is widened, exactly. Every tensor is accounted for.

    Raises Mistake, beginning with the folder, for a pickle, a shard outside of the folder, a config.json of something
    else, and with all unused, missing and mis-shaped tensors together.
    """
    src, known = Path(src), find(family)
    try:
        ours = is_ours(src) and (src.is_dir() or src.name == TENSORS)
        return _read_ours(folder_of(src), known) if ours else _read_theirs(src, known)
    except Mistake as mistake:
        raise Mistake(f"{src}: {mistake}") from None


def write_ours(checkpoint: Checkpoint, folder: Path, header: str, family: str = "bert") -> None:
    """model.safetensors in our names, and model.gin, whose comment is `header`."""
    # safetensors writes memory as it lies, whatever its order.
    laid_out = {path: np.ascontiguousarray(x) for path, x in checkpoint.params.items()}
    guessed, _ = find(family).own_head({path: x.shape for path, x in laid_out.items()})
    told = None if checkpoint.head in (None, guessed) else {_HEAD: checkpoint.head}
    safetensors.numpy.save_file(laid_out, folder / TENSORS, metadata=told)
    lines = [f"# {header}", *(f"{name} = {value!r}" for name, value in checkpoint.settings.items())]
    (folder / BINDINGS).write_text("\n".join(lines) + "\n")
    # safetensors makes files that nobody else may read.
    shutil.copymode(folder / BINDINGS, folder / TENSORS)


def write_theirs(checkpoint: Checkpoint, folder: Path, family: str = "bert") -> None:
    """config.json and model.safetensors, as transformers loads them."""
    known = find(family)
    tensors = to_theirs(_rows(known, checkpoint.head), checkpoint.params)
    named = {known.prefixed(name, checkpoint.head): tensor for name, tensor in tensors.items()}
    config = known.config(checkpoint.settings, checkpoint.head, checkpoint.num_classes)
    # transformers asks for the 'format' that the tensors were saved from.
    safetensors.numpy.save_file(named, folder / TENSORS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    shutil.copymode(folder / CONFIG, folder / TENSORS)


def _rows(family: Family, head: str | None) -> tuple[Row, ...]:
    return family.rows + family.head_rows[head]


def _read_theirs(src: Path, family: Family) -> Checkpoint:
    files = tensor_files(src)
    if src.is_file() and not (src.parent / CONFIG).is_file():
        raise Mistake(f"it needs its {CONFIG} beside it, and {src.parent} has none.")
    config = json_object(folder_of(src) / CONFIG)
    if (kind := config.get("model_type", family.name)) != family.name:
        raise Mistake(f"config.json: model_type is {kind!r}, not {family.name!r}.")
    tensors, notes = _sorted_out(read_tensors(files), family)
    found = {name: x.shape for name, x in tensors.items()}
    settings = family.settings(config, tensors)
    head, num_classes = family.head(config, found)
    shapes = family.shapes(settings, head, num_classes)
    rows = _rows(family, head)
    _refuse(problems(found, their_shapes(rows, shapes)))
    return Checkpoint(to_ours(rows, tensors, shapes), settings, head, notes)


def _read_ours(src: Path, family: Family) -> Checkpoint:
    settings = _bindings(src / BINDINGS, family)
    params = dict(read_tensors([src / TENSORS]))
    found = {path: x.shape for path, x in params.items()}
    guessed, num_classes = family.own_head(found)
    head = _told(src / TENSORS, family) or guessed
    _refuse(problems(found, family.shapes(settings, head, num_classes)))
    return Checkpoint(params, settings, head)


def _told(file: Path, family: Family) -> str | None:
    """The head that our file says it has; None if it doesn't."""
    with opening(file) as opened:
        head = (opened.metadata() or {}).get(_HEAD)
    if head is not None and head not in family.head_rows:
        raise Mistake(f"{file.name}: its head is {head!r}, which {family.name} has not.")
    return head


def _refuse(lines: list[str]) -> None:
    if lines:
        raise Mistake("\n  ".join(["its tensors are not those that its settings describe.", *lines]))


def _sorted_out(
    pairs: Iterator[tuple[str, np.ndarray]], family: Family
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """The tensors by canonical name without what is ignored or tied, and a note for each of those."""
    tensors: dict[str, np.ndarray] = {}
    notes = []
    for name, tensor in pairs:
        canonical = family.canonical(name)
        if canonical in family.ignored:
            notes.append(f"{name} is left out: {family.ignored[canonical]}")
        elif canonical in tensors:
            raise Mistake(f"{name} is there twice, under two names.")
        else:
            tensors[canonical] = tensor
    for name, original in family.tied.items():
        if name not in tensors:
            continue
        if original not in tensors:
            tensors[original] = tensors.pop(name)
            notes.append(f"{name} is read as {original}: they are tied, and it alone was saved")
            continue
        if not np.array_equal(tensors.pop(name), tensors[original]):
            raise Mistake(f"{name} is not equal to {original}, and they are one parameter here. It can't be imported.")
        notes.append(f"{name} is left out: it equals {original}, as it is tied to it")
    return tensors, tuple(notes)


def _bindings(file: Path, family: Family) -> Settings:
    """model.gin as `write_ours` made it: a binding a line, each a Python literal."""
    settings: Settings = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"{file.name}: can't be read as text: {error}.") from None
    for number, line in enumerate(lines, start=1):
        name, _, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            settings[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            raise Mistake(f"{file.name}:{number}: {line!r} is not a binding of a plain value.") from None
    if strange := [name for name in settings if not name.startswith(f"{family.name}.")]:
        raise Mistake(f"{file.name}: {', '.join(strange)} is no binding of {family.name}'s.")
    return settings
