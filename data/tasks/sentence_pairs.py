"""Pairs of texts that belong together, for sentence embeddings."""

from collections.abc import Callable

import gin
import grain
import numpy as np

from data.corpus import tokenise
from data.features import Feature, sequence
from data.frame import FRAME, frame
from data.packing import pieces
from data.sources.source import Source
from data.sources.splits import naming
from data.tasks.task import Example, Split, check_at_least, check_splits, require_rows, stream
from data.tokenizer import Tokenizer

# The two texts of a pair, by the pair's number.
Pair = Callable[[int], tuple[np.ndarray, np.ndarray]]


@gin.configurable("sentence_pairs_data")
class SentencePairsData:
    """Two texts, [CLS] text [SEP] each: the fields of the second begin with 'pair_'.

    Args:
      source, tokenizer: such as `@pydoc_topics()`, `@wordpiece()`.
      length: tokens of each, [CLS] and [SEP] included.
      min_tokens: texts that would have fewer make no pair.
      train_split, eval_split: of the source.
      text: the records' field.
      pair: the field that holds the other text, which is cut where it is too long. None: a document is cut into
        stretches of twice the length, and the halves of each stretch are a pair.
    """

    def __init__(
        self,
        source: Source = gin.REQUIRED,
        tokenizer: Tokenizer = gin.REQUIRED,
        length: int = gin.REQUIRED,
        min_tokens: int = 8,
        train_split: str = "train",
        eval_split: str = "validation",
        text: str = "text",
        pair: str | None = None,
    ):
        check_at_least("sentence_pairs_data.min_tokens", min_tokens, 1, "would pair texts without tokens")
        check_at_least(
            "sentence_pairs_data.length", length, min_tokens + FRAME, "leaves no room for min_tokens, [CLS] and [SEP]"
        )
        self._source, self.tokenizer, self._length, self._min_tokens = source, tokenizer, length, min_tokens
        self._splits = {"train": train_split, "eval": eval_split}
        check_splits(source, self._splits, "sentence_pairs_data.{}_split")
        self._text, self._pair = text, pair

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def features(self) -> dict[str, Feature]:
        fields = sequence(self._length)
        pair = {f"pair_{name}": feature for name, feature in fields.items()}
        return fields | pair | {"weight": Feature((), "float32", ())}

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        binding, name = f"sentence_pairs_data.{split}_split", self._splits[split]
        with naming(binding):
            count, pair = self._halves(name) if self._pair is None else self._columns(name)
        require_rows(binding, name, count)
        dataset = grain.MapDataset.range(count)
        if split == "train":
            dataset = dataset.shuffle(seed=stream(seed, "order"))
        return dataset.map(lambda number: self._example(*pair(number)))

    def _halves(self, split: str) -> tuple[int, Pair]:
        """How many pairs the stretches of documents make, and each."""
        corpus = tokenise(self._source, split, self.tokenizer, self._text, "sentence_pairs_data.text")
        document, start, stop = pieces(corpus.lengths, 2 * (self._length - FRAME))
        enough = stop - start >= 2 * self._min_tokens
        document, start, stop = document[enough], start[enough], stop[enough]
        middle = (start + stop) // 2

        def pair(n: int) -> tuple[np.ndarray, np.ndarray]:
            return corpus.read(document[n], start[n], middle[n]), corpus.read(document[n], middle[n], stop[n])

        return len(document), pair

    def _columns(self, split: str) -> tuple[int, Pair]:
        """How many records have both texts long enough, and each pair."""
        first = tokenise(self._source, split, self.tokenizer, self._text, "sentence_pairs_data.text")
        second = tokenise(self._source, split, self.tokenizer, self._pair, "sentence_pairs_data.pair")
        numbers = np.flatnonzero(np.minimum(first.lengths, second.lengths) >= self._min_tokens)
        room = self._length - FRAME

        def pair(n: int) -> tuple[np.ndarray, np.ndarray]:
            return first.head(numbers[n], room), second.head(numbers[n], room)

        return len(numbers), pair

    def _example(self, first: np.ndarray, second: np.ndarray) -> Example:
        fields, pair = frame([first], self._length, self.tokenizer), frame([second], self._length, self.tokenizer)
        return fields | {f"pair_{name}": value for name, value in pair.items()} | {"weight": np.float32(1)}
