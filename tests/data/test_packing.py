"""Packing loses no token and mixes no documents."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.corpus import tokenise
from data.packing import PackedRows, pieces, plan
from tests.data.words import Records, Words, documents

lengths_st = st.lists(st.integers(0, 40), max_size=30).map(lambda lengths: np.asarray(lengths, np.int64))


def held(row_plan):
    """(document, start, stop) of each row, as plain lists."""
    rows = zip(row_plan.offsets[:-1].tolist(), row_plan.offsets[1:].tolist(), strict=True)
    every = list(zip(row_plan.document.tolist(), row_plan.start.tolist(), row_plan.stop.tolist(), strict=True))
    return [every[first:last] for first, last in rows]


@given(lengths=lengths_st, length=st.integers(3, 20), pack=st.booleans())
@settings(deadline=None)
def test_every_token_of_every_document_is_in_one_row(lengths, length, pack):
    seen = [(d, t) for row in held(plan(lengths, length, pack)) for d, start, stop in row for t in range(start, stop)]
    assert sorted(seen) == [(d, t) for d, count in enumerate(lengths.tolist()) for t in range(count)]


@given(lengths=lengths_st, length=st.integers(3, 20))
@settings(deadline=None)
def test_no_row_is_too_long_or_empty(lengths, length):
    for row in held(plan(lengths, length)):
        assert 0 < sum(stop - start + 2 for _, start, stop in row) <= length


@given(lengths=lengths_st, length=st.integers(3, 20))
@settings(deadline=None)
def test_a_row_holds_one_piece_without_packing(lengths, length):
    rows = held(plan(lengths, length, pack=False))
    assert all(len(row) == 1 for row in rows)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)


@given(lengths=lengths_st, length=st.integers(3, 20))
@settings(deadline=None)
def test_any_two_rows_would_not_fit_into_one(lengths, length):
    # What best fit promises: a piece opens a row only when no open row has room for it.
    used = sorted(sum(stop - start + 2 for _, start, stop in row) for row in held(plan(lengths, length)))
    assert len(used) < 2 or used[0] + used[1] > length


def test_long_documents_are_cut_where_a_row_is_full():
    document, start, stop = pieces(np.asarray([7, 0, 3, 6]), 3)
    np.testing.assert_array_equal(document, [0, 0, 0, 2, 3, 3])
    np.testing.assert_array_equal(start, [0, 3, 6, 0, 0, 3])
    np.testing.assert_array_equal(stop, [3, 6, 7, 3, 3, 6])


def test_best_fit_by_hand():
    # With frames: 6, 4, 5, 3, 10 in rows of 10. Longest first: 10, 6 and 5 open rows; 4 joins the 6, 3 the 5.
    rows = held(plan(np.asarray([4, 2, 3, 1, 8]), 10))
    assert rows == [[(0, 0, 4), (1, 0, 2)], [(2, 0, 3), (3, 0, 1)], [(4, 0, 8)]]


def test_rows_of_ordinary_lengths_are_nearly_full():
    lengths = np.random.default_rng(0).integers(1, 400, 2000)
    row_plan = plan(lengths, 128)
    assert (lengths.sum() + 2 * len(row_plan.document)) / (128 * len(row_plan)) > 0.99


def test_a_row_is_its_documents_with_frames_then_padding():
    source, words = Records(train=documents(3, 2, 30)), Words()
    corpus = tokenise(source, "train", words, "text", "x.text")
    rows = PackedRows(corpus, plan(corpus.lengths, 12), 12, words)
    row = rows[0]
    np.testing.assert_array_equal(row["tokens"], [2, 5, 6, 7, 3, 2, 8, 9, 3, 0, 0, 0])
    np.testing.assert_array_equal(row["segment_ids"], [1, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0])
    np.testing.assert_array_equal(row["positions"], [0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 0, 0])
    assert not row["token_types"].any()
    assert {value.dtype for value in row.values()} == {np.dtype("int32")}
    assert [len(np.unique(rows[i]["segment_ids"])) for i in range(1, 4)] == [1, 1, 1]


def test_the_plan_is_the_same_each_time():
    lengths = np.random.default_rng(1).integers(0, 300, 500)
    assert held(plan(lengths, 64)) == held(plan(lengths, 64))
