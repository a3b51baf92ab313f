"""Batches of a task, by step: batch t is examples t * size to (t + 1) * size. Made in the background, by Grain."""

import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Literal, Self

import grain
import numpy as np

from data.features import Feature
from data.tasks.task import Split, Task

Batch = dict[str, np.ndarray]


class Loader:
    """An iterator over the batches of a split, from `start_step` on. Close it, or use it as a context.

    Each batch is a function of (task, split, seed, size, step) alone: resuming costs nothing, and the rows that
    processes hold make up the same global batch however many they are.

    Args:
      task, split: whose examples.
      batch_size: examples of the GLOBAL batch.
      seed: of order and noise.
      start_step: number of the first batch.
      rows: which rows of the global batch to make, in this order; None is all.
      end: 'repeat' goes on with the next epoch, reshuffled; a batch may lie across the two. 'stop' ends after one.
      remainder: of 'stop': 'pad' fills the last batch with zeros, which mean padding; 'drop' leaves an uneven one out.
      threads: make batches in the background; 0 makes each when asked for.
      prefetch: batches made ahead.

    Attributes:
      num_batches: of the split from step 0, known before any is made, and the same in every process; None for 'repeat'.
      examples: of an epoch, without batches.
      waited: seconds that `next` has waited for a batch, so far.
    """

    def __init__(
        self,
        task: Task,
        split: Split,
        batch_size: int,
        seed: int,
        start_step: int = 0,
        rows: slice | Sequence[int] | None = None,
        end: Literal["repeat", "stop"] = "repeat",
        remainder: Literal["pad", "drop"] = "pad",
        threads: int = 2,
        prefetch: int = 4,
    ):
        assert batch_size > 0 and start_step >= 0 and end in ("repeat", "stop") and remainder in ("pad", "drop")
        if rows is None:
            rows = slice(None)
        numbers = range(batch_size)[rows] if isinstance(rows, slice) else rows
        self.examples = task.examples(split, seed)
        batches = _Batches(self.examples, task.features(), batch_size, numbers, end, remainder)
        self.num_batches = None if end == "repeat" else len(batches)
        self.waited = 0.0
        ahead = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=prefetch)
        self._iterator = iter(grain.MapDataset.source(batches).slice(slice(start_step, None)).to_iter_dataset(ahead))
        self._iterator.start_prefetch()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        began = time.perf_counter()
        try:
            return next(self._iterator)
        finally:
            self.waited += time.perf_counter() - began

    def fingerprint(self) -> str:
        """What tells other data from this: how many examples there are, and what the first is."""
        first = self.examples[0] if len(self.examples) else {}
        crc = 0
        for name in sorted(first):
            crc = zlib.crc32(np.ascontiguousarray(first[name]).tobytes(), zlib.crc32(name.encode(), crc))
        return f"{len(self.examples)} examples, checksum of the first {crc:08x}"

    def close(self) -> None:
        """Stops the threads."""
        self._iterator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class _Batches(Sequence):
    """Batch t, of the rows `numbers` of it."""

    def __init__(
        self,
        examples: grain.MapDataset,
        features: dict[str, Feature],
        batch_size: int,
        numbers: Sequence[int],
        end: str,
        remainder: str,
    ):
        self._examples, self._features, self._batch_size, self._numbers = examples, features, batch_size, numbers
        epoch = len(examples)
        self._num_examples = sys.maxsize if end == "repeat" else epoch
        whole, rest = divmod(self._num_examples, batch_size)
        self._length = whole + (1 if rest and end == "stop" and remainder == "pad" else 0)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, step: int) -> Batch:
        batch = {name: feature.zeros(len(self._numbers)) for name, feature in self._features.items()}
        for row, number in enumerate(self._numbers):
            index = step * self._batch_size + number
            if index < self._num_examples:
                example = self._examples[index]
                assert example.keys() == batch.keys(), (sorted(example), sorted(batch))
                for name, value in example.items():
                    batch[name][row] = value
        return batch
