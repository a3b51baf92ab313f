"""Words with their class."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.loader import Loader
from data.tasks import TokenClassificationData
from mistake import Mistake
from tests.data.words import Records, Words


class Syllables(Words):
    """A word of n letters is n tokens, the first of them 5 + n."""

    def encode_batch(self, texts):
        return [[5 + len(text)] + [505] * (len(text) - 1) if text else [] for text in texts]


def batch_of(records, length=10, **kwargs):
    task = TokenClassificationData(Records(validation=records), Syllables(), length, 4, **kwargs)
    with Loader(task, "eval", len(records), 0, end="stop") as loader:
        return next(loader)


def test_the_first_token_of_a_word_carries_its_label():
    batch = batch_of([{"words": ["aa", b"b", "ccc"], "tags": np.asarray([3, 0, 2])}])
    np.testing.assert_array_equal(batch["tokens"], [[2, 7, 505, 6, 8, 505, 505, 3, 0, 0]])
    np.testing.assert_array_equal(batch["labels"], [[0, 3, 0, 0, 2, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(batch["label_weights"], [[0, 1, 0, 1, 1, 0, 0, 0, 0, 0]])


@given(
    words=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=12),
    length=st.integers(3, 20),
)
@settings(deadline=None)
def test_labels_are_where_a_loop_puts_them(words, length):
    batch = batch_of([{"words": ["x" * size for size, _ in words], "tags": [tag for _, tag in words]}], length)
    labels, weights, at = [0] * length, [0] * length, 1
    for size, tag in words:
        if size and at < length - 1:
            labels[at], weights[at] = tag, 1
        at += size
    np.testing.assert_array_equal(batch["labels"], [labels])
    np.testing.assert_array_equal(batch["label_weights"], [weights])


def test_padding_weighs_nothing():
    task = TokenClassificationData(Records(validation=[{"words": ["a"], "tags": [1]}]), Syllables(), 6, 4)
    with Loader(task, "eval", 3, 0, end="stop") as loader:
        np.testing.assert_array_equal(next(loader)["label_weights"].sum(1), [1, 0, 0])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"words": ["a", "b"], "tags": [1]}, "words: a record has 2 words and 1 labels"),
        ({"words": ["a"], "tags": [4]}, "num_classes: 4, and a record's label is 4"),
        ({"words": [1], "tags": [1]}, "words: a word is int, not text"),
        ({"tokens": ["a"], "tags": [1]}, "words: the records have no field 'words'"),
        ({"words": ["a"], "tags": ["NOUN"]}, "labels: the records' 'tags' is text"),
    ],
)
def test_mistakes_name_their_binding(record, message):
    with pytest.raises(Mistake, match=f"^token_classification_data.{message}"):
        batch_of([record])
