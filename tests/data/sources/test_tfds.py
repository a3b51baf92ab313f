"""TFDS data sets are read by number, and nothing is downloaded unasked."""

import socket

import numpy as np
import pytest
import tensorflow_datasets as tfds
from etils import epath

from data.images import decode, png
from data.sources import TFDS
from mistake import Mistake


class TinySet(tfds.core.GeneratorBasedBuilder):
    """Six words."""

    code_path = epath.Path(__file__)
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {"text": tfds.features.Text(), "tags": tfds.features.Sequence(tfds.features.ClassLabel(num_classes=3))}
            )
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(0, 4), "test": self._generate_examples(4, 6)}

    def _generate_examples(self, start, stop):
        for n in range(start, stop):
            yield n, {"text": f"word {n}", "tags": [n % 3] * n}


class TinyPictures(tfds.core.GeneratorBasedBuilder):
    """Two grey images of 2x3."""

    code_path = epath.Path(__file__)
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        picture = tfds.features.Image(shape=(2, 3, 1), encoding_format="png")
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict({"picture": picture}))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for n in range(2):
            yield n, {"picture": png(PIXELS + np.uint8(n))}


PIXELS = np.arange(0, 240, 40, np.uint8).reshape(2, 3, 1)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def prepared(tmp_path):
    tfds.builder("tiny_set", data_dir=tmp_path, file_format="array_record").download_and_prepare()
    return str(tmp_path)


def test_records_are_read_by_number(prepared):
    records = TFDS("tiny_set", data_dir=prepared).open("train")
    assert {records[i]["text"] for i in range(len(records))} == {b"word 0", b"word 1", b"word 2", b"word 3"}
    assert all(len(records[i]["tags"]) == int(records[i]["text"].split()[1]) for i in range(4))
    assert len(TFDS("tiny_set:1.0.0", data_dir=prepared).open("train[:50%]")) == 2


def test_images_are_the_bytes_of_a_file(tmp_path):
    records = TFDS("tiny_pictures", data_dir=str(tmp_path), download=True).open("train")
    assert all(isinstance(records[n]["picture"], bytes) for n in range(2))
    first = min((decode(records[n]["picture"], "x") for n in range(2)), key=lambda image: image.sum())
    np.testing.assert_array_equal(first, PIXELS)


def test_the_identity_follows_the_split(prepared):
    source = TFDS("tiny_set", data_dir=prepared)
    assert "tiny_set/1.0.0" in source.identity("train")
    assert source.identity("train") != source.identity("test")


def test_a_set_that_is_not_prepared_is_said_with_its_command(tmp_path):
    with pytest.raises(
        Mistake, match=r"^tfds.name: 'tiny_set' is not in .*tfds.download = True.*file_format='array_record'"
    ):
        TFDS("tiny_set", data_dir=str(tmp_path)).open("train")
    with pytest.raises(Mistake, match=r"^tfds.name: 'brown/documents' is not in .*: python -m data.fetch brown$"):
        TFDS("brown/documents").open("train")
    with pytest.raises(Mistake, match=r"^tfds.name: 'mnist' is not in"):
        TFDS("mnist", data_dir=str(tmp_path)).open("train")


def test_a_set_is_prepared_when_the_user_says_so(tmp_path):
    assert len(TFDS("tiny_set", data_dir=str(tmp_path), download=True).open("test")) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny_sat", "has no data set 'tiny_sat'. Nearest: 'tiny_set'"),
        ("browm/documents", "Nearest: 'brown'"),
        ("brown/chapters", "brown/chapters"),
        ("tiny_set:9.9.9", "9.9.9"),
        ("a b", "'a b'"),
        ("huggingface:squad", "asks the network"),
    ],
)
def test_a_name_that_means_nothing_is_a_mistake(name, message, prepared):
    with pytest.raises(Mistake, match=rf"(?s)^tfds.name: .*{message}"):
        TFDS(name, data_dir=prepared).open("train")


def test_an_unknown_split_lists_those_there_are(prepared):
    with pytest.raises(Mistake, match="no split 'validation'. Splits: '(train', 'test|test', 'train)'"):
        TFDS("tiny_set", data_dir=prepared).open("validation")


def test_a_format_that_has_no_numbers_is_said(tmp_path, monkeypatch):
    tfds.builder("tiny_set", data_dir=tmp_path, file_format="array_record").download_and_prepare()

    def refuse(*_, **__):
        raise NotImplementedError("tfrecord")

    monkeypatch.setattr(TinySet, "as_data_source", refuse)
    with pytest.raises(Mistake, match=r"can't be read by number. Set tfds.data_dir to another folder"):
        TFDS("tiny_set", data_dir=str(tmp_path)).open("train")
