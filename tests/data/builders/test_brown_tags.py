"""Brown's tags fall into the twelve parts of speech."""

import pytest

from data.builders.brown_tags import TAGS, reduce


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("nn", "NOUN"),
        ("np$-tl", "NOUN"),
        ("nn-tl-hl", "NOUN"),
        ("bedz*", "VERB"),
        ("md*-hl", "VERB"),
        ("vbg", "VERB"),
        ("jjt", "ADJ"),
        ("*", "ADV"),
        ("wrb", "ADV"),
        ("pps+bez", "PRON"),
        ("pp$$", "PRON"),
        ("pp$", "DET"),
        ("wp$", "DET"),
        ("at-tl", "DET"),
        ("in", "ADP"),
        ("cd", "NUM"),
        ("cs", "CONJ"),
        ("to", "PRT"),
        ("--", "."),
        ("---hl", "."),
        (".-hl", "."),
        (")", "."),
        ("fw-in+at-tl", "X"),
        ("fw-*", "X"),
        ("nil", "X"),
    ],
)
def test_tags_by_the_manual(tag, expected):
    assert reduce(tag) == expected


def test_there_are_twelve():
    assert len(TAGS) == len(set(TAGS)) == 12
