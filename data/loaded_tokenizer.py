"""A tokenizer of the `tokenizers` library, made when it is first needed."""

import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import models

from data import cache
from mistake import Mistake

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class LoadedTokenizer:
    """A tokenizer that is loaded, or learned, when first needed.

    Args:
      load: makes it.
      binding: the gin name of what made this, for messages.
      vocab_size: declared, so known without loading; what is loaded may have fewer tokens. None: as many as it has.
      begin, end: the tokens around a document that a model writes. Where they aren't BERT's, neither are the others: the
        tokenizer then need not have BERT's special tokens, nor padding at 0.
    """

    def __init__(
        self,
        load: Callable[[], tokenizers.Tokenizer],
        binding: str,
        vocab_size: int | None,
        begin: str | None = "[CLS]",
        end: str = "[SEP]",
    ):
        self._load, self._binding, self._declared_size = load, binding, vocab_size
        self._begin, self._end = begin, end
        self._loaded: tokenizers.Tokenizer | None = None
        self._lock = threading.Lock()

    @property
    def _tokenizer(self) -> tokenizers.Tokenizer:
        with self._lock:  # several threads make batches, and one of them loads
            if self._loaded is None:
                self._loaded = self._checked(self._load())
            return self._loaded

    def _checked(self, tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
        # Padding and truncation are the tasks' business; files often carry settings of their own.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        of_bert = (self._begin, self._end) == ("[CLS]", "[SEP]")
        needed = {"": SPECIALS} if of_bert else {".begin": (self._begin,), ".end": (self._end,)}
        for parameter, tokens in needed.items():
            missing = [token for token in tokens if token is not None and tokenizer.token_to_id(token) is None]
            if missing:
                special = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
                has = "" if of_bert else f" Its special tokens: {', '.join(map(repr, special))}."
                raise Mistake(f"{self._binding}{parameter}: the tokenizer lacks {', '.join(missing)}.{has}")
        if of_bert and tokenizer.token_to_id("[PAD]") != 0:
            raise Mistake(
                f"{self._binding}: [PAD] is token {tokenizer.token_to_id('[PAD]')}. "
                "It must be 0: zero is padding in every field."
            )
        size = tokenizer.get_vocab_size()
        if self._declared_size is not None and size > self._declared_size:
            raise Mistake(
                f"{self._binding}.vocab_size: {self._declared_size}, and the tokenizer has {size} tokens. "
                "It must be at least that."
            )
        return tokenizer

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size() if self._declared_size is None else self._declared_size

    @functools.cached_property
    def identity(self) -> str:
        return cache.key(self._tokenizer.to_str())

    @property
    def cls_id(self) -> int:
        return self._special("[CLS]")

    @property
    def sep_id(self) -> int:
        return self._special("[SEP]")

    @property
    def mask_id(self) -> int:
        return self._special("[MASK]")

    @property
    def begin_id(self) -> int | None:
        return None if self._begin is None else self._special(self._begin)

    @property
    def end_id(self) -> int:
        return self._special(self._end)

    def _special(self, token: str) -> int:
        id = self._tokenizer.token_to_id(token)
        if id is None:  # where begin and end aren't BERT's
            raise Mistake(f"{self._binding}: the tokenizer lacks {token}: it is one for causal LMs, not for encoders.")
        return id

    @functools.cached_property
    def is_special(self) -> np.ndarray:
        special = np.zeros(self.vocab_size, bool)
        special[[id for id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special]] = True
        known = [self._tokenizer.token_to_id(token) for token in (*SPECIALS, self._begin, self._end) if token]
        special[[id for id in known if id is not None]] = True
        return special

    @functools.cached_property
    def ordinary_ids(self) -> np.ndarray:
        known = np.zeros(self.vocab_size, bool)
        known[list(self._tokenizer.get_vocab().values())] = True
        return np.flatnonzero(known & ~self.is_special).astype(np.int32)

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        continues = np.zeros(self.vocab_size, bool)
        model = self._tokenizer.model
        for token, id in self._tokenizer.get_vocab().items():
            if isinstance(model, models.WordPiece):
                continues[id] = token.startswith(model.continuing_subword_prefix)
            elif isinstance(model, models.BPE):
                # Byte-level: a word begins with its space or line break, written as these letters.
                continues[id] = not token.startswith(("Ġ", "Ċ", "č", "ĉ"))
            else:
                raise Mistake(
                    f"{self._binding}: nothing says where words begin in a {type(model).__name__} vocabulary."
                )
        return continues & ~self.is_special

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids))

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        self._tokenizer.save(str(folder / "tokenizer.json"))
        return folder / "tokenizer.json"
