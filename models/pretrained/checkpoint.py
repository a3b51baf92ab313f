"""Reads and writes checkpoints, theirs and ours: safetensors only, since reading a pickle runs what is in it."""

import ast
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

import ml_dtypes  # noqa: F401  (gives NumPy the name bfloat16, which safetensors asks for)
import numpy as np
import safetensors
import safetensors.numpy

from mistake import Mistake, nearest
from models.pretrained.bert import BERT
from models.pretrained.table import Family, Row, Settings, problems, their_shapes, to_ours, to_theirs

FAMILIES = {family.name: family for family in (BERT,)}

TENSORS, INDEX, CONFIG, BINDINGS = "model.safetensors", "model.safetensors.index.json", "config.json", "model.gin"
# Where our file says which head it has, if its tensors would tell another: a token classifier that kept its pooler.
_HEAD = "head"
_FLOATS = ("F32", "F16", "BF16")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_NO_PICKLE = (
    "is a pickle, which runs whatever code is in it when it is read, so it isn't. Where you trust it, make safetensors "
    "of it with transformers: AutoModel.from_pretrained(SRC).save_pretrained(DIR)."
)


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
    """Whether a folder is one that `write_ours` made."""
    return (Path(src) / BINDINGS).is_file()


def read(src: str | Path, family: str = "bert") -> Checkpoint:
    """The model in a folder.

    The folder has config.json with model.safetensors or with shards and their model.safetensors.index.json, as
    transformers saves them, or is our own. Half precision is widened, exactly. Every tensor is accounted for.

    Raises Mistake, beginning with the folder, for a pickle, a shard outside of the folder, a config.json of something
    else, and with all unused, missing and mis-shaped tensors together.
    """
    src, known = Path(src), find(family)
    try:
        return _read_ours(src, known) if is_ours(src) else _read_theirs(src, known)
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


def write_theirs(checkpoint: Checkpoint, folder: Path, family: str = "bert") -> None:
    """config.json and model.safetensors, as transformers loads them."""
    known = find(family)
    tensors = to_theirs(_rows(known, checkpoint.head), checkpoint.params)
    named = {known.prefixed(name, checkpoint.head): tensor for name, tensor in tensors.items()}
    config = known.config(checkpoint.settings, checkpoint.head, checkpoint.num_classes)
    # transformers asks for the 'format' that the tensors were saved from.
    safetensors.numpy.save_file(named, folder / TENSORS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _rows(family: Family, head: str | None) -> tuple[Row, ...]:
    return family.rows + family.head_rows[head]


def _read_theirs(src: Path, family: Family) -> Checkpoint:
    files = _tensor_files(src)
    config = _json(src / CONFIG)
    if (kind := config.get("model_type", family.name)) != family.name:
        raise Mistake(f"config.json: model_type is {kind!r}, not {family.name!r}.")
    tensors, notes = _sorted_out(_tensors(files), family)
    found = {name: x.shape for name, x in tensors.items()}
    settings = family.settings(config, tensors)
    head, num_classes = family.head(config, found)
    shapes = family.shapes(settings, head, num_classes)
    rows = _rows(family, head)
    _refuse(problems(found, their_shapes(rows, shapes)))
    return Checkpoint(to_ours(rows, tensors, shapes), settings, head, notes)


def _read_ours(src: Path, family: Family) -> Checkpoint:
    settings = _bindings(src / BINDINGS, family)
    params = dict(_tensors([src / TENSORS]))
    found = {path: x.shape for path, x in params.items()}
    guessed, num_classes = family.own_head(found)
    head = _told(src / TENSORS, family) or guessed
    _refuse(problems(found, family.shapes(settings, head, num_classes)))
    return Checkpoint(params, settings, head)


def _told(file: Path, family: Family) -> str | None:
    """The head that our file says it has; None if it doesn't."""
    with safetensors.safe_open(file, framework="numpy") as opened:
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


def _tensor_files(src: Path) -> list[Path]:
    if src.is_file():
        reason = _NO_PICKLE if src.suffix in _PICKLES else "is a file. Give its folder, which has config.json."
        raise Mistake(f"it {reason}")
    if not src.is_dir():
        raise Mistake("there is no such folder.")
    if (src / TENSORS).is_file():
        return [src / TENSORS]
    if (src / INDEX).is_file():
        return [src / shard for shard in _shards(_json(src / INDEX))]
    if pickles := sorted(each.name for each in src.iterdir() if each.suffix in _PICKLES):
        raise Mistake(f"it has no {TENSORS}, and {pickles[0]} {_NO_PICKLE}")
    raise Mistake(f"it has neither {TENSORS} nor {INDEX}.")


def _shards(index: dict) -> list[str]:
    """The file names in an index, each once. A name is a bare one: it can't lead out of the folder."""
    names = index.get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(each, str) for each in names.values()):
        raise Mistake(f"{INDEX}: it has no weight_map of tensors to files.")
    for name in (shards := sorted(set(names.values()))):
        bare = name == PurePosixPath(name).name == PureWindowsPath(name).name
        if not bare or name in ("", ".", ".."):
            raise Mistake(f"{INDEX}: {name!r} is not the name of a file in this folder.")
        if not name.endswith(".safetensors"):
            raise Mistake(
                f"{INDEX}: {name!r} {_NO_PICKLE if name.endswith(_PICKLES) else 'is not a safetensors file.'}"
            )
    return shards


def _tensors(files: list[Path]) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor of the files, float32."""
    for file in files:
        _check_magic(file)
        try:
            with safetensors.safe_open(file, framework="numpy") as opened:
                for name in list(opened.keys()):
                    dtype = opened.get_slice(name).get_dtype()
                    # Old checkpoints number their positions; nothing else is an integer unless it is quantized.
                    if dtype in _FLOATS:
                        yield name, opened.get_tensor(name).astype(np.float32)
                    elif name.endswith("position_ids"):
                        yield name, opened.get_tensor(name)
                    else:
                        raise Mistake(f"{file.name}: {name} is {dtype}. Only {', '.join(_FLOATS)} can be read.")
        except safetensors.SafetensorError as error:
            raise Mistake(f"{file.name}: it is damaged, or isn't safetensors: {error}") from None


def _check_magic(file: Path) -> None:
    """Mistake for a pickle, or an archive of them, called safetensors. That format is 8 bytes of length, then JSON."""
    if not file.is_file():
        raise Mistake(f"{file.name} is missing.")
    with file.open("rb") as opened:
        start = opened.read(9)
    is_pickle = start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    if start[8:9] != b"{" and (start.startswith(b"PK") or is_pickle):
        raise Mistake(f"{file.name} {_NO_PICKLE}")


def _json(file: Path) -> dict:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise Mistake(f"it has no {file.name}.") from None
    except (ValueError, RecursionError) as error:
        raise Mistake(f"{file.name}: it isn't JSON: {error}") from None
    if not isinstance(value, dict):
        raise Mistake(f"{file.name}: it isn't a JSON object.")
    return value


def _bindings(file: Path, family: Family) -> Settings:
    """model.gin as `write_ours` made it: a binding a line, each a Python literal."""
    settings: Settings = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
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
