"""A run that starts from a checkpoint: what is loaded, fresh, unused, and refused."""

import numpy as np
import pytest

from mistake import Mistake
from models.bert import Bert
from models.objectives.classification import SequenceClassification
from models.objectives.masked_lm import MaskedLM
from models.pretrained.checkpoint import read, write_ours
from models.pretrained.init_from import load_for_init
from parallel.parameters import declared
from tests.models.pretrained.fixture_models import FIXTURES

MASKED_LM = {"num_layers": 2, "width": 16, "num_heads": 4, "mlp_width": 24, "vocab_size": 37, "max_length": 12}
SEQUENCE = {
    "num_layers": 2,
    "width": 20,
    "num_heads": 5,
    "mlp_width": 36,
    "vocab_size": 41,
    "max_length": 14,
    "pooler": True,
}


def test_a_checkpoint_of_the_same_model_is_loaded_whole():
    loaded, fresh, unused = load_for_init(FIXTURES / "masked_lm", declared(MaskedLM(Bert(**MASKED_LM))))
    expected = read(FIXTURES / "masked_lm").params
    assert loaded.keys() == expected.keys() and (fresh, unused) == ([], [])
    assert all(np.array_equal(loaded[path], expected[path]) for path in expected)


def test_our_own_folder_serves_as_well(tmp_path):
    write_ours(read(FIXTURES / "masked_lm"), tmp_path, "a comment")
    loaded, fresh, unused = load_for_init(tmp_path, declared(MaskedLM(Bert(**MASKED_LM))))
    assert (len(loaded), fresh, unused) == (26, [], [])


def test_another_head_and_the_pooler_start_fresh_and_the_old_head_is_not_used():
    """Both heads have a 'head.bias'; they are of different shapes."""
    model = SequenceClassification(Bert(**MASKED_LM, pooler=True), num_classes=4)
    loaded, fresh, unused = load_for_init(FIXTURES / "masked_lm", declared(model))
    assert all(path.startswith("encoder.") for path in loaded)
    assert fresh == ["encoder.pooler.bias", "encoder.pooler.kernel", "head.bias", "head.kernel"]
    assert unused == ["head.bias", "head.norm.bias", "head.norm.scale", "head.transform.bias", "head.transform.kernel"]


def test_a_head_with_other_classes_starts_fresh():
    model = SequenceClassification(Bert(**SEQUENCE), num_classes=7)
    _, fresh, unused = load_for_init(FIXTURES / "sequence", declared(model))
    assert fresh == unused == ["head.bias", "head.kernel"]


def test_all_that_does_not_fit_is_listed_together():
    bert = {**MASKED_LM, "mlp_width": 32, "gated_mlp": True}
    with pytest.raises(Mistake) as caught:
        load_for_init(FIXTURES / "masked_lm", declared(MaskedLM(Bert(**bert))))
    message = str(caught.value)
    assert message.startswith("experiment.init_from: ")
    assert "missing: encoder.blocks.mlp.gate.kernel [2, 16, 32]" in message
    assert "mis-shaped: encoder.blocks.mlp.up.kernel is [2, 16, 24], not [2, 16, 32]" in message
    assert "mis-shaped: encoder.blocks.mlp.down.kernel is [2, 24, 16], not [2, 32, 16]" in message


def test_what_is_missing_starts_fresh_only_if_a_pattern_says_so():
    model = MaskedLM(Bert(**{**MASKED_LM, "max_length": 20}))
    with pytest.raises(Mistake, match="mis-shaped: encoder.embeddings.position.table"):
        load_for_init(FIXTURES / "masked_lm", declared(model))
    _, fresh, unused = load_for_init(FIXTURES / "masked_lm", declared(model), fresh=("encoder.embeddings.position.*",))
    assert fresh == unused == ["encoder.embeddings.position.table"]


def test_a_folder_that_cannot_be_read_is_the_binding_s_mistake(tmp_path):
    with pytest.raises(Mistake, match="^experiment.init_from: .*neither model.safetensors"):
        load_for_init(tmp_path, {})
