"""Texts with their class."""

import numpy as np
import pytest

from data.loader import Loader
from data.tasks import ClassificationData
from mistake import Mistake
from tests.data.words import Records, Words

RECORDS = [{"text": f"w{n} w1 w2 w3", "label": n % 3} for n in range(7)]
SOURCE = Records(train=RECORDS, validation=RECORDS)


def test_text_is_framed_cut_and_labelled():
    task = ClassificationData(SOURCE, Words(), 5, 3)
    with Loader(task, "eval", 4, 0, end="stop") as loader:
        first, second = loader
    np.testing.assert_array_equal(first["tokens"], [[2, 5 + n, 6, 7, 3] for n in range(4)])
    np.testing.assert_array_equal(first["label"], [0, 1, 2, 0])
    np.testing.assert_array_equal(second["label"], [1, 2, 0, 0])
    np.testing.assert_array_equal(second["weight"], [1, 1, 1, 0])
    assert not second["segment_ids"][3].any()
    assert {name: (value.shape[1:], str(value.dtype)) for name, value in first.items()} == {
        name: (feature.shape, feature.dtype) for name, feature in task.features().items()
    }


def test_training_keeps_text_and_label_together():
    with Loader(ClassificationData(SOURCE, Words(), 8, 3), "train", 7, 2) as loader:
        batch = next(loader)
    np.testing.assert_array_equal(batch["label"], (batch["tokens"][:, 1] - 5) % 3)
    assert sorted(batch["tokens"][:, 1]) == list(range(5, 12))


def test_labels_may_be_names():
    records = [{"text": b"w1", "label": b"spam"}, {"text": "w2", "label": "ham"}]
    task = ClassificationData(Records(validation=records), Words(), 8, 2, labels=("ham", "spam"))
    with Loader(task, "eval", 2, 0, end="stop") as loader:
        np.testing.assert_array_equal(next(loader)["label"], [1, 0])


@pytest.mark.parametrize(
    ("records", "arguments", "message"),
    [
        (RECORDS, {"num_classes": 2}, "num_classes: 2, and a record's label is 2"),
        (RECORDS, {"num_classes": 1}, "num_classes: 1"),
        (RECORDS, {"labels": ("a", "b")}, "labels: 2 names for classification_data.num_classes = 3"),
        (RECORDS, {"label": "class"}, "label: the records have no field 'class'"),
        (RECORDS, {"text": "label"}, "text: field 'label' is int, not text"),
        (RECORDS, {"length": 2}, "length: 2 leaves no room"),
        (RECORDS, {"eval_split": "test"}, "eval_split: records: there is no split 'test'"),
        ([{"text": "w1", "label": "spam"}], {}, "labels: the records' 'label' is text"),
        (
            [{"text": "w1", "label": "smap"}],
            {"labels": ("spam", "ham", "x")},
            "labels: there is no 'smap'.*Nearest: 'spam'",
        ),
        ([], {}, "eval_split: 'validation' holds no example|text: the 0 records hold no text"),
    ],
)
def test_mistakes_name_their_binding(records, arguments, message):
    with pytest.raises(Mistake, match=f"^classification_data.({message})"):
        task = ClassificationData(Records(validation=records), Words(), **({"length": 8, "num_classes": 3} | arguments))
        task.examples("eval", 0)[2 % max(1, len(records))]
