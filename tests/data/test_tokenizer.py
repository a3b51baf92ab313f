"""Tokenizers are the same each time, declare their size, and know their special tokens."""

import subprocess
import sys

import numpy as np
import pytest
import tokenizers

from data.sources import PydocTopics
from data.tokenizer import bpe, tokenizer_file, wordpiece
from mistake import Mistake
from tests.data.words import Records

TEXT = Records(
    train=[{"text": "the cat sat on the mat. The cats sat on mats! " * 20}, {"text": "Naïve café, the cat's mat"}]
)


class Untouchable:
    """A source that may not be opened."""

    def open(self, split):
        raise AssertionError("opened")

    identity = open


@pytest.mark.parametrize("kind", [wordpiece, bpe])
def test_the_declared_size_is_known_without_reading_anything(kind):
    assert kind(300, Untouchable()).vocab_size == 300


@pytest.mark.parametrize("kind", [wordpiece, bpe])
def test_padding_is_zero_and_special_tokens_come_first(kind):
    tokenizer = kind(300, TEXT)
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (2, 3, 4)
    np.testing.assert_array_equal(np.flatnonzero(tokenizer.is_special), [0, 1, 2, 3, 4])
    assert tokenizer.is_special.shape == tokenizer.is_continuation.shape == (300,)
    assert tokenizer.ordinary_ids.min() == 5
    assert tokenizer.ordinary_ids.max() < 300


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_two_processes_learn_the_same_tokens(kind, tmp_path):
    # The library's own hash tables are seeded anew in each process.
    program = (
        "import sys; from pathlib import Path; from data.sources import PydocTopics; from data import tokenizer; "
        f"tokenizer.{kind}(1000, PydocTopics(), 'validation').save(Path(sys.argv[1]))"
    )
    files = []
    for run in ("first", "second"):
        environment = {"MESHWRIGHT_CACHE": str(tmp_path / run / "cache")}
        subprocess.run([sys.executable, "-c", program, str(tmp_path / run)], check=True, env=environment)
        files.append((tmp_path / run / "tokenizer.json").read_bytes())
    assert files[0] == files[1]


def test_a_learned_tokenizer_comes_from_the_cache(cache_folder):
    wordpiece(300, TEXT).encode_batch(["the"])
    (file,) = cache_folder.glob("tokenizers/*/tokenizer.json")
    written = file.stat().st_mtime_ns
    tokenizer = wordpiece(300, TEXT)
    tokenizer.encode_batch(["the"])
    assert file.stat().st_mtime_ns == written
    wordpiece(301, TEXT).encode_batch(["the"])
    assert len(list(cache_folder.glob("tokenizers/*/tokenizer.json"))) == 2


def test_wordpiece_lowers_and_marks_continuations():
    tokenizer = wordpiece(60, TEXT)
    (ids,) = tokenizer.encode_batch(["The CATS"])
    assert tokenizer.encode_batch(["the cats"]) == [ids]
    assert tokenizer.decode(ids) == "the cats"
    (cats,) = tokenizer.encode_batch(["cafecat"])
    np.testing.assert_array_equal(tokenizer.is_continuation[cats], [False] + [True] * (len(cats) - 1))


def test_wordpiece_gives_only_the_commonest_characters_a_token():
    tokenizer = wordpiece(100, Records(train=[{"text": "aaaa bbb aab ab z"}]), alphabet=2)
    (known, unknown) = tokenizer.encode_batch(["ab", "az"])
    assert 1 not in known
    assert unknown == [1]


def test_bpe_knows_every_byte_and_gives_the_text_back():
    tokenizer = bpe(300, TEXT)
    text = "Ünknown 字 \t\n the  end"
    (ids,) = tokenizer.encode_batch([text])
    assert 1 not in ids
    assert tokenizer.decode(ids) == text


def test_bpe_words_begin_with_their_space():
    tokenizer = bpe(300, TEXT)
    (ids,) = tokenizer.encode_batch([" cat zzz"])
    begins = [n for n, id in enumerate(ids) if not tokenizer.is_continuation[id]]
    assert len(begins) == 2
    assert begins[0] == 0


def test_special_tokens_do_not_come_from_encoding():
    for tokenizer in (wordpiece(60, TEXT), bpe(300, TEXT)):
        (ids,) = tokenizer.encode_batch(["the cat"])
        assert not tokenizer.is_special[ids].any()


@pytest.mark.parametrize("kind", ["json", "vocabulary"])
def test_a_file_is_read_back(kind, tmp_path):
    learned = wordpiece(60, TEXT)
    file = learned.save(tmp_path)
    if kind == "vocabulary":
        vocabulary = tokenizers.Tokenizer.from_file(str(file)).get_vocab()
        file = tmp_path / "vocab.txt"
        file.write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n", encoding="utf-8")
    read = tokenizer_file(str(file))
    assert read.vocab_size <= 60
    assert read.encode_batch(["the cat sat, naïve"]) == learned.encode_batch(["the cat sat, naïve"])
    assert tokenizer_file(str(file), vocab_size=64).vocab_size == 64


def test_padding_and_truncation_of_a_file_are_put_aside(tmp_path):
    file = wordpiece(60, TEXT).save(tmp_path)
    settings = tokenizers.Tokenizer.from_file(str(file))
    settings.enable_padding(length=50)
    settings.enable_truncation(2)
    settings.save(str(file))
    assert tokenizer_file(str(file)).encode_batch(["the cat sat"]) == wordpiece(60, TEXT).encode_batch(["the cat sat"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wordpiece(5, TEXT), r"^wordpiece.vocab_size: 5 leaves no room"),
        (lambda: wordpiece(12, TEXT).encode_batch(["x"]), r"^wordpiece.vocab_size: 12 does not hold the alphabet"),
        (lambda: bpe(100, TEXT).encode_batch(["x"]), r"^bpe.vocab_size: 100 .* at least 261"),
        (
            lambda: wordpiece(300, TEXT, text="txt").encode_batch(["x"]),
            r"^wordpiece.text: .* no field 'txt'.*Nearest: 'text'",
        ),
        (lambda: wordpiece(300, TEXT, split="tran").encode_batch(["x"]), r"^wordpiece.split: .*no split 'tran'"),
        (lambda: tokenizer_file("no/such.json").vocab_size, r"^tokenizer_file.path: there is no no/such.json"),
    ],
)
def test_mistakes_name_their_binding(make, message):
    with pytest.raises(Mistake, match=message):
        make()


def test_a_file_that_is_no_tokenizer_is_a_mistake(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(Mistake, match=r"^tokenizer_file.path: "):
        tokenizer_file(str(tmp_path / "tokenizer.json")).encode_batch(["x"])


def test_a_vocabulary_without_padding_at_zero_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\na\n")
    with pytest.raises(Mistake, match=r"\[PAD\] is token 1. It must be 0"):
        tokenizer_file(str(tmp_path / "vocab.txt")).encode_batch(["a"])
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\na\n")
    with pytest.raises(Mistake, match=r"lacks \[CLS\], \[SEP\], \[MASK\]"):
        tokenizer_file(str(tmp_path / "vocab.txt")).encode_batch(["a"])


def _of_causal_lms(folder):
    """A byte-level BPE whose only special token ends texts, as GPT-2's is: 0 is a word."""
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=256, initial_alphabet=alphabet, show_progress=False)
    learner.train_from_iterator(["the cat"], trainer)
    learner.add_special_tokens(["<|endoftext|>"])
    learner.save(str(folder / "tokenizer.json"))
    return str(folder / "tokenizer.json")


def test_documents_begin_and_end_with_the_tokens_of_bert_unless_others_are_named(tmp_path):
    learned = wordpiece(60, TEXT)
    assert (learned.begin_id, learned.end_id) == (learned.cls_id, learned.sep_id) == (2, 3)
    tokenizer = tokenizer_file(_of_causal_lms(tmp_path), begin=None, end="<|endoftext|>")
    assert (tokenizer.begin_id, tokenizer.end_id) == (None, 256)
    np.testing.assert_array_equal(np.flatnonzero(tokenizer.is_special), [256])
    assert tokenizer_file(_of_causal_lms(tmp_path), begin="<|endoftext|>", end="<|endoftext|>").begin_id == 256


def test_a_tokenizer_of_causal_lms_is_refused_where_berts_is_needed(tmp_path):
    with pytest.raises(Mistake, match=r"^tokenizer_file: the tokenizer lacks \[PAD\], .*\[MASK\]"):
        tokenizer_file(_of_causal_lms(tmp_path)).encode_batch(["a"])
    with pytest.raises(Mistake, match=r"^tokenizer_file: .* lacks \[MASK\]: it is one for causal LMs"):
        tokenizer_file(_of_causal_lms(tmp_path), begin=None, end="<|endoftext|>").mask_id  # noqa: B018
    with pytest.raises(Mistake, match=r"^tokenizer_file.end: the tokenizer lacks </s>. Its.*: '<\|endoftext\|>'"):
        tokenizer_file(_of_causal_lms(tmp_path), begin=None, end="</s>").encode_batch(["a"])


def test_a_declared_size_that_is_too_small_is_refused(tmp_path):
    file = wordpiece(60, TEXT).save(tmp_path)
    with pytest.raises(Mistake, match=r"^tokenizer_file.vocab_size: 10, and the tokenizer has"):
        tokenizer_file(str(file), vocab_size=10).encode_batch(["a"])


def test_the_default_corpus_gives_every_token_asked_for():
    assert len(wordpiece(1024, PydocTopics(), "validation").ordinary_ids) == 1024 - 5
