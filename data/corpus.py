"""A split's texts as token ids, tokenised once and kept on disk: any stretch of any document is read alone."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data import cache
from data.records import text as text_of
from data.sources.source import Record, Source
from data.tokenizer import Tokenizer
from mistake import Mistake

_DOCUMENTS_AT_ONCE = 1024


class Corpus:
    """Tokenised documents, by number, from a folder with tokens.npy and offsets.npy.

    Attributes:
      tokens: [total] memory-mapped; document i is tokens[offsets[i]:offsets[i + 1]], without special tokens.
      offsets: int64 [documents + 1].
    """

    def __init__(self, folder: Path):
        self.tokens = np.load(folder / "tokens.npy", mmap_mode="r", allow_pickle=False)
        self.offsets = np.load(folder / "offsets.npy", allow_pickle=False)

    @property
    def lengths(self) -> np.ndarray:
        """int64 [documents]: tokens of each."""
        return np.diff(self.offsets)

    def read(self, document: int, start: int, stop: int) -> np.ndarray:
        """Tokens start to stop of a document, int32."""
        first = self.offsets[document]
        return self.tokens[first + start : first + stop].astype(np.int32)

    def head(self, document: int, count: int) -> np.ndarray:
        """The first `count` tokens of a document, or all it has, int32."""
        return self.read(document, 0, min(count, self.offsets[document + 1] - self.offsets[document]))


def tokenise(source: Source, split: str, tokenizer: Tokenizer, text: str, binding: str) -> Corpus:
    """The corpus of a split: from the cache, or made now. `binding` holds the field's name `text`, for messages."""
    records = source.open(split)
    key = cache.key(source.identity(split), text, tokenizer.identity)
    make = functools.partial(_write, records=records, tokenizer=tokenizer, text=text, binding=binding)
    return Corpus(cache.build(cache.folder() / "corpora" / key, make))


def _write(folder: Path, records: Sequence[Record], tokenizer: Tokenizer, text: str, binding: str) -> None:
    dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32
    lengths = [0]
    raw = folder / "tokens.raw"
    with raw.open("wb") as out:
        for first in range(0, len(records), _DOCUMENTS_AT_ONCE):
            some = range(first, min(first + _DOCUMENTS_AT_ONCE, len(records)))
            for ids in tokenizer.encode_batch([text_of(records[i], text, binding) for i in some]):
                lengths.append(len(ids))
                out.write(np.asarray(ids, dtype).tobytes())
    offsets = np.cumsum(lengths, dtype=np.int64)
    if not offsets[-1]:
        raise Mistake(f"{binding}: the {len(records)} records hold no text at all.")
    np.save(folder / "offsets.npy", offsets, allow_pickle=False)
    # .npy says its length first, so it is written once that is known.
    tokens = np.lib.format.open_memmap(folder / "tokens.npy", mode="w+", dtype=dtype, shape=(int(offsets[-1]),))
    tokens[:] = np.memmap(raw, dtype, mode="r")
    tokens.flush()
    raw.unlink()
