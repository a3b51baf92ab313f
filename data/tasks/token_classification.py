"""One class for each word of a sentence."""

from collections.abc import Sequence

import gin
import grain
import numpy as np

from data.features import Feature, sequence
from data.frame import FRAME, frame
from data.records import as_text, field
from data.sources.source import Record, Source
from data.sources.splits import naming
from data.tasks.labels import Labels
from data.tasks.task import Example, Split, check_at_least, check_splits, require_rows, stream
from data.tokenizer import Tokenizer
from mistake import Mistake


@gin.configurable("token_classification_data")
class TokenClassificationData:
    """[CLS] words [SEP]; a word's first token carries its label, the others weigh nothing (Devlin et al. 2018, 5.3).

    Args:
      source, tokenizer: such as `@tfds()`, `@wordpiece()`.
      length: tokens, [CLS] and [SEP] included; a longer sentence is cut.
      num_classes, labels: as for classification_data.
      train_split, eval_split: of the source.
      words, label: the records' fields: lists of the same length.
    """

    def __init__(
        self,
        source: Source = gin.REQUIRED,
        tokenizer: Tokenizer = gin.REQUIRED,
        length: int = gin.REQUIRED,
        num_classes: int = gin.REQUIRED,
        labels: Sequence[str] | None = None,
        train_split: str = "train",
        eval_split: str = "validation",
        words: str = "words",
        label: str = "tags",
    ):
        check_at_least("token_classification_data.length", length, FRAME + 1, "leaves no room beside [CLS] and [SEP]")
        self._source, self.tokenizer, self._length, self._words = source, tokenizer, length, words
        self.num_classes = num_classes
        self._labels = Labels("token_classification_data", label, num_classes, labels)
        self._splits = {"train": train_split, "eval": eval_split}
        check_splits(source, self._splits, "token_classification_data.{}_split")

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def features(self) -> dict[str, Feature]:
        return sequence(self._length) | {
            "labels": Feature((self._length,), "int32", ("length",)),
            "label_weights": Feature((self._length,), "float32", ("length",)),
        }

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        binding, name = f"token_classification_data.{split}_split", self._splits[split]
        with naming(binding):
            records = self._source.open(name)
        require_rows(binding, name, len(records))
        dataset = grain.MapDataset.source(records)
        if split == "train":
            dataset = dataset.shuffle(seed=stream(seed, "order"))
        return dataset.map(self._example)

    def _example(self, record: Record) -> Example:
        binding = "token_classification_data.words"
        words = [as_text(word, f"{binding}: a word") for word in field(record, self._words, binding)]
        labels = self._labels.numbers(record)
        if len(labels) != len(words):
            raise Mistake(f"{binding}: a record has {len(words)} words and {len(labels)} labels.")
        room = self._length - FRAME
        pieces = self.tokenizer.encode_batch(words)
        tokens = [id for piece in pieces for id in piece][:room]
        # A word of no tokens (control characters alone) has no place to carry its label.
        first = np.cumsum([0, *map(len, pieces)])[:-1]
        carries = np.asarray([bool(piece) for piece in pieces], bool) & (first < room)

        out = {name: self.features()[name].zeros() for name in ("labels", "label_weights")}
        out["labels"][first[carries] + 1] = np.asarray(labels, np.int32)[carries]
        out["label_weights"][first[carries] + 1] = 1
        return frame([np.asarray(tokens, np.int32)], self._length, self.tokenizer) | out
