"""Starts a run from a checkpoint: tensors go to parameters of the same path and shape; all others are accounted for."""

import fnmatch
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mistake import Mistake
from models.pretrained.checkpoint import read
from parallel.parameters import Declared


def load_for_init(
    path: str | Path, declared: Mapping[str, Declared], fresh: tuple[str, ...] = ("head.*", "encoder.pooler.*")
) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """(parameters to start from, declared paths that stay fresh, paths of the checkpoint that the run has no use for).

    Args:
      path: a folder, Hugging Face's or one that `import` made.
      declared: the run's parameters.
      fresh: glob patterns of the paths that may start fresh, absent from the checkpoint or of another shape in it.

    Raises Mistake, beginning with 'experiment.init_from', with all missing and mis-shaped paths together.
    """
    try:
        found = read(path).params
    except Mistake as mistake:
        raise Mistake(f"experiment.init_from: {mistake}") from None
    loaded = {name: x for name, x in found.items() if name in declared and x.shape == tuple(declared[name].shape)}
    absent = sorted(declared.keys() - loaded.keys())
    may_be_fresh = [name for name in absent if any(fnmatch.fnmatchcase(name, pattern) for pattern in fresh)]
    faults = [_fault(name, found, declared) for name in absent if name not in may_be_fresh]
    if faults:
        raise Mistake(
            "\n  ".join([f"experiment.init_from: {path} does not fit the run's model.", *faults])
            + "\n  Include its model.gin, or let them start fresh with a pattern in experiment.fresh."
        )
    return loaded, may_be_fresh, sorted(found.keys() - loaded.keys())


def _fault(name: str, found: Mapping[str, np.ndarray], declared: Mapping[str, Declared]) -> str:
    wanted = list(declared[name].shape)
    return (
        f"mis-shaped: {name} is {list(found[name].shape)}, not {wanted}"
        if name in found
        else f"missing: {name} {wanted}"
    )
