"""Other vocabularies and lengths."""

import numpy as np
import pytest

from mistake import Mistake
from models.pretrained.checkpoint import Checkpoint, read
from models.pretrained.resize import resize_positions, resize_vocabulary
from tests.models.pretrained.fixture_models import FIXTURES

TOKENS, POSITIONS = "encoder.embeddings.token.table", "encoder.embeddings.position.table"


def test_new_tokens_are_the_mean_row_and_the_mean_bias():
    before = read(FIXTURES / "masked_lm")
    after, said = resize_vocabulary(before, 40)
    table, bias = before.params[TOKENS], before.params["head.bias"]
    np.testing.assert_array_equal(after.params[TOKENS][:37], table)
    np.testing.assert_allclose(
        after.params[TOKENS][37:], [[sum(map(float, column)) / 37 for column in table.T]] * 3, rtol=1e-6
    )
    np.testing.assert_allclose(after.params["head.bias"], [*bias, *[sum(map(float, bias)) / 37] * 3], rtol=1e-6)
    assert after.settings["bert.vocab_size"] == 40 and before.settings["bert.vocab_size"] == 37
    assert said == "vocabulary of 37 padded: 3 new are the mean row"


def test_fewer_tokens_are_the_first_and_it_is_said():
    before = read(FIXTURES / "masked_lm")
    after, said = resize_vocabulary(before, 30)
    np.testing.assert_array_equal(after.params[TOKENS], before.params[TOKENS][:30])
    np.testing.assert_array_equal(after.params["head.bias"], before.params["head.bias"][:30])
    assert said == "vocabulary of 37 cut: the last 7 are gone"


def test_a_classification_bias_is_not_a_vocabulary():
    before = read(FIXTURES / "sequence")
    after, _ = resize_vocabulary(before, 50)
    np.testing.assert_array_equal(after.params["head.bias"], before.params["head.bias"])


def test_fewer_positions_are_the_first():
    before = read(FIXTURES / "masked_lm")
    after, said = resize_positions(before, 5)
    np.testing.assert_array_equal(after.params[POSITIONS], before.params[POSITIONS][:5])
    assert after.settings["bert.max_length"] == 5 and said == "positions cut from 12 to 5"


def test_more_positions_are_interpolated_between_the_same_ends():
    before = read(FIXTURES / "masked_lm")
    after, said = resize_positions(before, 30)
    expected = [np.interp(np.arange(30) * 11 / 29, np.arange(12), column) for column in before.params[POSITIONS].T]
    np.testing.assert_allclose(after.params[POSITIONS], np.transpose(expected), atol=1e-6)
    assert after.params[POSITIONS].dtype == np.float32
    assert said == "positions interpolated from 12 to 30"


def test_a_single_position_is_repeated():
    one = Checkpoint({POSITIONS: np.ones((1, 4), np.float32)}, {"bert.max_length": 1}, None)
    np.testing.assert_array_equal(resize_positions(one, 3)[0].params[POSITIONS], np.ones((3, 4)))


@pytest.mark.parametrize(
    ("resize", "said"), [(resize_vocabulary, "^--vocab_size: 0"), (resize_positions, "^--positions: 0")]
)
def test_none_at_all_is_a_mistake(resize, said):
    with pytest.raises(Mistake, match=said):
        resize(read(FIXTURES / "masked_lm"), 0)
