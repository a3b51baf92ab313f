"""Evaluation on a mesh: a batch that falls back to every device gives what a split one gives."""

import numpy as np
import pytest

from training.evaluate import evaluate
from training.flags import parse
from training.modes import MODES
from training.setup import build

RULES = "{'batch?': 'data', 'embed': 'tensor', 'mlp': 'tensor', 'heads': 'tensor'}"


@pytest.fixture
def values():
    """The metrics of fresh weights with batches of this size."""

    def values(size):
        flags = [
            "--gin_file=tests/end_to_end/tiny.gin",
            f"--gin.rules.activations={RULES}",
            f"--gin.experiment.eval_batch_size={size}",
        ]
        program = build(parse(flags, MODES)).program
        return evaluate(program, program.fresh_state().params)

    return values


def test_a_batch_that_the_mesh_does_not_divide_is_evaluated_whole_where_the_rule_lets_it(values):
    split, whole = values(8), values(7)
    assert split.keys() == whole.keys() >= {"loss"}
    np.testing.assert_allclose(list(split.values()), list(whole.values()), rtol=1e-5)
