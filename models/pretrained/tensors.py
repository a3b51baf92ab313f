"""Reads the tensors of a safetensors file, or of shards and their index, and nothing else: reading a pickle runs what
is in it.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import ml_dtypes  # noqa: F401  (gives NumPy the name bfloat16, which safetensors asks for)
import numpy as np
import safetensors

from mistake import Mistake

TENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
_FLOATS = ("F32", "F16", "BF16")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_NO_PICKLE = (
    "is a pickle, which runs whatever code is in it when it is read, so it isn't. Where you trust it, make safetensors "
    "of it with transformers: AutoModel.from_pretrained(SRC).save_pretrained(DIR)."
)


def tensor_files(src: Path) -> list[Path]:
    """The files that hold the tensors of a checkpoint: a folder, or a safetensors file itself."""
    if src.is_file():
        if src.suffix == ".safetensors":
            return [src]
        reason = (
            _NO_PICKLE if src.suffix in _PICKLES else "is neither a folder nor a .safetensors file. Give one of these."
        )
        raise Mistake(f"it {reason}")
    if not src.is_dir():
        raise Mistake("there is no such folder, and no such file.")
    if (src / TENSORS).is_file():
        return [src / TENSORS]
    if (src / INDEX).is_file():
        index = json_object(src / INDEX)
        shards = [src / shard for shard in _shards(index)]
        _check_there(index["weight_map"], shards)
        return shards
    if pickles := sorted(each.name for each in src.iterdir() if each.suffix in _PICKLES):
        raise Mistake(f"it has no {TENSORS}, and {pickles[0]} {_NO_PICKLE}")
    raise Mistake(f"it has neither {TENSORS} nor {INDEX}.")


def read_tensors(files: list[Path]) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor of the files, float32."""
    for file in files:
        with opening(file) as opened:
            for name in list(opened.keys()):
                dtype = opened.get_slice(name).get_dtype()
                # Old checkpoints number their positions; nothing else is an integer unless it is quantized.
                if dtype in _FLOATS:
                    yield name, opened.get_tensor(name).astype(np.float32)
                elif name.endswith("position_ids"):
                    yield name, opened.get_tensor(name)
                else:
                    raise Mistake(f"{file.name}: {name} is {dtype}. Only {', '.join(_FLOATS)} can be read.")


@contextlib.contextmanager
def opening(file: Path) -> Iterator[Any]:
    """A safetensors file; Mistake for one that is missing, damaged or a pickle."""
    _check_magic(file)
    try:
        with safetensors.safe_open(file, framework="numpy") as opened:
            yield opened
    except safetensors.SafetensorError as error:
        raise Mistake(f"{file.name}: it is damaged, or isn't safetensors: {error}") from None


def json_object(file: Path) -> dict:
    """What a JSON file holds; Mistake for one that is missing, or holds something else."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise Mistake(f"it has no {file.name}.") from None
    except (ValueError, RecursionError) as error:
        raise Mistake(f"{file.name}: it isn't JSON: {error}") from None
    if not isinstance(value, dict):
        raise Mistake(f"{file.name}: it isn't a JSON object.")
    return value


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


def _check_there(weight_map: dict[str, str], shards: list[Path]) -> None:
    """Mistake for tensors that an index says are in a file, and aren't."""
    there: dict[str, set[str]] = {}
    for shard in shards:
        with opening(shard) as opened:
            there[shard.name] = set(opened.keys())
    phantoms = [f"{name} ({shard})" for name, shard in sorted(weight_map.items()) if name not in there[shard]]
    if phantoms:
        raise Mistake(f"{INDEX}: it names tensors that are not in their files: {', '.join(phantoms)}.")


def _check_magic(file: Path) -> None:
    """Mistake for a pickle, or an archive of them, called safetensors. That format is 8 bytes of length, then JSON."""
    if not file.is_file():
        raise Mistake(f"{file.name} is missing.")
    with file.open("rb") as opened:
        start = opened.read(9)
    is_pickle = start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    if start[8:9] != b"{" and (start.startswith(b"PK") or is_pickle):
        raise Mistake(f"{file.name} {_NO_PICKLE}")
