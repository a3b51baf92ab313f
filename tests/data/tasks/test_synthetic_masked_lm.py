"""Synthetic batches have the shape of real ones."""

import numpy as np
import pytest

from data.loader import Loader
from data.tasks import MaskedLMData, SyntheticMaskedLMData
from mistake import Mistake


def test_the_fields_are_those_of_masked_lm():
    assert SyntheticMaskedLMData(64, 10, 100).features() == MaskedLMData(None, None, 64, 10).features()


def test_rows_are_full_and_predictions_lie_in_them():
    with Loader(SyntheticMaskedLMData(64, 10, 100), "train", 8, 0) as loader:
        batch = next(loader)
    assert 0 < batch["tokens"].min() <= batch["tokens"].max() < 100
    assert 0 < batch["masked_labels"].min() <= batch["masked_labels"].max() < 100
    assert (np.diff(batch["masked_positions"], axis=1) > 0).all()
    assert batch["masked_positions"].max() < 64
    assert batch["masked_weights"].all()
    assert len(np.unique(batch["tokens"], axis=0)) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 10, 100), "length: 8 is less than"),
        ((8, 0, 100), "max_predictions: 0"),
        ((8, 2, 1), "vocab_size: 1 leaves"),
    ],
)
def test_sizes_that_mean_nothing_are_mistakes(arguments, message):
    with pytest.raises(Mistake, match=f"^synthetic_masked_lm_data.{message}"):
        SyntheticMaskedLMData(*arguments)
