"""Masked LM examples: every document once, with noise of their own."""

import numpy as np
import pytest

from data.loader import Loader
from data.sources import PydocTopics
from data.tasks import MaskedLMData
from mistake import Mistake
from tests.data.words import Records, Words, documents

SOURCE = Records(train=documents(*range(1, 60)), validation=documents(5, 30, 2, 8))


def task(**kwargs):
    return MaskedLMData(SOURCE, Words(5000, 2500), **({"length": 32, "max_predictions": 6} | kwargs))


def restored(batch):
    """The tokens of a batch with the labels put back."""
    tokens = batch["tokens"].copy()
    row, column = np.nonzero(batch["masked_weights"])
    tokens[row, batch["masked_positions"][row, column]] = batch["masked_labels"][row, column]
    return tokens


def words_of(batches):
    """Every ordinary token of some batches, in ascending order."""
    tokens = np.concatenate([restored(batch).ravel() for batch in batches])
    return np.sort(tokens[tokens >= 5])


def test_features_are_known_without_any_data():
    untouched = MaskedLMData(None, None, 32, 6)
    shapes = {name: (feature.shape, feature.dtype, feature.names) for name, feature in untouched.features().items()}
    for name in ("tokens", "segment_ids", "positions", "token_types"):
        assert shapes.pop(name) == ((32,), "int32", ("length",))
    assert shapes.pop("masked_positions") == shapes.pop("masked_labels") == ((6,), "int32", ("predictions",))
    assert shapes == {"masked_weights": ((6,), "float32", ("predictions",))}


@pytest.mark.parametrize("pack", [True, False])
def test_evaluation_has_every_token_once(pack):
    with Loader(task(pack=pack), "eval", 3, 0, end="stop") as loader:
        seen = words_of(loader)
    np.testing.assert_array_equal(seen, 5 + np.arange(5 + 30 + 2 + 8))


@pytest.mark.parametrize("pack", [True, False])
def test_an_epoch_of_training_has_every_token_once(pack):
    with Loader(task(pack=pack), "train", 1, 3, end="stop") as loader:
        seen = words_of(loader)
    np.testing.assert_array_equal(seen, 5 + np.arange(sum(range(1, 60))))


def test_evaluation_is_the_same_each_time():
    runs = []
    for _ in range(2):
        with Loader(task(), "eval", 2, 0, end="stop") as loader:
            runs.append([batch["tokens"] for batch in loader])
    np.testing.assert_array_equal(runs[0], runs[1])


def test_masks_are_drawn_anew_each_epoch():
    examples = task().examples("train", 0)
    epochs = [{restored_row(examples[epoch * len(examples) + n]) for n in range(len(examples))} for epoch in range(2)]
    assert {row for row, _ in epochs[0]} == {row for row, _ in epochs[1]}
    masks = [dict(epoch) for epoch in epochs]
    assert sum(masks[0][row] != masks[1][row] for row in masks[0]) > 0.9 * len(examples)


def restored_row(example):
    (tokens,) = restored({name: value[None] for name, value in example.items()})
    return tokens.tobytes(), example["masked_positions"].tobytes()


def test_whole_words_are_masked_in_real_text(small_wordpiece):
    real = MaskedLMData(PydocTopics(), small_wordpiece, 128, 20, whole_word=True, train_split="validation")
    with Loader(real, "eval", 16, 0, end="stop") as loader:
        for batch in loader:
            tokens = restored(batch)
            masked = np.zeros(tokens.shape, bool)
            row, column = np.nonzero(batch["masked_weights"])
            masked[row, batch["masked_positions"][row, column]] = True
            # A continuation is masked just when the token before it is, unless that begins the document.
            goes_on = small_wordpiece.is_continuation[tokens[:, 1:]] & ~small_wordpiece.is_special[tokens[:, :-1]]
            assert (masked[:, 1:] == masked[:, :-1])[goes_on].all()
            assert masked.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 2}, "^masked_lm_data.length: 2 leaves no room"),
        ({"max_predictions": 0}, "^masked_lm_data.max_predictions: 0"),
        ({"mask_rate": 15}, "^masked_lm_data.mask_rate: 15 is not a share"),
    ],
)
def test_sizes_that_mean_nothing_are_mistakes(arguments, message):
    with pytest.raises(Mistake, match=message):
        task(**arguments)


def test_a_wrong_split_or_field_names_its_binding():
    with pytest.raises(Mistake, match="^masked_lm_data.eval_split: records: there is no split 'dev'"):
        task(eval_split="dev").examples("eval", 0)
    with pytest.raises(Mistake, match="^masked_lm_data.text: the records have no field 'body'. They have: text"):
        task(text="body").examples("eval", 0)
    with pytest.raises(Mistake, match="^masked_lm_data.text: the 1 records hold no text at all"):
        MaskedLMData(Records(train=[{"text": " "}]), Words(), 32, 6).examples("train", 0)


def test_a_corpus_of_one_short_document_repeats():
    lone = MaskedLMData(Records(train=[{"text": "w1 w2"}]), Words(), 8, 2)
    with Loader(lone, "train", 4, 0) as loader:
        np.testing.assert_array_equal(restored(next(loader)), [[2, 6, 7, 3, 0, 0, 0, 0]] * 4)
