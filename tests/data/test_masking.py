"""Masking takes the share it should, of the tokens it may."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.frame import frame
from data.masking import Masking
from tests.data.words import Words

WORDS = Words(vocab_size=1005, words=500)


def row_of(*documents, length=64):
    return frame([np.asarray(document, np.int32) for document in documents], length, WORDS)


def masked(row, seed=0, **kwargs):
    masking = Masking(WORDS, **({"max_predictions": 20, "rate": 0.15} | kwargs))
    return masking(row, np.random.default_rng(seed))


rows_st = st.lists(st.lists(st.integers(5, 1004), min_size=1, max_size=20), min_size=1, max_size=4).map(
    lambda documents: row_of(*documents, length=100)
)


@given(
    row=rows_st,
    seed=st.integers(0, 1000),
    whole_word=st.booleans(),
    max_predictions=st.integers(1, 30),
    rate=st.floats(0.01, 0.99),
)
@settings(deadline=None)
def test_labels_are_what_stood_there_and_all_else_stays(row, seed, whole_word, max_predictions, rate):
    out = masked(row, seed, whole_word=whole_word, max_predictions=max_predictions, rate=rate)
    count = int(out["masked_weights"].sum())
    at = out["masked_positions"][:count]
    np.testing.assert_array_equal(out["masked_weights"], np.arange(max_predictions) < count)
    np.testing.assert_array_equal(out["masked_labels"][:count], row["tokens"][at])
    assert (np.diff(at) > 0).all()
    assert not out["masked_positions"][count:].any()
    assert not out["masked_labels"][count:].any()
    # [CLS], [SEP] and padding are neither masked nor put anywhere; [MASK] is the one special token that comes in.
    assert (row["tokens"][at] >= 5).all()
    assert (out["tokens"][at] >= 4).all()
    elsewhere = np.delete(np.arange(len(row["tokens"])), at)
    np.testing.assert_array_equal(out["tokens"][elsewhere], row["tokens"][elsewhere])
    for name in ("segment_ids", "positions", "token_types"):
        np.testing.assert_array_equal(out[name], row[name])


@given(row=rows_st, seed=st.integers(0, 1000))
@settings(deadline=None)
def test_words_are_masked_as_a_whole(row, seed):
    out = masked(row, seed, whole_word=True, rate=0.4)
    chosen = set(out["masked_positions"][out["masked_weights"] > 0].tolist())
    # The reference: a word starts at each token that doesn't continue one, and after each special one.
    words, previous = [], None
    for position, token in enumerate(row["tokens"].tolist()):
        if token >= 5:
            if token >= 505 and previous is not None and previous >= 5:
                words[-1].add(position)
            else:
                words.append({position})
        previous = token
    assert all(word <= chosen or not word & chosen for word in words)


@pytest.mark.parametrize(
    ("tokens", "max_predictions", "rate", "expected"),
    [(40, 20, 0.15, 6), (40, 5, 0.15, 5), (3, 20, 0.15, 1), (1, 20, 0.15, 1), (46, 20, 0.25, 12), (50, 20, 0.2, 10)],
)
def test_the_number_masked_is_the_share_of_ordinary_tokens(tokens, max_predictions, rate, expected):
    out = masked(row_of(range(5, 5 + tokens)), max_predictions=max_predictions, rate=rate)
    assert out["masked_weights"].sum() == expected


def test_a_row_of_padding_has_nothing_to_predict():
    assert not masked(row_of())["masked_weights"].any()


def test_the_share_counts_all_documents_of_a_packed_row():
    out = masked(row_of(range(5, 25), range(30, 50)))
    assert out["masked_weights"].sum() == 6


def test_eighty_percent_become_mask_ten_random_ten_stay():
    # Of n draws the count of a fate of probability p is within five standard deviations, sqrt(n p (1 - p)).
    row = row_of(np.full(62, 5))
    outs = [masked(row, seed, rate=0.5, max_predictions=31) for seed in range(400)]
    fates = np.concatenate([out["tokens"][out["masked_positions"]] for out in outs])
    n = len(fates)
    assert n == 400 * 31
    # A random token is one of 1,000, so of the tenth that is random a thousandth stays by chance.
    stays = 0.1 + 0.1 / 1000
    for count, share in ((np.sum(fates == 4), 0.8), (np.sum(fates == 5), stays), (np.sum(fates > 5), 0.2 - stays)):
        assert abs(count - n * share) < 5 * np.sqrt(n * share * (1 - share))
    assert (fates >= 4).all()
    assert len(np.unique(fates[fates > 5])) > 600


def test_every_position_is_as_likely():
    row = row_of(range(5, 25))
    counts = np.bincount(
        np.concatenate([masked(row, seed)["masked_positions"][:3] for seed in range(2000)]), minlength=64
    )
    expected = 2000 * 3 / 20
    assert (np.abs(counts[1:21] - expected) < 5 * np.sqrt(expected)).all()
    assert counts[:1].sum() == counts[21:].sum() == 0


def test_the_row_given_is_left_as_it_was():
    row = row_of(range(5, 45))
    before = row["tokens"].copy()
    masked(row)
    np.testing.assert_array_equal(row["tokens"], before)
