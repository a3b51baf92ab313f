"""Synthetic sequences have the shape of real ones and something to learn."""

import numpy as np
import pytest

from data.loader import Loader
from data.tasks import CausalLMData, SyntheticCausalLMData
from mistake import Mistake


def test_the_fields_are_those_of_causal_lm():
    assert SyntheticCausalLMData(64, 100).features() == CausalLMData(None, None, 64).features()


def test_rows_are_full_and_each_target_is_the_next_token():
    with Loader(SyntheticCausalLMData(64, 100), "train", 8, 0) as loader:
        batch = next(loader)
    assert 0 < batch["tokens"].min() <= batch["tokens"].max() < 100
    np.testing.assert_array_equal(batch["targets"][:, :-1], batch["tokens"][:, 1:])
    np.testing.assert_array_equal(batch["positions"], [range(64)] * 8)
    assert (batch["segment_ids"] == 1).all()
    assert batch["loss_weights"].all()
    assert len(np.unique(batch["tokens"], axis=0)) == 8


@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0])
def test_the_next_number_follows_but_for_the_noise(noise):
    with Loader(SyntheticCausalLMData(256, 51, noise), "train", 32, 0) as loader:
        batch = next(loader)
    follows = (batch["targets"] == batch["tokens"] % 50 + 1).mean()
    assert abs(follows - (1 - noise * 49 / 50)) < 0.01 + 1e-9 * (noise == 0)
    assert noise or follows == 1


def test_an_example_is_a_function_of_seed_and_number():
    one, same, other = (SyntheticCausalLMData(8, 100).examples("train", seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one[5]["tokens"], same[5]["tokens"])
    assert (one[5]["tokens"] != other[5]["tokens"]).any()
    assert (SyntheticCausalLMData(8, 100).examples("eval", 1)[5]["tokens"] != one[5]["tokens"]).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 100), "length: 0"),
        ((8, 1), "vocab_size: 1 leaves"),
        ((8, 9, 1.5), "noise: 1.5 is not a share"),
        ((8, 9, 0.1, 0), "train_examples: 0"),
    ],
)
def test_sizes_that_mean_nothing_are_mistakes(arguments, message):
    with pytest.raises(Mistake, match=f"^synthetic_causal_lm_data.{message}"):
        SyntheticCausalLMData(*arguments)
