"""BERTs of new random shapes each run, transformers beside ours, both ways. Needs torch and transformers; run by name:

pytest tests/live/test_hf_bert_live.py -n 0
"""

import dataclasses
import random
import secrets

import pytest
import safetensors.numpy
import torch
import transformers

from models.pretrained.__main__ import main
from models.pretrained.checkpoint import read
from models.pretrained.compare import TOLERANCE, by_outputs, by_tensors

SEED = secrets.randbelow(2**31)
CLASSES = (
    "BertModel",
    "BertForMaskedLM",
    "BertForPreTraining",
    "BertForSequenceClassification",
    "BertForTokenClassification",
)
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu")


def random_model(name: str, folder) -> None:
    seed = f"{SEED}-{name}"
    print(f"seed {seed}")
    draw = random.Random(seed)
    torch.manual_seed(draw.randrange(2**31))
    heads = draw.randint(1, 6)
    config = transformers.BertConfig(
        num_hidden_layers=draw.randint(1, 4),
        num_attention_heads=heads,
        hidden_size=heads * draw.randint(2, 16),
        intermediate_size=draw.randint(3, 96),
        vocab_size=draw.randint(5, 300),
        max_position_embeddings=draw.randint(2, 80),
        type_vocab_size=draw.randint(1, 4),
        hidden_act=draw.choice(ACTIVATIONS),
        layer_norm_eps=draw.choice([1e-12, 1e-5]),
        num_labels=draw.randint(1, 9),
    )
    model = getattr(transformers, name)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases and norms start constant; no mistake in them may hide.
            parameter.add_(0.02 * torch.randn_like(parameter))
    model.save_pretrained(folder)


@pytest.mark.parametrize("name", CLASSES)
def test_ours_computes_what_transformers_does_before_and_after_a_round_trip(name, tmp_path):
    theirs, ours, back = (tmp_path / part for part in ("theirs", "ours", "back"))
    random_model(name, theirs)
    assert main(["import", str(theirs), str(ours)]) == 0
    assert main(["compare", str(theirs), str(ours)]) == 0
    assert main(["export", str(ours), str(back)]) == 0
    assert main(["compare", str(back), str(ours)]) == 0
    assert set(by_tensors(read(theirs), read(back)).differences.values()) == {0.0}
    before, after = (safetensors.numpy.load_file(folder / "model.safetensors") for folder in (theirs, back))
    assert {key for key in before.keys() ^ after.keys() if "seq_relationship" not in key} == set()
    assert all(after[key].tobytes() == before[key].tobytes() for key in after)


def test_the_comparison_notices_one_changed_weight(tmp_path):
    random_model("BertForMaskedLM", tmp_path)
    first = read(tmp_path)
    path = "encoder.blocks.attention.out.bias"
    other = first.params[path].copy()
    other.flat[0] += 0.1
    found = by_outputs(tmp_path, first, dataclasses.replace(first, params={**first.params, path: other}))
    assert found.differences["hidden_states"] > TOLERANCE and not found.agree
