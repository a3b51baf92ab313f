"""Another vocabulary or another longest sequence for a checkpoint, without retraining."""

import dataclasses

import numpy as np

from mistake import Mistake
from models.pretrained.checkpoint import Checkpoint

_TOKENS, _POSITIONS = "encoder.embeddings.token.table", "encoder.embeddings.position.table"


def resize_vocabulary(checkpoint: Checkpoint, size: int) -> tuple[Checkpoint, str]:
    """The checkpoint with `size` tokens, and what was done: new rows are the mean row, fewer are the first."""
    _check("--vocab_size", size)
    old = checkpoint.params[_TOKENS].shape[0]
    params = dict(checkpoint.params)
    for path in (_TOKENS, "head.bias"):
        # A classification head's bias is over classes.
        if path in params and (path == _TOKENS or "head.kernel" not in params):
            params[path] = _with_rows(params[path], size)
    verb = f"cut: the last {old - size} are gone" if size < old else f"padded: {size - old} new are the mean row"
    said = f"vocabulary of {old} {verb}" if size != old else f"vocabulary is {size} already"
    return _changed(checkpoint, params, "bert.vocab_size", size), said


def resize_positions(checkpoint: Checkpoint, size: int) -> tuple[Checkpoint, str]:
    """The checkpoint with `size` positions, and what was done: fewer are the first, more are interpolated."""
    _check("--positions", size)
    table_PD = checkpoint.params[_POSITIONS]
    old = table_PD.shape[0]
    if size <= old:
        new_PD, said = (
            table_PD[:size],
            f"positions cut from {old} to {size}" if size < old else f"positions are {size} already",
        )
    else:
        at = np.linspace(0, old - 1, size)
        left = np.minimum(at.astype(int), max(old - 2, 0))
        share = (at - left)[:, None]
        right = np.minimum(left + 1, old - 1)
        new_PD = ((1 - share) * table_PD[left] + share * table_PD[right]).astype(np.float32)
        said = f"positions interpolated from {old} to {size}"
    return _changed(checkpoint, {**checkpoint.params, _POSITIONS: new_PD.copy()}, "bert.max_length", size), said


def _with_rows(table: np.ndarray, size: int) -> np.ndarray:
    mean = table.mean(0, dtype=np.float64, keepdims=True).astype(np.float32)
    more = max(size - len(table), 0)
    return np.concatenate([table[:size], np.repeat(mean, more, axis=0)])


def _changed(checkpoint: Checkpoint, params: dict[str, np.ndarray], binding: str, size: int) -> Checkpoint:
    return dataclasses.replace(checkpoint, params=params, settings={**checkpoint.settings, binding: size})


def _check(flag: str, size: int) -> None:
    if size < 1:
        raise Mistake(f"{flag}: {size}. It must be at least 1.")
