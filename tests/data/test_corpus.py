"""A corpus is tokenised once and read in any order."""

import numpy as np

from data.corpus import tokenise
from tests.data.words import Records, Words, documents


def test_documents_are_read_in_part_and_in_any_order():
    source, words = Records(train=documents(4, 0, 6)), Words()
    corpus = tokenise(source, "train", words, "text", "x.text")
    np.testing.assert_array_equal(corpus.lengths, [4, 0, 6])
    np.testing.assert_array_equal(corpus.read(2, 1, 3), [10, 11])
    np.testing.assert_array_equal(corpus.head(0, 100), [5, 6, 7, 8])
    np.testing.assert_array_equal(corpus.head(2, 2), [9, 10])


def test_the_second_time_the_tokens_come_from_the_cache():
    source, words = Records(train=documents(4, 0, 6)), Words()
    corpus = tokenise(source, "train", words, "text", "x.text")
    words.encode_batch = None  # not called again
    again = tokenise(source, "train", words, "text", "x.text")
    np.testing.assert_array_equal(again.tokens, corpus.tokens)


def test_other_texts_and_other_tokenizers_are_other_corpora():
    words, others = Words(), Words()
    others.identity = "others"
    folders = set()
    for source in (Records(train=documents(4)), Records(train=documents(5))):
        for tokenizer in (words, others):
            folders.add(tokenise(source, "train", tokenizer, "text", "x.text").tokens.filename)
    assert len(folders) == 4


def test_a_vocabulary_too_large_for_sixteen_bits_keeps_its_tokens():
    words = Words(vocab_size=100_000, words=90_000)
    corpus = tokenise(Records(train=[{"text": "w70000 w3"}]), "train", words, "text", "x.text")
    np.testing.assert_array_equal(corpus.read(0, 0, 2), [70005, 8])
