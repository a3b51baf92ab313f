"""Each token of a document is predicted once, from what is before it in its document and nothing else."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.corpus import Corpus, tokenise
from data.next_tokens import NextTokenRows
from tests.data.words import Records, Words, documents


class InMemory(Corpus):
    """Documents of consecutive tokens from 10 on, all different."""

    def __init__(self, lengths):
        self.offsets = np.cumsum([0, *lengths])
        self.tokens = 10 + np.arange(self.offsets[-1])


class Tokens:
    end_id = 3

    def __init__(self, begin_id):
        self.begin_id = begin_id


@given(
    lengths=st.lists(st.integers(0, 25), max_size=15),
    length=st.integers(1, 12),
    begin=st.sampled_from([None, 2]),
    pack=st.booleans(),
)
@settings(deadline=None)
def test_every_step_from_a_token_to_the_next_is_in_one_row(lengths, length, begin, pack):
    corpus = InMemory(lengths)
    steps = []
    for first, count in zip(corpus.offsets, lengths, strict=False):
        written = ([] if begin is None else [begin]) + list(range(10 + first, 10 + first + count)) + [3]
        steps += list(itertools.pairwise(written)) if count else []
    seen = []
    for row in NextTokenRows(corpus, Tokens(begin), length, pack):
        assert all(value.shape == (length,) for value in row.values())
        real = row["segment_ids"] > 0
        np.testing.assert_array_equal(row["loss_weights"], real.astype(np.float32))
        assert not any(value[~real].any() for value in row.values())
        seen += list(zip(row["tokens"][real].tolist(), row["targets"][real].tolist(), strict=True))
        for segment in range(1, row["segment_ids"].max() + 1):
            here = row["segment_ids"] == segment
            np.testing.assert_array_equal(row["positions"][here], np.arange(here.sum()))
            # Within a segment the target is the token that follows.
            np.testing.assert_array_equal(row["targets"][here][:-1], row["tokens"][here][1:])
        assert pack or row["segment_ids"].max() == 1
    assert sorted(seen) == sorted(steps)


def test_a_row_by_hand():
    source, words = Records(train=documents(2, 0, 5)), Words()
    corpus = tokenise(source, "train", words, "text", "x.text")
    # Written: 2 5 6 3, and 2 7 8 9 10 11 3. In rows of 5 the longer is cut into 5 and 1 with a follower.
    first, second = NextTokenRows(corpus, words, 5, pack=True)
    by_hand = {
        "tokens": [2, 5, 6, 11, 0],
        "segment_ids": [1, 1, 1, 2, 0],
        "positions": [0, 1, 2, 0, 0],
        "targets": [5, 6, 3, 3, 0],
        "loss_weights": [1, 1, 1, 1, 0],
    }
    for name, value in by_hand.items():
        np.testing.assert_array_equal(first[name], value)
    np.testing.assert_array_equal(second["tokens"], [2, 7, 8, 9, 10])
    np.testing.assert_array_equal(second["targets"], [7, 8, 9, 10, 11])
    assert first["loss_weights"].dtype == np.float32
    assert {first[name].dtype for name in ("tokens", "segment_ids", "positions", "targets")} == {np.dtype("int32")}


@pytest.mark.parametrize("begin", [None, 2])
def test_rows_of_ordinary_lengths_are_nearly_full(begin):
    rows = NextTokenRows(InMemory(np.random.default_rng(0).integers(1, 400, 500)), Tokens(begin), 128, pack=True)
    assert np.mean([row["loss_weights"].mean() for row in rows]) > 0.99
