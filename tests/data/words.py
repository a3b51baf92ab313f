"""A source and a tokenizer over plain words, so that tests can read what comes out."""

from collections.abc import Sequence

import numpy as np

from data.sources.splits import select


class Words:
    """A tokenizer: token 5 + n is the n-th of 'w0 w1 ...', or of '+0 +1 ...', which go on with the word before."""

    cls_id, sep_id, mask_id = 2, 3, 4
    begin_id, end_id = 2, 3
    identity = "words"

    def __init__(self, vocab_size: int = 1000, words: int = 500):
        self.vocab_size = vocab_size
        self._words = words
        self.is_special = np.arange(vocab_size) < 5
        self.ordinary_ids = np.arange(5, vocab_size, dtype=np.int32)
        self.is_continuation = np.arange(vocab_size) >= 5 + words

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self.id(word) for word in text.split()] for text in texts]

    def id(self, word: str) -> int:
        return 5 + int(word[1:]) + (self._words if word.startswith("+") else 0)


class Records:
    """A source of given records."""

    def __init__(self, **splits: list[dict]):
        self._splits = splits

    def open(self, split: str):
        return select(self._splits, split, "records")

    def identity(self, split: str) -> str:
        return repr(list(self.open(split)))


def documents(*lengths: int) -> list[dict]:
    """Records of texts of these many words, all words of all texts different."""
    first = np.cumsum([0, *lengths])
    return [{"text": " ".join(f"w{n}" for n in range(first[i], first[i + 1]))} for i in range(len(lengths))]
