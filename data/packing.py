"""Packing as an index: which stretches of documents share a row, planned from lengths, so any row is read alone."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from data.corpus import Corpus
from data.frame import FRAME, frame
from data.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Plan:
    """Row r holds pieces offsets[r] to offsets[r + 1]; piece p is tokens start[p] to stop[p] of document[p]. int64."""

    document: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1


def plan(lengths: np.ndarray, length: int, pack: bool = True, framed: int = FRAME) -> Plan:
    """Rows of at most `length` tokens for documents of these lengths [documents], each with `framed` tokens around it.

    A document that is too long is cut into full rows and a rest. Then the pieces, longest first, each go into the row
    with the least room that is enough (best fit decreasing; Krell et al. 2021, "Efficient Sequence Packing without
    Cross-contamination", pack by lengths in the same spirit). pack=False gives each piece a row.
    """
    document, start, stop = pieces(lengths, length - framed)
    sizes = stop - start + framed
    rows = _best_fit(sizes, length) if pack else np.arange(len(sizes))
    order = np.argsort(rows, kind="stable")
    offsets = np.searchsorted(rows[order], np.arange(rows.max(initial=-1) + 2))
    return Plan(document[order], start[order], stop[order], offsets)


def pieces(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(document, start, stop) of each piece, in the order of the text; empty documents have none."""
    counts = -(-lengths // capacity)
    document = np.repeat(np.arange(len(lengths)), counts)
    nth = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = nth * capacity
    return document, start, np.minimum(start + capacity, lengths[document])


def _best_fit(sizes: np.ndarray, length: int) -> np.ndarray:
    """The row of each piece; rows are numbered by their first piece in the text, so that near pieces stay near."""
    row_of = np.zeros(len(sizes), np.int64)
    rows = 0
    with_room: list[list[int]] = [[] for _ in range(length + 1)]  # rows by the tokens they still have room for
    rooms = 0  # bit n: some row has room for n tokens
    for piece in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[piece])
        enough = rooms >> size
        if enough:
            room = size + (enough & -enough).bit_length() - 1
            row = with_room[room].pop()
            if not with_room[room]:
                rooms &= ~(1 << room)
        else:
            room, row = length, rows
            rows += 1
        row_of[piece] = row
        with_room[room - size].append(row)
        rooms |= 1 << (room - size)
    _, first = np.unique(row_of, return_index=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[row_of]


class PackedRows(Sequence):
    """The rows of a plan, by number, as `frame` makes them."""

    def __init__(self, corpus: Corpus, plan: Plan, length: int, tokenizer: Tokenizer):
        self._corpus, self._plan, self._length, self._tokenizer = corpus, plan, length, tokenizer

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, row: int) -> dict[str, np.ndarray]:
        plan = self._plan
        held = range(plan.offsets[row], plan.offsets[row + 1])
        documents = [self._corpus.read(plan.document[piece], plan.start[piece], plan.stop[piece]) for piece in held]
        return frame(documents, self._length, self._tokenizer)
