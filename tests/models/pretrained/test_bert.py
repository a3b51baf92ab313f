"""Imported BERTs compute what transformers computed (make_fixtures.py), and come back as they were."""

import json

import numpy as np
import pytest

from mistake import Mistake
from models.pretrained.bert import BERT, MASKED_LM
from models.pretrained.checkpoint import import_checkpoint, read, write_theirs
from models.pretrained.compare import outputs
from tests.models.pretrained.fixture_models import FIXTURES, NAMES, saved, tensors

CONFIG = {
    "model_type": "bert",
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "vocab_size": 37,
}
NEXT_SENTENCE = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}


@pytest.mark.parametrize("name", NAMES)
def test_an_imported_model_computes_what_transformers_computed(name):
    inputs, expected = saved(name)
    found = outputs(read(FIXTURES / name), inputs)
    assert found.keys() == expected.keys()
    real_BS = inputs["segment_ids"] != 0
    for key, value in expected.items():
        # A padded position means nothing in either; 'pooled' and a sequence's logits have no positions.
        at = real_BS if value.shape[:2] == real_BS.shape else ...
        np.testing.assert_allclose(found[key][at], value[at], rtol=0, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_comes_back_bit_equal(name, tmp_path):
    write_theirs(read(FIXTURES / name), tmp_path)
    before, after = tensors(name), _load(tmp_path)
    assert before.keys() - after.keys() == (NEXT_SENTENCE if name == "pretraining" else set())
    assert not after.keys() - before.keys()
    for key in after:
        assert after[key].tobytes() == before[key].tobytes() and after[key].shape == before[key].shape, key


@pytest.mark.parametrize("name", NAMES)
def test_the_exported_config_says_the_same(name, tmp_path):
    write_theirs(read(FIXTURES / name), tmp_path)
    before = json.loads((FIXTURES / name / "config.json").read_text())
    after = json.loads((tmp_path / "config.json").read_text())
    if name == "pretraining":
        before["architectures"] = ["BertForMaskedLM"]
    if name == "token":
        before["hidden_act"] = "gelu_new"  # another name of the same function
    shared = after.keys() & before.keys()
    assert shared >= {
        *CONFIG,
        "architectures",
        "hidden_act",
        "type_vocab_size",
        "layer_norm_eps",
        "max_position_embeddings",
    }
    assert {key: after[key] for key in shared} == {key: before[key] for key in shared}


def test_settings_are_those_of_the_config():
    _, settings = import_checkpoint(FIXTURES / "pretraining")
    told = {
        "num_layers": 3,
        "width": 24,
        "num_heads": 3,
        "mlp_width": 40,
        "vocab_size": 31,
        "max_length": 16,
        "token_types": 3,
    }
    told |= {"pooler": True, "norm_epsilon": 1e-12, "activation": "relu", "positions": "learned", "pre_norm": False}
    assert {name: settings[f"bert.{name}"] for name in told} == told


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu", "gelu"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("relu", "relu"),
        ("silu", "silu"),
        ("swish", "silu"),
    ],
)
def test_an_activation_keeps_its_meaning(theirs, ours):
    assert BERT.settings({**CONFIG, "hidden_act": theirs}, [])["bert.activation"] == ours


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_act": "mish"}, "hidden_act is 'mish'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "is_decoder"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"hidden_size": "16"}, "hidden_size is '16'"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"hidden_act": ["gelu"]}, "hidden_act is"),
        ({"type_vocab_size": -1}, "type_vocab_size is -1"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps is nan"),
        ({"layer_norm_eps": float("inf")}, "layer_norm_eps is inf"),
    ],
)
def test_a_config_that_is_not_a_bert_encoder_is_refused(change, said):
    with pytest.raises(Mistake, match=said):
        BERT.settings({**CONFIG, **change}, [])


def test_an_untied_masked_lm_is_refused_and_an_encoder_is_not():
    untied = {**CONFIG, "tie_word_embeddings": False}
    with pytest.raises(Mistake, match="tie_word_embeddings is False"):
        BERT.settings(untied, ["cls.predictions.bias"])
    assert BERT.settings(untied, []) == BERT.settings(CONFIG, [])


def test_each_dropout_rate_keeps_its_place():
    settings = BERT.settings({**CONFIG, "hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.5}, [])
    assert (settings["bert.dropout"], settings["bert.attention_dropout"]) == (0.25, 0.5)


@pytest.mark.parametrize("architectures", [3, "BertModel", [["BertModel"]], [None], []])
def test_architectures_that_are_none_tell_nothing(architectures):
    assert BERT.head({"architectures": architectures}, {}) == (None, 0)


def test_all_absent_sizes_are_named():
    with pytest.raises(Mistake, match="hidden_size, num_attention_heads"):
        BERT.settings({k: v for k, v in CONFIG.items() if k not in ("hidden_size", "num_attention_heads")}, [])


def test_a_model_that_bert_checkpoints_cannot_hold_is_not_exported():
    settings = BERT.settings(CONFIG, [])
    with pytest.raises(Mistake, match="^bert.positions: 'rotary'"):
        BERT.config({**settings, "bert.positions": "rotary"}, None, 0)
    with pytest.raises(Mistake, match="^bert.activation: 'tanh'"):
        BERT.config({**settings, "bert.activation": "tanh"}, None, 0)


def test_the_head_is_told_by_tensors_where_the_architecture_does_not_say():
    assert BERT.head({}, {"cls.predictions.bias": (5,)}) == (MASKED_LM, 0)
    assert BERT.head({}, {"classifier.bias": (3,), "pooler.dense.bias": (4,)}) == ("BertForSequenceClassification", 3)
    assert BERT.head({}, {"classifier.bias": (3,)}) == ("BertForTokenClassification", 3)
    assert BERT.head({"architectures": ["BertModel"]}, {}) == (None, 0)


def _load(folder):
    import safetensors.numpy

    return safetensors.numpy.load_file(folder / "model.safetensors")
