"""What every task offers, and what tasks share: random streams and checks."""

import hashlib
from collections.abc import Mapping
from typing import Literal, Protocol

import grain
import numpy as np

from data.features import Feature
from data.sources.source import Source
from data.sources.splits import check_split
from mistake import Mistake

Split = Literal["train", "eval"]
Example = dict[str, np.ndarray]


class Task(Protocol):
    """Examples by number, as fields of a batch without its leading dimension.

    A task whose batches hold tokens has `vocab_size`; one with classes has `num_classes`.
    """

    def features(self) -> dict[str, Feature]:
        """Every field of an example; touches no data."""

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        """One epoch: 'train' in an order drawn from `seed`, 'eval' in the order of the source.

        Element i is a function of (split, seed, i) alone. Elements past the end are those of later epochs, with an
        order and noise of their own: that is what MapDataset.repeat() yields.
        """


def stream(seed: int, name: str) -> int:
    """A seed, 0 to 2**32 - 1, for the randomness called `name` of a run with `seed`."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:4], "big")


def check_at_least(binding: str, value: int, least: int, why: str) -> None:
    """Raises Mistake when value < least."""
    if value < least:
        raise Mistake(f"{binding}: {value} {why}. It must be at least {least}.")


def check_epochs(binding: str, train_examples: int, eval_examples: int) -> None:
    """Raises Mistake when a synthetic task has no example."""
    check_at_least(f"{binding}.train_examples", train_examples, 1, "is no epoch")
    check_at_least(f"{binding}.eval_examples", eval_examples, 1, "is no epoch")


def check_share(binding: str, value: float) -> None:
    """Raises Mistake when value is not from 0 to 1."""
    if not 0 <= value <= 1:
        raise Mistake(f"{binding}: {value} is not a share from 0 to 1.")


def check_max_predictions(binding: str, max_predictions: int, length: int) -> None:
    """Raises Mistake for a number of tokens to predict that a row of `length` can't have."""
    check_at_least(f"{binding}.max_predictions", max_predictions, 1, "predicts nothing")
    if max_predictions > length:
        raise Mistake(
            f"{binding}.max_predictions: {max_predictions} of a row's {binding}.length = {length} tokens. "
            f"It must be at most {length}; 0.15 of them is usual."
        )


def check_splits(source: Source, splits: Mapping[str, str], binding: str) -> None:
    """Raises Mistake for a split that the source is known not to have. binding: of a split, with {} for 'train' or
    'eval'.
    """
    for split, name in splits.items():
        check_split(source, name, binding.format(split))


def require_rows(binding: str, split: str, count: int) -> None:
    """Raises Mistake for a split without a single example."""
    if not count:
        raise Mistake(f"{binding}: {split!r} holds no example.")
