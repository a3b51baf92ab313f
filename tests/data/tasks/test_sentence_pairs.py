"""Pairs of texts that belong together."""

import numpy as np
import pytest

from data.loader import Loader
from data.tasks import SentencePairsData
from mistake import Mistake
from tests.data.words import Records, Words, documents


def pairs_of(records, **kwargs):
    task = SentencePairsData(Records(validation=records), Words(), **({"length": 6, "min_tokens": 2} | kwargs))
    with Loader(task, "eval", 8, 0, end="stop") as loader:
        (batch,) = loader
    count = int(batch["weight"].sum())
    assert not batch["weight"][count:].any()
    return [
        (row[row >= 5].tolist(), pair[pair >= 5].tolist())
        for row, pair in zip(batch["tokens"][:count], batch["pair_tokens"][:count], strict=True)
    ]


def test_the_halves_of_a_stretch_are_a_pair():
    # Four tokens a side beside the frame: stretches of eight. The first document's rest of three is too short.
    assert pairs_of(documents(19, 5, 3)) == [
        ([5, 6, 7, 8], [9, 10, 11, 12]),
        ([13, 14, 15, 16], [17, 18, 19, 20]),
        ([24, 25], [26, 27, 28]),
    ]


def test_the_pair_may_be_a_field_of_its_own():
    records = [{"text": "w0 w1 w2 w3 w4", "answer": "w7 w8"}, {"text": "w0 w1", "answer": "w1"}]
    assert pairs_of(records, pair="answer") == [([5, 6, 7, 8], [12, 13])]


def test_both_sides_have_all_fields():
    task = SentencePairsData(None, None, 16)
    names = {"tokens", "segment_ids", "positions", "token_types"}
    assert set(task.features()) == names | {f"pair_{name}" for name in names} | {"weight"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 3}, "length: 3 leaves no room"),
        ({"min_tokens": 0}, "min_tokens: 0"),
        ({"pair": "answer"}, "pair: the records have no field 'answer'"),
        ({"min_tokens": 4, "text": "text"}, "eval_split: 'validation' holds no example"),
    ],
)
def test_mistakes_name_their_binding(arguments, message):
    with pytest.raises(Mistake, match=f"^sentence_pairs_data.{message}"):
        pairs_of(documents(5), **arguments)


def test_training_shuffles_whole_pairs():
    source = Records(train=documents(*[8] * 20))
    with Loader(SentencePairsData(source, Words(), 6, 2), "train", 20, 0) as loader:
        batch = next(loader)
    np.testing.assert_array_equal(batch["pair_tokens"][:, 1], batch["tokens"][:, 4] + 1)
    assert sorted(batch["tokens"][:, 1]) == [5 + 8 * n for n in range(20)]
    assert list(batch["tokens"][:, 1]) != [5 + 8 * n for n in range(20)]
