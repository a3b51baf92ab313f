"""Copies of a mail stay together."""

import collections

from data.builders.spam_assassin import split_of


def test_texts_that_differ_in_case_and_white_space_are_in_one_split():
    for n in range(50):
        text = f"Buy {n} of these NOW"
        assert split_of(text) == split_of(f"  buy\n{n} of  these now\n")


def test_a_tenth_each_is_held_out():
    counts = collections.Counter(split_of(f"mail {n}") for n in range(5000))
    for split in ("validation", "test"):
        assert abs(counts[split] - 500) < 5 * (5000 * 0.1 * 0.9) ** 0.5
    assert sum(counts.values()) == 5000
