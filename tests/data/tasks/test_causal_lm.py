"""Causal LM examples: every document once, each token with the next."""

import json

import numpy as np
import pytest

from data.loader import Loader
from data.sources import JsonLines, PydocTopics, TextFiles
from data.tasks import CausalLMData
from data.tokenizer import bpe
from mistake import Mistake
from tests.data.words import Records, Words, documents

SOURCE = Records(train=documents(*range(1, 60)), validation=documents(5, 30, 2, 8))


def task(**kwargs):
    return CausalLMData(SOURCE, Words(5000, 2500), **({"length": 32} | kwargs))


def targets_of(batches):
    """Every target of some batches that weighs something, in ascending order."""
    return np.sort(np.concatenate([batch["targets"][batch["loss_weights"] > 0] for batch in batches]))


def test_features_are_known_without_any_data():
    shapes = {name: (f.shape, f.dtype, f.names) for name, f in CausalLMData(None, None, 32).features().items()}
    assert shapes.pop("loss_weights") == ((32,), "float32", ("length",))
    assert shapes == {name: ((32,), "int32", ("length",)) for name in ("tokens", "segment_ids", "positions", "targets")}


@pytest.mark.parametrize("pack", [True, False])
def test_evaluation_predicts_every_token_and_every_end_once(pack):
    with Loader(task(pack=pack), "eval", 3, 0, end="stop") as loader:
        seen = targets_of(loader)
    np.testing.assert_array_equal(seen, [3] * 4 + list(range(5, 5 + 5 + 30 + 2 + 8)))


def test_an_epoch_of_training_does_so_too_in_another_order_each_time():
    examples = task().examples("train", 3)
    epochs = [[examples[epoch * len(examples) + n] for n in range(len(examples))] for epoch in range(2)]
    for epoch in epochs:
        np.testing.assert_array_equal(targets_of(epoch), [3] * 59 + list(range(5, 5 + sum(range(1, 60)))))
    assert [row["tokens"].tolist() for row in epochs[0]] != [row["tokens"].tolist() for row in epochs[1]]


def test_any_source_of_texts_will_do(tmp_path):
    (tmp_path / "a.txt").write_text("w1 w2\n\nw3\n")
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"body": text}) for text in ("w1 w2", "w3")))
    texts = CausalLMData(TextFiles(str(tmp_path / "*.txt")), Words(), 8, eval_split="train")
    lines = CausalLMData(JsonLines(str(tmp_path / "*.jsonl")), Words(), 8, eval_split="train", text="body")
    for each in (texts, lines):
        (row,) = each.rows("eval")
        np.testing.assert_array_equal(row["tokens"], [2, 6, 7, 2, 8, 0, 0, 0])
        np.testing.assert_array_equal(row["targets"], [6, 7, 3, 8, 3, 0, 0, 0])


def test_help_texts_are_read_back_from_targets(warm_cache):
    tokenizer = bpe(600, PydocTopics(), "validation")
    real = CausalLMData(PydocTopics(), tokenizer, 10**6, train_split="validation")
    (row,) = real.rows("eval")
    texts = sorted(record["text"] for record in PydocTopics().open("validation"))
    count = row["segment_ids"].max()
    read = [row["targets"][row["segment_ids"] == n] for n in range(1, count + 1)]
    assert all(ids[-1] == tokenizer.end_id for ids in read)
    assert sorted(tokenizer.decode(ids[:-1].tolist()) for ids in read) == texts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "length: 0 holds no token"),
        ({"eval_split": "dev"}, "eval_split: records: there is no split 'dev'"),
        ({"text": "body"}, "text: the records have no field 'body'. They have: text"),
    ],
)
def test_mistakes_name_their_binding(arguments, message):
    with pytest.raises(Mistake, match=f"^causal_lm_data.{message}"):
        task(**arguments).examples("eval", 0)
