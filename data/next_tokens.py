"""Documents as a causal LM reads them: each token with the one that follows it in its document."""

from collections.abc import Sequence

import numpy as np

from data.corpus import Corpus
from data.features import Feature
from data.packing import Plan, plan
from data.tokenizer import Tokenizer


def fields(length: int) -> dict[str, Feature]:
    """The fields of a row: tokens, the document each is of (from 1; 0: padding), its position in that, the token that
    follows, and 1 where one does, 0 in padding.
    """
    whole = {
        name: Feature((length,), "int32", ("length",)) for name in ("tokens", "segment_ids", "positions", "targets")
    }
    return whole | {"loss_weights": Feature((length,), "float32", ("length",))}


class NextTokenRows(Sequence):
    """Packed rows of documents, by number.

    A document is written as begin token (if the tokenizer has one), text, end token. Each token but the last stands in one
    row, and its target is the one after it; so the end token is only ever a target, and every other position of a document
    has one, also where the document is cut and goes on in another row. A piece of a document is a segment of its own, with
    positions from 0.

    Args:
      corpus, tokenizer: the documents; empty ones are left out.
      length: tokens of a row.
      pack: False gives each document, or piece of one, a row.
    """

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, length: int, pack: bool):
        self._corpus, self._length = corpus, length
        self._before = np.asarray([] if tokenizer.begin_id is None else [tokenizer.begin_id], np.int32)
        self._after = np.asarray([tokenizer.end_id], np.int32)
        lengths = corpus.lengths
        # As many tokens with a follower as the text and what is before it have.
        self._plan: Plan = plan(np.where(lengths, lengths + len(self._before), 0), length, pack, framed=0)

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, row: int) -> dict[str, np.ndarray]:
        out = {name: feature.zeros() for name, feature in fields(self._length).items()}
        at, pieces = 0, self._plan
        for segment, piece in enumerate(range(pieces.offsets[row], pieces.offsets[row + 1]), start=1):
            written = self._written(pieces.document[piece], pieces.start[piece], pieces.stop[piece] + 1)
            here = slice(at, at + len(written) - 1)
            out["tokens"][here], out["targets"][here] = written[:-1], written[1:]
            out["segment_ids"][here] = segment
            out["positions"][here] = np.arange(len(written) - 1)
            out["loss_weights"][here] = 1
            at = here.stop
        return out

    def _written(self, document: int, start: int, stop: int) -> np.ndarray:
        """Tokens start to stop of a document as it is written, int32."""
        shift, count = len(self._before), self._corpus.lengths[document]
        text = self._corpus.read(document, max(start - shift, 0), min(stop - shift, count))
        return np.concatenate([self._before[start:], text, self._after[: max(0, stop - shift - count)]])
