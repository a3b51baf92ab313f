"""The real packages, from their registries: what this project says of them is so."""

import collections

import numpy as np
import pytest

from data import fetch
from data.loader import Loader
from data.sources import TFDS
from data.tasks import ClassificationData, ImageClassificationData, MaskedLMData, TokenClassificationData
from data.tokenizer import tokenizer_file, wordpiece

pytestmark = pytest.mark.usefixtures("warm_cache")


def records(name, split):
    source = TFDS(name, download=True).open(split)
    return [source[i] for i in range(len(source))]


@pytest.mark.xdist_group("spam_assassin")
def test_spam_assassin_has_its_mails_and_no_headers():
    parts = {split: records("spam_assassin", split) for split in ("train", "validation", "test")}
    mails = [mail for part in parts.values() for mail in part]
    # 6,046 in the package, of which 1,896 are spam (1,396 and 500); a few have no text.
    assert 6000 < len(mails) <= 6046
    counts = collections.Counter(int(mail["label"]) for mail in mails)
    assert 1860 < counts[1] <= 1896
    # One spammer sent the headers of another mail as his text.
    headers = [mail for mail in mails if mail["text"].startswith((b"Return-Path:", b"Received:", b"Delivered-To:"))]
    assert len(headers) == 1
    assert b"CashByNet" in headers[0]["text"]
    texts = {split: {" ".join(mail["text"].decode().lower().split()) for mail in part} for split, part in parts.items()}
    assert not texts["train"] & texts["validation"]
    assert not texts["train"] & texts["test"]
    assert not texts["validation"] & texts["test"]
    assert all(0.07 < len(parts[split]) / len(mails) < 0.13 for split in ("validation", "test"))


@pytest.mark.xdist_group("spam_assassin")
def test_spam_assassin_makes_batches():
    source = TFDS("spam_assassin", download=True)
    task = ClassificationData(source, wordpiece(512, source, "validation[:20%]"), 64, 2, train_split="train[:5%]")
    with Loader(task, "train", 8, seed=0) as loader:
        batch = next(loader)
    assert batch["tokens"].shape == (8, 64)
    assert set(batch["label"]) <= {0, 1}


@pytest.mark.xdist_group("brown")
def test_brown_has_every_genre_in_each_split():
    parts = {split: records("brown/documents", split) for split in ("train", "validation", "test")}
    assert sum(map(len, parts.values())) == 500
    assert all(len({int(record["genre"]) for record in part}) == 15 for part in parts.values())
    assert len({record["file"] for part in parts.values() for record in part}) == 500


@pytest.mark.xdist_group("brown")
def test_brown_packs_into_rows_of_text():
    source = TFDS("brown/documents", download=True)
    task = MaskedLMData(source, wordpiece(512, source, "validation[:10%]"), 128, 20, train_split="validation[:10]")
    with Loader(task, "train", 4, seed=0) as loader:
        assert (next(loader)["tokens"] != 0).mean() > 0.9


@pytest.mark.xdist_group("brown")
def test_brown_sentences_have_a_tag_for_each_word():
    source = TFDS("brown/sentences", download=True)
    parts = {split: source.open(split) for split in ("train", "validation", "test")}
    assert sum(map(len, parts.values())) == 57340  # as NLTK counts Brown's sentences
    task = TokenClassificationData(
        source, wordpiece(512, TFDS("brown/documents", download=True), "validation[:10%]"), 64, 12
    )
    with Loader(task, "eval", 16, seed=0, end="stop") as loader:
        batch = next(loader)
    for row in range(16):
        words = parts["validation"][row]["words"]
        assert batch["label_weights"][row].sum() <= len(words)
        assert batch["label_weights"][row].sum() > 0


@pytest.mark.xdist_group("minilm")
def test_minilm_has_the_vocabulary_of_bert():
    folder = fetch.fetch("minilm")
    assert (folder / "model.safetensors").stat().st_size == 90868376
    both = [tokenizer_file(f"fetched:minilm/{name}") for name in ("tokenizer.json", "vocab.txt")]
    for tokenizer in both:
        assert tokenizer.vocab_size == 30522
        assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (101, 102, 103)
        # "hello world" in bert-base-uncased, as published in its model card's examples.
        assert tokenizer.encode_batch(["Hello world"]) == [[7592, 2088]]
    assert not tokenizer_file("fetched:minilm/vocab.txt").is_special[7592]


@pytest.mark.xdist_group("digits")
def test_digits_are_all_there_and_make_batches():
    splits = ("train", "validation", "test")
    parts = {split: records("digits", split) for split in splits}
    labels = collections.Counter(int(record["label"]) for part in parts.values() for record in part)
    # As scikit-learn's documentation counts them: 1,797, "about 180" of each.
    assert sum(labels.values()) == 1797
    assert sorted(labels) == list(range(10))
    assert all(174 <= count <= 183 for count in labels.values())
    assert all(0.08 < len(parts[split]) / 1797 < 0.12 for split in ("validation", "test"))
    task = ImageClassificationData(TFDS("digits"), 8, 8, 1, 10)
    with Loader(task, "eval", 191, seed=0, end="stop") as loader:
        (batch,) = loader
    # load_digits().data.mean() is 4.8842 of 16, over all.
    assert abs((batch["image"].mean() + 1) / 2 * 16 - 4.88) < 0.1
    assert np.bincount(batch["label"]).min() > 5
