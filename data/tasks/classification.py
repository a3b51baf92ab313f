"""One class for each text."""

from collections.abc import Sequence

import gin
import grain
import numpy as np

from data.corpus import Corpus, tokenise
from data.features import Feature, sequence
from data.frame import FRAME, frame
from data.sources.source import Record, Source
from data.sources.splits import naming
from data.tasks.labels import Labels
from data.tasks.task import Example, Split, check_at_least, check_splits, require_rows, stream
from data.tokenizer import Tokenizer


@gin.configurable("classification_data")
class ClassificationData:
    """[CLS] text [SEP] with its label; a longer text is cut after `length` tokens.

    Args:
      source, tokenizer: such as `@tfds()`, `@wordpiece()`.
      length: tokens, [CLS] and [SEP] included.
      num_classes: labels are 0 to num_classes - 1.
      labels: names of the classes, in order, where the records' label is text; None where it is a number.
      train_split, eval_split: of the source.
      text, label: the records' fields.
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
        text: str = "text",
        label: str = "label",
    ):
        check_at_least("classification_data.length", length, FRAME + 1, "leaves no room beside [CLS] and [SEP]")
        self._source, self.tokenizer, self._length, self._text = source, tokenizer, length, text
        self.num_classes = num_classes
        self._labels = Labels("classification_data", label, num_classes, labels)
        self._splits = {"train": train_split, "eval": eval_split}
        check_splits(source, self._splits, "classification_data.{}_split")

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def features(self) -> dict[str, Feature]:
        return sequence(self._length) | {"label": Feature((), "int32", ()), "weight": Feature((), "float32", ())}

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        binding, name = f"classification_data.{split}_split", self._splits[split]
        with naming(binding):
            records = self._source.open(name)
            corpus = tokenise(self._source, name, self.tokenizer, self._text, "classification_data.text")
        require_rows(binding, name, len(records))
        dataset = grain.MapDataset.range(len(records))
        if split == "train":
            dataset = dataset.shuffle(seed=stream(seed, "order"))
        return dataset.map(lambda number: self._example(records, corpus, number))

    def _example(self, records: Sequence[Record], corpus: Corpus, number: int) -> Example:
        text = corpus.head(number, self._length - FRAME)
        return frame([text], self._length, self.tokenizer) | {
            "label": np.int32(self._labels.number(records[number])),
            "weight": np.float32(1),
        }
