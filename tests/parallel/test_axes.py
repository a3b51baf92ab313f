"""The catalogue of logical axes."""

import pytest

from mistake import Mistake
from parallel import axes


def test_every_name_is_a_lower_case_word_with_a_meaning():
    for name, meaning in axes.AXES.items():
        assert name.isidentifier() and name == name.lower()
        assert len(meaning.split()) > 2, name


def test_a_listed_name_is_let_through():
    axes.require("embed", "rules.weights")


def test_an_unlisted_name_is_a_mistake_with_the_nearest_and_all_names():
    with pytest.raises(Mistake) as caught:
        axes.require("embd", "rules.weights")
    message = str(caught.value)
    assert message.startswith("rules.weights: 'embd' is not a logical axis. Nearest: 'embed'")
    assert message.endswith(f"All: {', '.join(axes.AXES)}.")


def test_a_name_like_no_other_gets_no_nearest():
    with pytest.raises(Mistake, match=r"'zzzz' is not a logical axis\. All: batch, "):
        axes.require("zzzz", "x")
