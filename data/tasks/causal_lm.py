"""Next-token prediction over a source of texts."""

import gin
import grain

from data.corpus import tokenise
from data.features import Feature
from data.next_tokens import NextTokenRows, fields
from data.sources.source import Source
from data.sources.splits import naming
from data.tasks.task import Split, check_at_least, check_splits, require_rows, stream
from data.tokenizer import Tokenizer


@gin.configurable("causal_lm_data")
class CausalLMData:
    """Rows of packed documents, each token with the one that follows it.

    Args:
      source: of texts, such as `@pydoc_topics()`.
      tokenizer: such as `@bpe()`; its begin and end tokens are around each document.
      length: tokens of a row. Longer documents are cut; see NextTokenRows.
      train_split, eval_split: of the source.
      pack: False gives each document, or piece of one, a row.
      text: the records' field.
    """

    def __init__(
        self,
        source: Source = gin.REQUIRED,
        tokenizer: Tokenizer = gin.REQUIRED,
        length: int = gin.REQUIRED,
        train_split: str = "train",
        eval_split: str = "validation",
        pack: bool = True,
        text: str = "text",
    ):
        check_at_least("causal_lm_data.length", length, 1, "holds no token")
        self._source, self.tokenizer, self._length, self._pack, self._text = source, tokenizer, length, pack, text
        self._splits = {"train": train_split, "eval": eval_split}
        check_splits(source, self._splits, "causal_lm_data.{}_split")
        self._rows: dict[str, NextTokenRows] = {}

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.vocab_size

    def features(self) -> dict[str, Feature]:
        return fields(self._length)

    def examples(self, split: Split, seed: int) -> grain.MapDataset:
        dataset = grain.MapDataset.source(self.rows(split))
        return dataset.shuffle(seed=stream(seed, "order")) if split == "train" else dataset

    def rows(self, split: Split) -> NextTokenRows:
        """The packed rows of a split, in the order of the text."""
        if split not in self._rows:
            binding, name = f"causal_lm_data.{split}_split", self._splits[split]
            with naming(binding):
                corpus = tokenise(self._source, name, self.tokenizer, self._text, "causal_lm_data.text")
            rows = NextTokenRows(corpus, self.tokenizer, self._length, self._pack)
            require_rows(binding, name, len(rows))
            self._rows[split] = rows
        return self._rows[split]
