"""Evaluation: every held-out example once, added up exactly, beside what always saying the commonest label would get."""

import collections

import numpy as np

from data.loader import Loader
from parallel.parameters import Params
from parallel.sums import Sums, add
from training import hosts
from training.metrics import fetch, finish
from training.prefetch import Prefetch
from training.program import Program

OTHER_DATA = "Every process must read the same data, in the same order: from one shared folder, or from equal copies."

# Where an objective's labels are in a batch, and their weights.
_LABELS = {"masked_labels": "masked_weights", "targets": "loss_weights", "labels": "label_weights", "label": "weight"}


def evaluate(program: Program, params: Params) -> dict[str, float]:
    """Each metric over the whole evaluation split; the last batch is filled with padding, which weighs nothing."""
    experiment = program.experiment
    size = experiment.eval_batch_size
    with Loader(
        experiment.data, "eval", size, experiment.seed, rows=program.rows(size), end="stop", remainder="pad"
    ) as loader:
        hosts.same("the evaluation split", loader.fingerprint() if hosts.several() else "", OTHER_DATA)
        total: Sums = {}
        with Prefetch(loader, lambda rows: program.global_batch(rows, size)) as batches:
            for batch in batches:
                # Added as Python floats: float32 would stop counting at 2**24.
                total = add(total, fetch(program.eval_step(params, batch)))
    return finish(total)


def commonest_label_accuracy(program: Program) -> float | None:
    """The accuracy of always predicting the label that is commonest in the evaluation split; None for objectives
    without labels.
    """
    experiment = program.experiment
    counts: collections.Counter = collections.Counter()
    with Loader(
        experiment.data, "eval", experiment.eval_batch_size, experiment.seed, end="stop", remainder="pad"
    ) as loader:
        for batch in loader:
            for labels, weights in _LABELS.items():
                if labels in batch:
                    real = batch[labels][batch[weights] > 0]
                    counts.update(dict(zip(*(v.tolist() for v in np.unique(real, return_counts=True)), strict=True)))
    return max(counts.values()) / sum(counts.values()) if counts else None
