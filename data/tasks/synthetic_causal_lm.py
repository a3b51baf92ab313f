"""Sequences in the shape of causal LM batches, with something in them to learn: no file and no network is touched."""

from collections.abc import Sequence

import gin
import grain
import numpy as np

from data.features import Feature
from data.next_tokens import fields
from data.tasks.task import Example, Split, check_at_least, check_epochs, check_share, stream


@gin.configurable("synthetic_causal_lm_data")
class SyntheticCausalLMData:
    """Full rows of one document each. A token is followed by that of the next number, and by any other now and then.

    Args:
      length: tokens of a row.
      vocab_size: tokens are 1 to vocab_size - 1, in a circle.
      noise: the share of tokens that are drawn at random instead; 1 leaves nothing to learn.
      train_examples, eval_examples: examples of an epoch.
    """

    def __init__(
        self,
        length: int = gin.REQUIRED,
        vocab_size: int = gin.REQUIRED,
        noise: float = 0.1,
        train_examples: int = 65536,
        eval_examples: int = 256,
    ):
        binding = "synthetic_causal_lm_data"
        check_at_least(f"{binding}.length", length, 1, "holds no token")
        check_at_least(f"{binding}.vocab_size", vocab_size, 2, "leaves no token beside padding")
        check_share(f"{binding}.noise", noise)
        check_epochs(binding, train_examples, eval_examples)
        self.vocab_size = vocab_size
        self._length, self._noise = length, noise
        self._examples = {"train": train_examples, "eval": eval_examples}

    def features(self) -> dict[str, Feature]:
        return fields(self._length)

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        numbers: Sequence[int] = range(self._examples[split])
        return grain.MapDataset.source(numbers).random_map(self._draw, seed=stream(seed, f"{split} tokens"))

    def _draw(self, number: int, rng: np.random.Generator) -> Example:
        kinds = self.vocab_size - 1
        # A jump is a step drawn at random; the walk is the sum of its steps.
        jumps = rng.random(self._length + 1) < self._noise
        jumps[0] = True
        steps = np.where(jumps, rng.integers(0, kinds, self._length + 1), 1)
        written = (1 + np.cumsum(steps) % kinds).astype(np.int32)
        return {
            "tokens": written[:-1],
            "segment_ids": np.ones(self._length, np.int32),
            "positions": np.arange(self._length, dtype=np.int32),
            "targets": written[1:],
            "loss_weights": np.ones(self._length, np.float32),
        }
