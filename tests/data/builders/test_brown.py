"""Brown's format, splits and cuts."""

import collections

from data.builders.brown import _passages, as_text, parse, splits

LINE = "\tThe/at jury/nn said/vbd ``/`` no/at 1/2/cd evidence/nn (/( yet/rb )/) ''/'' ./.\n"


def test_words_and_tags_are_parted_at_the_last_slash():
    (sentence,) = parse(f"\n\n{LINE}\n")
    assert sentence[0] == ("The", "at")
    assert sentence[5] == ("1/2", "cd")
    assert sentence[-1] == (".", ".")


def test_text_has_its_punctuation_where_it_belongs():
    (sentence,) = parse(LINE)
    assert as_text(sentence) == 'The jury said "no 1/2 evidence (yet)".'


def test_every_genre_is_in_every_split_and_each_file_in_one():
    # The counts of the corpus's manual, in the order of its letters.
    sizes = [44, 27, 17, 17, 36, 48, 75, 30, 80, 29, 24, 6, 29, 29, 9]
    genres = {f"c{genre}-{n}": str(genre) for genre, size in enumerate(sizes) for n in range(size)}
    parts = splits(genres)
    assert sorted(file for files in parts.values() for file in files) == sorted(genres)
    for files in parts.values():
        assert len(collections.Counter(genres[file] for file in files)) == 15
    assert all(40 < len(parts[split]) < 60 for split in ("validation", "test"))


def test_a_file_keeps_its_split_when_other_genres_change():
    genres = {f"a{n}": "a" for n in range(20)}
    alone, together = splits(genres), splits(genres | {f"b{n}": "b" for n in range(20)})
    assert all(set(alone[split]) <= set(together[split]) for split in alone)


def test_passages_are_whole_sentences_of_a_hundred_words():
    sentence = [("word", "nn")] * 30
    passages = list(_passages([sentence] * 9))
    assert [len(passage["text"].split()) for passage in passages] == [120, 120]
