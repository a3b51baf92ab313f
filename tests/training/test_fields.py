"""A field that the data doesn't give is named with the tasks that do."""

import pytest

from mistake import Mistake
from training import catalogue  # noqa: F401  registers the tasks
from training.config import registered
from training.fields import GIVEN_BY, Fields

# What a task needs to say which fields it has. Its source and its tokenizer are not asked.
ARGUMENTS = {"length": 16, "max_predictions": 2, "num_classes": 3, "vocab_size": 50, "height": 8, "width": 8} | {
    "channels": 3,
    "frames": 10,
    "mels": 4,
}


@pytest.mark.parametrize("field, task", [(field, task) for field, tasks in GIVEN_BY.items() for task in tasks])
def test_the_tasks_that_are_named_give_the_field(field, task):
    made = registered.find(task).constructs
    required = registered.find(task).required
    assert field in made(**{name: ARGUMENTS.get(name) for name in required}).features()


def test_a_missing_field_names_objective_data_and_givers():
    fields = Fields({"tokens": 1}, "sequence_classification", "masked_lm_data")
    assert fields["tokens"] == 1
    with pytest.raises(Mistake) as caught:
        fields["label"]
    assert str(caught.value).startswith(
        "experiment.data: sequence_classification reads 'label', and a batch of masked_lm_data has only tokens. "
        "These give it: @classification_data(), "
    )
