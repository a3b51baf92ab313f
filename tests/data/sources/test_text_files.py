"""Text files are cut into the records that were asked for."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.sources import TextFiles
from mistake import Mistake


def texts(source, split="train"):
    records = source.open(split)
    return [records[i]["text"] for i in range(len(records))]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "b.txt").write_text("Second file.\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("One,\nstill one.\n\n \n\nTwo: naïve.\r\n\r\nThree", encoding="utf-8")
    (tmp_path / "c.txt").write_text("")
    return tmp_path


def test_paragraphs(files):
    assert texts(TextFiles(f"{files}/*.txt")) == ["One,\nstill one.", "Two: naïve.", "Three", "Second file."]


def test_lines(files):
    assert texts(TextFiles(f"{files}/a.txt", "line")) == ["One,", "still one.", "Two: naïve.", "Three"]


def test_files(files):
    whole = texts(TextFiles([f"{files}/b.txt", f"{files}/a.txt"], "file"))
    assert [text.split()[0] for text in whole] == ["Second", "One,"]


def test_splits_can_be_files_or_parts(files):
    source = TextFiles({"train": f"{files}/a.txt", "validation": f"{files}/b.txt"})
    assert texts(source, "validation") == ["Second file."]
    assert texts(source, "train[1:]") == ["Two: naïve.", "Three"]


@given(st.text(alphabet="ab \n\t", max_size=60))
def test_paragraphs_are_those_of_a_reader_line_by_line(text):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/x.txt", "w", newline="") as out:
            out.write(text)
        blank = [paragraph.strip() for paragraph in re.split(r"\n[ \t]*(?=\n)", text)]
        expected = [paragraph for paragraph in blank if paragraph]
        assert texts(TextFiles(f"{folder}/x.txt")) == expected


def test_the_identity_changes_with_the_files(files):
    source = TextFiles(f"{files}/*.txt")
    before = source.identity("train")
    assert before == source.identity("train")
    os.utime(files / "a.txt", ns=(1, 1))
    assert source.identity("train") != before


def test_mistakes_name_the_binding_and_the_place(files):
    with pytest.raises(Mistake, match=r"^text_files.paths: .*nothing.* matches no file"):
        TextFiles(f"{files}/nothing*").open("train")
    with pytest.raises(Mistake, match=r"^text_files.document: 'word'. It is one of 'file', 'paragraph', 'line'"):
        TextFiles("x", "word")
    (files / "a.txt").write_bytes(b"fine\n\nb\xffd")
    with pytest.raises(Mistake, match=r"^text_files.paths: .*a.txt is not UTF-8 at byte 7"):
        texts(TextFiles(f"{files}/a.txt"))
    with pytest.raises(Mistake, match="no split 'validation'. Splits: 'train'"):
        TextFiles(f"{files}/*.txt").open("validation")
