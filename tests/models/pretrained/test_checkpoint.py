"""What can be read, and what is refused and how it is said."""

import dataclasses
import json
import os
import pickle
import re
import shutil
import zipfile

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from mistake import Mistake
from models.pretrained.checkpoint import import_checkpoint, read, write_ours, write_theirs
from models.pretrained.folder import writing
from tests.models.pretrained.fixture_models import FIXTURES, tensors


@pytest.fixture
def folder(tmp_path):
    """A writable copy of the masked LM."""
    return shutil.copytree(FIXTURES / "masked_lm", tmp_path / "copy")


def save(folder, arrays, name="model.safetensors"):
    safetensors.numpy.save_file({key: np.ascontiguousarray(x) for key, x in arrays.items()}, folder / name)


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


def test_shards_are_read_as_one(folder):
    expected, _ = import_checkpoint(folder)
    arrays = tensors("masked_lm")
    (folder / "model.safetensors").unlink()
    names = {key: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, key in enumerate(arrays)}
    for shard in set(names.values()):
        save(folder, {key: x for key, x in arrays.items() if names[key] == shard}, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert same(import_checkpoint(folder)[0], expected)


@pytest.mark.parametrize(
    "name",
    [
        "../out.safetensors",
        "/etc/out.safetensors",
        "a/b.safetensors",
        "..\\out.safetensors",
        "c:x.safetensors",
        "..",
        "",
    ],
)
def test_a_shard_outside_the_folder_is_refused(folder, name):
    (folder / "model.safetensors").rename(folder.parent / "out.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(Mistake, match="is not the name of a file in this folder"):
        read(folder)


def test_a_missing_shard_is_named(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "one.safetensors"}}))
    with pytest.raises(Mistake, match="one.safetensors is missing"):
        read(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_a_pickle_is_refused_with_the_mend(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Exploding()))
    for source in (folder, folder / name):
        with pytest.raises(Mistake, match="pickle, which runs whatever code(.|\n)*save_pretrained"):
            read(source)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(Mistake, match="pickle"):
        read(folder)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_called_safetensors_is_refused(folder, protocol):
    (folder / "model.safetensors").write_bytes(pickle.dumps(Exploding(), protocol))
    with pytest.raises(Mistake, match="model.safetensors is a pickle"):
        read(folder)


def test_an_archive_of_pickles_called_safetensors_is_refused(folder):
    with zipfile.ZipFile(folder / "model.safetensors", "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Exploding()))
    with pytest.raises(Mistake, match="model.safetensors is a pickle"):
        read(folder)


class Exploding:
    def __reduce__(self):
        return pytest.fail, ("a pickle was run",)


def test_a_damaged_file_is_named(folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(Mistake, match="model.safetensors: it is damaged"):
        read(folder)


def test_missing_unused_and_mis_shaped_tensors_are_listed_together(folder):
    arrays = tensors("masked_lm")
    del arrays["bert.embeddings.LayerNorm.weight"], arrays["cls.predictions.bias"]
    arrays["bert.encoder.layer.2.output.dense.bias"] = np.zeros(16, np.float32)
    arrays["qa_outputs.bias"] = np.zeros(2, np.float32)
    arrays["bert.encoder.layer.1.intermediate.dense.weight"] = np.zeros((16, 24), np.float32)
    save(folder, arrays)
    with pytest.raises(Mistake) as caught:
        read(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder}: ")
    assert "missing: cls.predictions.bias, embeddings.LayerNorm.weight" in message
    assert "unused: encoder.layer.2.output.dense.bias, qa_outputs.bias" in message
    assert "mis-shaped: encoder.layer.1.intermediate.dense.weight is [16, 24], not [24, 16]" in message


def test_older_spellings_are_read(folder):
    expected, _ = import_checkpoint(folder)
    arrays = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): x
        for key, x in tensors("masked_lm").items()
    }
    arrays["bert.embeddings.position_ids"] = np.arange(12)[None]
    save(folder, arrays)
    found = read(folder)
    assert same(found.params, expected)
    assert found.notes == (
        "bert.embeddings.position_ids is left out: the numbers 0, 1, 2 ..., which older versions saved",
    )


def test_an_encoder_needs_no_prefix(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    arrays = {key: x for key, x in tensors("masked_lm").items() if key.startswith("bert.")}
    save(folder, arrays)
    expected = read(folder).params
    save(folder, {key.removeprefix("bert."): x for key, x in arrays.items()})
    assert same(read(folder).params, expected)


def test_one_tensor_under_two_names_is_refused(folder):
    arrays = tensors("masked_lm")
    arrays["embeddings.word_embeddings.weight"] = arrays["bert.embeddings.word_embeddings.weight"]
    save(folder, arrays)
    with pytest.raises(Mistake, match="twice"):
        read(folder)


def test_tied_tensors_are_dropped_only_when_equal(folder):
    expected, _ = import_checkpoint(folder)
    arrays = tensors("masked_lm")
    arrays["cls.predictions.decoder.weight"] = arrays["bert.embeddings.word_embeddings.weight"].copy()
    arrays["cls.predictions.decoder.bias"] = arrays["cls.predictions.bias"].copy()
    save(folder, arrays)
    found = read(folder)
    assert same(found.params, expected) and len(found.notes) == 2
    arrays["cls.predictions.decoder.weight"][3, 4] += 1e-3
    save(folder, arrays)
    with pytest.raises(
        Mistake, match="cls.predictions.decoder.weight is not equal to embeddings.word_embeddings.weight"
    ):
        read(folder)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_widened_exactly(folder, dtype):
    halves = {key: x.astype(dtype) for key, x in tensors("masked_lm").items()}
    save(folder, {key: x.astype(np.float32) for key, x in halves.items()})
    expected, _ = import_checkpoint(folder)
    save(folder, halves)
    found, _ = import_checkpoint(folder)
    assert same(found, expected) and {x.dtype for x in found.values()} == {np.dtype(np.float32)}


def test_quantized_tensors_are_refused(folder):
    arrays = tensors("masked_lm")
    arrays["cls.predictions.bias"] = arrays["cls.predictions.bias"].astype(np.int8)
    save(folder, arrays)
    with pytest.raises(Mistake, match="cls.predictions.bias is I8. Only F32, F16, BF16"):
        read(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "it has no config.json"),
        ("{", "it isn't JSON"),
        ("[]", "it isn't a JSON object"),
        ("[" * 100_000, "it isn't JSON"),
        ('{"model_type": "gpt2"}', "model_type is 'gpt2'"),
    ],
)
def test_a_config_that_cannot_be_read_is_refused(folder, text, said):
    (folder / "config.json").unlink() if text is None else (folder / "config.json").write_text(text)
    with pytest.raises(Mistake, match=said):
        read(folder)


def test_a_folder_without_tensors_and_no_folder_are_told_apart(tmp_path):
    with pytest.raises(Mistake, match="neither model.safetensors nor"):
        read(tmp_path)
    with pytest.raises(Mistake, match="no such folder"):
        read(tmp_path / "none")


def test_an_unknown_family_is_told_the_known():
    with pytest.raises(Mistake, match="Nearest: 'bert'"):
        read(FIXTURES / "encoder", "bart")


def test_a_sequence_classifier_without_its_pooler_lacks_it(tmp_path):
    folder = shutil.copytree(FIXTURES / "sequence", tmp_path / "copy")
    save(folder, {key: x for key, x in tensors("sequence").items() if "pooler" not in key})
    with pytest.raises(Mistake, match="missing: pooler.dense.bias, pooler.dense.weight"):
        read(folder)


def test_a_token_classifier_that_kept_its_pooler_stays_one(tmp_path):
    """As transformers before 4.0 saved them: its tensors are those of a sequence classifier."""
    folder = shutil.copytree(FIXTURES / "token", tmp_path / "copy")
    pooler = {"weight": np.ones((8, 8), np.float32), "bias": np.ones(8, np.float32)}
    save(folder, tensors("token") | {f"bert.pooler.dense.{name}": x for name, x in pooler.items()})
    (tmp_path / "ours").mkdir()
    write_ours(read(folder), tmp_path / "ours", "a comment")
    found = read(tmp_path / "ours")
    assert (found.head, found.num_classes) == ("BertForTokenClassification", 3)


def test_a_head_that_is_not_known_is_refused(tmp_path):
    write_ours(dataclasses.replace(read(FIXTURES / "token"), head="BertForChess"), tmp_path, "a comment")
    with pytest.raises(Mistake, match="its head is 'BertForChess'"):
        read(tmp_path)


def test_a_tied_tensor_that_alone_was_saved_is_read(folder):
    expected, _ = import_checkpoint(folder)
    arrays = tensors("masked_lm")
    arrays["cls.predictions.decoder.bias"] = arrays.pop("cls.predictions.bias")
    save(folder, arrays)
    found = read(folder)
    assert same(found.params, expected)
    assert "cls.predictions.decoder.bias is read as cls.predictions.bias" in found.notes[0]


def test_our_own_folder_is_read_back(tmp_path):
    expected = read(FIXTURES / "sequence")
    write_ours(expected, tmp_path, "a comment")
    found = read(tmp_path)
    assert same(found.params, expected.params)
    assert (found.settings, found.head, found.num_classes) == (expected.settings, "BertForSequenceClassification", 3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("bert.width = 20", "bert.width = 40", "mis-shaped: encoder.blocks.attention.key.bias is"),
        ("bert.width = 20", "", "bert.width: it is not bound"),
        (
            "bert.width = 20",
            "bert.width = 20\nbert.widht = 20",
            "bert.widht: it is not a binding(.|\n)*Nearest: 'bert.width'",
        ),
        ("bert.width = 20", "bert.width = @size()", "model.gin:3: "),
        ("bert.width = 20", "bert.width = 20\nadamw.rate = 1", "adamw.rate is no binding"),
    ],
)
def test_a_model_gin_that_does_not_fit_its_tensors_is_refused(tmp_path, old, new, said):
    write_ours(read(FIXTURES / "sequence"), tmp_path, "a comment")
    text = (tmp_path / "model.gin").read_text()
    assert old in text
    (tmp_path / "model.gin").write_text(text.replace(old, new))
    with pytest.raises(Mistake, match=said):
        read(tmp_path)


def test_one_safetensors_file_is_read_with_the_config_beside_it(folder):
    expected, _ = import_checkpoint(folder)
    named = (folder / "model.safetensors").rename(folder / "weights.safetensors")
    assert same(import_checkpoint(named)[0], expected)
    (folder / "config.json").unlink()
    with pytest.raises(Mistake, match=r"weights.safetensors: it needs its config.json beside it, and .*copy has none"):
        read(named)


def test_an_index_that_names_tensors_its_files_lack_is_refused_with_their_names(folder):
    names = dict.fromkeys(tensors("masked_lm"), "model.safetensors")
    index = folder / "model.safetensors.index.json"
    shard = folder / "a.safetensors"
    (folder / "model.safetensors").rename(shard)
    index.write_text(
        json.dumps({"weight_map": dict.fromkeys([*names, "ghost.weight", "spirit.bias"], "a.safetensors")})
    )
    with pytest.raises(Mistake, match=r"ghost.weight \(a.safetensors\), spirit.bias \(a.safetensors\)"):
        read(folder)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "a.safetensors")}))
    assert same(import_checkpoint(folder)[0], import_checkpoint(FIXTURES / "masked_lm")[0])


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o027, 0o640)])
def test_written_files_have_the_permissions_of_any_other_file(tmp_path, umask, mode):
    checkpoint, before = read(FIXTURES / "token"), os.umask(umask)
    try:
        for write in (
            lambda folder: write_ours(checkpoint, folder, "x"),
            lambda folder: write_theirs(checkpoint, folder),
        ):
            with writing(tmp_path / "out", overwrite=True) as partial:
                write(partial)
            assert {file.stat().st_mode & 0o777 for file in (tmp_path / "out").iterdir()} == {mode}
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_layers", "'two'"),
        ("num_layers", "2.0"),
        ("num_layers", "True"),
        ("width", "None"),
        ("dropout", "'much'"),
        ("dropout", "1.5"),
        ("pooler", "1"),
        ("activation", "3"),
        ("activation", "'gleu'"),
        ("positions", "'rotry'"),
        ("num_kv_heads", "(1,)"),
        ("parts", "7"),
        ("token_types", "-1"),
    ],
)
def test_a_value_in_model_gin_that_can_not_be_is_refused_by_its_name(tmp_path, name, value):
    write_ours(read(FIXTURES / "token"), tmp_path, "x")
    file = tmp_path / "model.gin"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"bert.{name} ")]
    file.write_text("\n".join([*lines, f"bert.{name} = {value}"]))
    with pytest.raises(Mistake, match=rf"bert\.{name}: {re.escape(value)}"):
        read(tmp_path)


def test_a_model_gin_of_before_there_were_parts_is_read(tmp_path):
    write_ours(read(FIXTURES / "token"), tmp_path, "x")
    file = tmp_path / "model.gin"
    file.write_text(file.read_text().replace("bert.parts = None\n", ""))
    assert same(import_checkpoint(tmp_path)[0], import_checkpoint(FIXTURES / "token")[0])
