"""Documents as an encoder reads them: [CLS] document [SEP], one after another, then padding."""

from collections.abc import Sequence

import numpy as np

from data.features import sequence
from data.tokenizer import Tokenizer

# Tokens that a document takes beside its own.
FRAME = 2


def frame(documents: Sequence[np.ndarray], length: int, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Token ids of documents, at most `length` with their frames -> the fields of `sequence`, int32 [length] each.

    Segments number the documents from 1; positions restart in each; zero is padding.
    """
    row = {name: feature.zeros() for name, feature in sequence(length).items()}
    at = 0
    for segment, document in enumerate(documents, start=1):
        here = slice(at, at + len(document) + FRAME)
        row["tokens"][here] = np.concatenate([[tokenizer.cls_id], document, [tokenizer.sep_id]])
        row["segment_ids"][here] = segment
        row["positions"][here] = np.arange(len(document) + FRAME)
        at = here.stop
    return row
