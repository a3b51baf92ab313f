"""The batch triple: two give the third, and what does not go together names what would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistake import Mistake
from training.batch import Batch


@given(microbatch=st.integers(1, 64), accumulation=st.integers(1, 64))
def test_any_two_give_the_third(microbatch, accumulation):
    size = microbatch * accumulation
    for given_two in (
        {"size": size, "microbatch_size": microbatch},
        {"size": size, "accumulation": accumulation},
        {"microbatch_size": microbatch, "accumulation": accumulation},
    ):
        batch = Batch(**given_two)
        assert (batch.size, batch.microbatch_size, batch.accumulation) == (size, microbatch, accumulation)


def test_the_size_alone_is_one_pass():
    batch = Batch(size=24)
    assert (batch.microbatch_size, batch.accumulation) == (24, 1)


@pytest.mark.parametrize(
    "triple, message",
    [
        (
            {"size": 12, "accumulation": 5},
            "batch.accumulation: 5 does not divide batch.size 12. These do: 1, 2, 3, 4, 6, 12.",
        ),
        (
            {"size": 12, "microbatch_size": 8},
            "batch.microbatch_size: 8 does not divide batch.size 12. These do: 1, 2, 3, 4, 6, 12.",
        ),
        (
            {"size": 12, "microbatch_size": 4, "accumulation": 2},
            "batch.size: 12 is not batch.microbatch_size 4 * batch.accumulation 2 = 8.",
        ),
        ({}, "batch.size: nothing says how many examples a step takes."),
        ({"size": 0}, "batch.size: 0 is not a positive number"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_would(triple, message):
    with pytest.raises(Mistake, match="^" + message.replace("(", r"\(").replace("*", r"\*").replace(".", r"\.")):
        Batch(**triple)
