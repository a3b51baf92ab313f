"""Which tokens a masked LM must predict, and what stands in their place (Devlin et al. 2018, appendix A.1)."""

import dataclasses

import numpy as np

from data.features import Feature
from data.tokenizer import Tokenizer


def predictions(max_predictions: int) -> dict[str, Feature]:
    """The fields that masking adds to a row."""
    return {
        "masked_positions": Feature((max_predictions,), "int32", ("predictions",)),
        "masked_labels": Feature((max_predictions,), "int32", ("predictions",)),
        "masked_weights": Feature((max_predictions,), "float32", ("predictions",)),
    }


@dataclasses.dataclass(frozen=True)
class Masking:
    """Masks `rate` of a row's tokens: 80% become [MASK], 10% a random token, 10% stay.

    Args:
      tokenizer: says what is special: such tokens, and padding, are neither masked nor drawn as random tokens.
      max_predictions: at most so many a row; at least one, where there is a token.
      rate: of the row's ordinary tokens, over all documents packed in it.
      whole_word: all tokens of a word are masked or none. Words that would exceed the number are passed over, so a row
        may get fewer.
    """

    tokenizer: Tokenizer
    max_predictions: int
    rate: float
    whole_word: bool = False

    def __call__(self, row: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """`row` with tokens [S] masked, and the fields of `predictions` [P]: positions ascend, the rest is zeros."""
        tokens = row["tokens"].copy()
        candidates = np.flatnonzero((row["segment_ids"] != 0) & ~self.tokenizer.is_special[tokens])
        count = min(self.max_predictions, max(1, round(self.rate * len(candidates))), len(candidates))
        if self.whole_word:
            chosen = self._words(tokens, candidates, count, rng)
        else:
            chosen = np.sort(rng.permutation(candidates)[:count])

        out = {name: feature.zeros() for name, feature in predictions(self.max_predictions).items()}
        out["masked_positions"][: len(chosen)] = chosen
        out["masked_labels"][: len(chosen)] = tokens[chosen]
        out["masked_weights"][: len(chosen)] = 1.0

        fate = rng.random(len(chosen))
        tokens[chosen[fate < 0.8]] = self.tokenizer.mask_id
        swapped = chosen[(fate >= 0.8) & (fate < 0.9)]
        tokens[swapped] = rng.choice(self.tokenizer.ordinary_ids, len(swapped))
        return row | {"tokens": tokens} | out

    def _words(self, tokens: np.ndarray, candidates: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Positions, ascending, of random whole words: at most `count`."""
        # A word also begins after what can't be masked: a document's piece may start in the middle of a word.
        begins = ~self.tokenizer.is_continuation[tokens[candidates]] | (np.diff(candidates, prepend=-2) > 1)
        words = np.split(candidates, np.flatnonzero(begins)[1:])
        chosen: list[int] = []
        for word in rng.permutation(len(words)):
            if len(chosen) + len(words[word]) <= count:
                chosen.extend(words[word])
            if len(chosen) == count:
                break
        return np.sort(np.asarray(chosen, np.int64))
