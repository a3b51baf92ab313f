"""Tokenizers: learned from a source (WordPiece, byte-level BPE) or read from a file."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import gin
import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from data import cache
from data.loaded_tokenizer import SPECIALS, LoadedTokenizer
from data.packages import locate
from data.records import text as text_of
from data.sources.source import Source
from data.sources.splits import check_split, naming
from mistake import Mistake


class Tokenizer(Protocol):
    """What tasks need of a tokenizer. Token 0 is padding; a tokenizer of causal LMs may have a word there."""

    vocab_size: int
    cls_id: int
    sep_id: int
    mask_id: int
    # What begins a document (None: nothing does) and what ends it, for a model that writes them.
    begin_id: int | None
    end_id: int

    @property
    def identity(self) -> str:
        """A name that changes whenever the token ids of some text do: caches are keyed by it."""

    @property
    def is_special(self) -> np.ndarray:
        """bool [vocab_size]: tokens that stand for no text."""

    @property
    def ordinary_ids(self) -> np.ndarray:
        """int32: the tokens that stand for text."""

    @property
    def is_continuation(self) -> np.ndarray:
        """bool [vocab_size]: tokens that go on with the word of the token before."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, without special ones around."""

    def decode(self, ids: Sequence[int]) -> str: ...

    def save(self, folder: Path) -> Path:
        """Writes tokenizer.json into `folder`, and returns its path."""


@gin.configurable("wordpiece")
def wordpiece(
    vocab_size: int = gin.REQUIRED,
    source: Source = gin.REQUIRED,
    split: str = "train",
    text: str = "text",
    alphabet: int | None = None,
) -> Tokenizer:
    """BERT's WordPiece in lower case, learned from the texts of a split and kept in the cache.

    The same texts give the same tokens.

    Args:
      vocab_size: tokens, special ones included. A small text may give fewer.
      source, split, text: where the texts are: a source, its split, the records' field.
      alphabet: how many characters get a token, the commonest; a word with others is [UNK]. None: those that, with and
        without '##', take a quarter of the vocabulary, but 100 at least.
    """
    _check_size("wordpiece", vocab_size)
    kept = max(100, vocab_size // 8) if alphabet is None else alphabet

    def train(texts: Callable[[], Iterator[str]]) -> tokenizers.Tokenizer:
        normalizer = normalizers.BertNormalizer(lowercase=True)
        counts: Counter = Counter()
        for each in texts():
            counts.update(normalizer.normalize_str(each))
        by_count = sorted((char for char in counts if not char.isspace()), key=lambda char: (-counts[char], char))
        commonest = by_count[:kept]
        _check_alphabet("wordpiece", vocab_size, 2 * len(commonest))
        learner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        learner.normalizer, learner.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
        # The trainer numbers '##' characters in the order of a hash table with a random seed, and breaks ties by
        # number, so two runs would learn different tokens. Given as special tokens, these have fixed numbers; only the
        # vocabulary is kept.
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            special_tokens=[*SPECIALS, *("##" + char for char in sorted(commonest))],
            initial_alphabet=sorted(commonest),
            limit_alphabet=len(commonest),
            show_progress=False,
        )
        learner.train_from_iterator(texts(), trainer)
        return _bert(learner.get_vocab())

    return _learned("wordpiece", train, vocab_size, source, split, text, kept)


@gin.configurable("bpe")
def bpe(
    vocab_size: int = gin.REQUIRED, source: Source = gin.REQUIRED, split: str = "train", text: str = "text"
) -> Tokenizer:
    """GPT-2's byte-level BPE with BERT's special tokens, learned from the texts of a split and kept in the cache.

    No text is unknown to it.

    Args: as for wordpiece.
    """
    _check_size("bpe", vocab_size)

    def train(texts: Callable[[], Iterator[str]]) -> tokenizers.Tokenizer:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        _check_alphabet("bpe", vocab_size, len(alphabet))
        learner = tokenizers.Tokenizer(models.BPE())
        learner.pre_tokenizer, learner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
        )
        learner.train_from_iterator(texts(), trainer)
        return learner

    return _learned("bpe", train, vocab_size, source, split, text)


@gin.configurable("tokenizer_file")
def tokenizer_file(
    path: str = gin.REQUIRED, vocab_size: int | None = None, begin: str | None = "[CLS]", end: str = "[SEP]"
) -> Tokenizer:
    """A tokenizer.json, or BERT's vocab.txt (a token a line; taken to be lower-case).

    Args:
      path: 'fetched:minilm/tokenizer.json' is a file of what `python -m data.fetch minilm` fetched.
      vocab_size: at least the file's; None is the file's, which is then read when the model's size is checked.
      begin, end: the tokens around a document that a causal LM writes: of GPT-2 None and '<|endoftext|>'. A file for
        which they are set is for causal LMs only: BERT's special tokens aren't asked for.
    """

    def load() -> tokenizers.Tokenizer:
        file = locate(path, "tokenizer_file.path")
        if file.suffix == ".txt":
            tokens = file.read_text(encoding="utf-8").splitlines()
            return _bert({token: id for id, token in enumerate(tokens)})
        try:
            return tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # noqa: BLE001  the library raises nothing narrower
            raise Mistake(f"tokenizer_file.path: {path} is no tokenizer: {error}.") from None

    return LoadedTokenizer(load, "tokenizer_file", vocab_size, begin, end)


def _bert(vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    """Lower-case BERT over a vocabulary. Only SPECIALS are special in it."""
    bert = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    bert.decoder = decoders.WordPiece()
    bert.add_special_tokens([token for token in SPECIALS if token in vocabulary])
    return bert


def _learned(
    binding: str, train: Callable, vocab_size: int, source: Source, split: str, text: str, *settings
) -> Tokenizer:
    """A tokenizer that `train` learns from the texts once, and that comes from the cache afterwards."""
    check_split(source, split, f"{binding}.split")

    def texts() -> Iterator[str]:
        with naming(f"{binding}.split"):
            records = source.open(split)
        return (text_of(records[i], text, f"{binding}.text") for i in range(len(records)))

    def load() -> tokenizers.Tokenizer:
        with naming(f"{binding}.split"):
            identity = source.identity(split)
        key = cache.key(binding, vocab_size, identity, text, *settings, version("tokenizers"))
        folder = cache.build(
            cache.folder() / "tokenizers" / key, lambda partial: train(texts).save(str(partial / "tokenizer.json"))
        )
        return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    return LoadedTokenizer(load, binding, vocab_size)


def _check_size(binding: str, vocab_size: int) -> None:
    if vocab_size <= len(SPECIALS):
        raise Mistake(f"{binding}.vocab_size: {vocab_size} leaves no room beside the {len(SPECIALS)} special tokens.")


def _check_alphabet(binding: str, vocab_size: int, characters: int) -> None:
    if vocab_size < len(SPECIALS) + characters:
        raise Mistake(
            f"{binding}.vocab_size: {vocab_size} does not hold the alphabet. "
            f"It must be at least {len(SPECIALS) + characters}."
        )
