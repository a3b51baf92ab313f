"""Masked language modelling over a source of texts."""

import gin
import grain

from data.corpus import tokenise
from data.features import Feature, sequence
from data.frame import FRAME
from data.masking import Masking, predictions
from data.packing import PackedRows, plan
from data.sources.source import Source
from data.sources.splits import naming
from data.tasks.task import Split, check_at_least, check_max_predictions, check_splits, require_rows, stream
from data.tokenizer import Tokenizer
from mistake import Mistake


@gin.configurable("masked_lm_data")
class MaskedLMData:
    """Rows of packed documents with tokens to predict.

    Args:
      source: of texts, such as `@pydoc_topics()`.
      tokenizer: such as `@wordpiece()`.
      length: tokens of a row, [CLS] and [SEP] of each document included. Longer documents are cut.
      max_predictions: tokens to predict in a row, at most; mask_rate * length rounded up leaves none out.
      mask_rate, whole_word: see Masking.
      train_split, eval_split: of the source.
      pack: False gives each document, or piece of one, a row.
      text: the records' field.
    """

    def __init__(
        self,
        source: Source = gin.REQUIRED,
        tokenizer: Tokenizer = gin.REQUIRED,
        length: int = gin.REQUIRED,
        max_predictions: int = gin.REQUIRED,
        mask_rate: float = 0.15,
        whole_word: bool = False,
        train_split: str = "train",
        eval_split: str = "validation",
        pack: bool = True,
        text: str = "text",
    ):
        check_at_least("masked_lm_data.length", length, FRAME + 1, "leaves no room beside [CLS] and [SEP]")
        check_max_predictions("masked_lm_data", max_predictions, length)
        if not 0 < mask_rate < 1:
            raise Mistake(f"masked_lm_data.mask_rate: {mask_rate} is not a share between 0 and 1.")
        self._source, self.tokenizer, self._length, self._pack, self._text = source, tokenizer, length, pack, text
        self._masking = Masking(tokenizer, max_predictions, mask_rate, whole_word)
        self._splits = {"train": train_split, "eval": eval_split}
        check_splits(source, self._splits, "masked_lm_data.{}_split")
        self._rows: dict[str, PackedRows] = {}

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def features(self) -> dict[str, Feature]:
        return sequence(self._length) | predictions(self._masking.max_predictions)

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        dataset = grain.MapDataset.source(self.rows(split))
        if split == "train":
            dataset = dataset.shuffle(seed=stream(seed, "order"))
        return dataset.random_map(self._masking, seed=stream(seed, f"{split} masking"))

    def rows(self, split: Split) -> PackedRows:
        """The packed rows of a split, before masking, in the order of the text."""
        if split not in self._rows:
            binding, name = f"masked_lm_data.{split}_split", self._splits[split]
            with naming(binding):
                corpus = tokenise(self._source, name, self.tokenizer, self._text, "masked_lm_data.text")
            rows = PackedRows(corpus, plan(corpus.lengths, self._length, self._pack), self._length, self.tokenizer)
            require_rows(binding, name, len(rows))
            self._rows[split] = rows
        return self._rows[split]
