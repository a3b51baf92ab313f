"""Random tokens in the shape of masked LM batches: for benchmarks and plans, where what they say doesn't matter."""

from collections.abc import Sequence

import gin
import grain
import numpy as np

from data.features import Feature, sequence
from data.masking import predictions
from data.tasks.task import Example, Split, check_at_least, check_epochs, stream


@gin.configurable("synthetic_masked_lm_data")
class SyntheticMaskedLMData:
    """Full rows of one document each, with `max_predictions` tokens to predict; no file and no network is touched.

    Args:
      length: tokens of a row.
      max_predictions: at most `length`.
      vocab_size: tokens are drawn from 1 to vocab_size - 1.
      train_examples, eval_examples: examples of an epoch.
    """

    def __init__(
        self,
        length: int = gin.REQUIRED,
        max_predictions: int = gin.REQUIRED,
        vocab_size: int = gin.REQUIRED,
        train_examples: int = 65536,
        eval_examples: int = 256,
    ):
        binding = "synthetic_masked_lm_data"
        check_at_least(f"{binding}.max_predictions", max_predictions, 1, "predicts nothing")
        check_at_least(f"{binding}.length", length, max_predictions, f"is less than {binding}.max_predictions")
        check_at_least(f"{binding}.vocab_size", vocab_size, 2, "leaves no token beside padding")
        check_epochs(binding, train_examples, eval_examples)
        self.vocab_size = vocab_size
        self._length, self._max_predictions = length, max_predictions
        self._examples = {"train": train_examples, "eval": eval_examples}

    def features(self) -> dict[str, Feature]:
        return sequence(self._length) | predictions(self._max_predictions)

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        numbers: Sequence[int] = range(self._examples[split])
        return grain.MapDataset.source(numbers).random_map(self._draw, seed=stream(seed, f"{split} tokens"))

    def _draw(self, number: int, rng: np.random.Generator) -> Example:
        tokens = rng.integers(1, self.vocab_size, self._length, np.int32)
        at = np.sort(rng.choice(self._length, self._max_predictions, replace=False))
        return {
            "tokens": tokens,
            "segment_ids": np.ones(self._length, np.int32),
            "positions": np.arange(self._length, dtype=np.int32),
            "token_types": np.zeros(self._length, np.int32),
            "masked_positions": at.astype(np.int32),
            "masked_labels": rng.integers(1, self.vocab_size, self._max_predictions, np.int32),
            "masked_weights": np.ones(self._max_predictions, np.float32),
        }
