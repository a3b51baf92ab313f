"""The commands: what they write, say, refuse, and their exit statuses."""

import pathlib
import shutil

import pytest
import safetensors.numpy

from models.pretrained.__main__ import main
from models.pretrained.checkpoint import read
from tests.models.pretrained.fixture_models import FIXTURES, tensors

MASKED_LM = str(FIXTURES / "masked_lm")


def test_import_then_export_comes_back_bit_equal_with_its_tokenizer(tmp_path, capsys):
    source = shutil.copytree(MASKED_LM, tmp_path / "source")
    (source / "vocab.txt").write_text("[PAD]\n")
    (source / "tokenizer.json").write_text("{}")
    assert main(["import", "--family=bert", str(source), str(tmp_path / "ours")]) == 0
    assert main(["export", "--family=bert", str(tmp_path / "ours"), str(tmp_path / "theirs")]) == 0
    assert _names(tmp_path / "ours") == {"model.safetensors", "model.gin", "vocab.txt", "tokenizer.json"}
    assert _names(tmp_path / "theirs") == {"model.safetensors", "config.json", "vocab.txt", "tokenizer.json"}
    before, after = tensors("masked_lm"), safetensors.numpy.load_file(tmp_path / "theirs" / "model.safetensors")
    assert {key: x.tobytes() for key, x in before.items()} == {key: x.tobytes() for key, x in after.items()}
    assert "5,109 parameters, with the head of BertForMaskedLM, tokenizer.json, vocab.txt" in capsys.readouterr().out
    assert _names(tmp_path) == {"source", "ours", "theirs"}


def test_what_is_left_out_is_said(tmp_path, capsys):
    assert main(["import", str(FIXTURES / "pretraining"), str(tmp_path / "ours")]) == 0
    assert "cls.seq_relationship.weight is left out: the next-sentence head" in capsys.readouterr().out


def test_resizing_is_done_and_said(tmp_path, capsys):
    assert main(["import", MASKED_LM, str(tmp_path / "ours"), "--vocab_size", "40", "--positions", "6"]) == 0
    settings = read(tmp_path / "ours").settings
    assert (settings["bert.vocab_size"], settings["bert.max_length"]) == (40, 6)
    said = capsys.readouterr().out
    assert "vocabulary of 37 padded" in said and "positions cut from 12 to 6" in said


def test_a_folder_with_files_is_left_alone_without_overwrite(tmp_path, capsys):
    main(["import", str(FIXTURES / "token"), str(tmp_path / "ours")])
    assert main(["import", MASKED_LM, str(tmp_path / "ours")]) == 2
    assert "add --overwrite" in capsys.readouterr().err
    assert read(tmp_path / "ours").head == "BertForTokenClassification"
    assert main(["import", MASKED_LM, str(tmp_path / "ours"), "--overwrite"]) == 0
    assert read(tmp_path / "ours").head == "BertForMaskedLM"
    assert _names(tmp_path) == {"ours"}


def test_overwrite_never_replaces_what_is_no_checkpoint(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["import", MASKED_LM, str(tmp_path), "--overwrite"]) == 2
    assert "thesis.txt" in capsys.readouterr().err
    assert _names(tmp_path) == {"thesis.txt"}


def test_a_file_in_the_folder_s_place_is_a_mistake(tmp_path):
    (tmp_path / "ours").write_text("")
    assert main(["import", MASKED_LM, str(tmp_path / "ours"), "--overwrite"]) == 2


def test_a_writer_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("models.pretrained.checkpoint.write_ours", fail)
    with pytest.raises(OSError, match="disk full"):
        main(["import", MASKED_LM, str(tmp_path / "ours")])
    assert _names(tmp_path) == set()


def test_a_swap_that_fails_keeps_what_was_there(tmp_path, monkeypatch):
    main(["import", str(FIXTURES / "token"), str(tmp_path / "ours")])
    rename = pathlib.Path.rename

    def fail(self, target):
        if self.name == "new":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(pathlib.Path, "rename", fail)
    with pytest.raises(OSError, match="no"):
        main(["import", MASKED_LM, str(tmp_path / "ours"), "--overwrite"])
    assert read(tmp_path / "ours").head == "BertForTokenClassification"


@pytest.mark.parametrize("command", ["import", "export", "compare"])
def test_a_source_that_is_not_there_exits_with_2(command, tmp_path, capsys):
    assert main([command, str(tmp_path / "none"), str(tmp_path / "out")]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_import_of_ours_and_export_of_theirs_are_mistakes(tmp_path):
    main(["import", MASKED_LM, str(tmp_path / "ours")])
    assert main(["import", str(tmp_path / "ours"), str(tmp_path / "again")]) == 2
    assert main(["export", MASKED_LM, str(tmp_path / "again")]) == 2


def test_an_unknown_family_exits_with_2(tmp_path):
    assert main(["import", "--family=bart", MASKED_LM, str(tmp_path / "ours")]) == 2


def test_compare_exits_with_0_for_the_same_and_1_for_another(tmp_path, capsys):
    main(["import", MASKED_LM, str(tmp_path / "ours")])
    assert main(["compare", MASKED_LM, str(tmp_path / "ours")]) == 0
    said = capsys.readouterr().out
    assert "compared by " in said and "\nwithin 1e-05" in said
    assert main(["compare", str(FIXTURES / "token"), str(tmp_path / "ours")]) == 1
    assert "NOT within" in capsys.readouterr().out


def _names(folder) -> set[str]:
    return {each.name for each in folder.iterdir()}
