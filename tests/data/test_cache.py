"""The cache holds whole folders or none."""

import pytest

from data import cache


def test_a_folder_is_made_once(cache_folder):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "it").write_text("is")

    first, second = (cache.build(cache.folder() / "thing", make) for _ in range(2))
    assert first == second == cache_folder / "thing"
    assert len(made) == 1
    assert (first / "it").read_text() == "is"


def test_a_half_made_folder_is_never_found_and_leaves_nothing(cache_folder):
    def fail(folder):
        (folder / "half").write_text("")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        cache.build(cache.folder() / "thing", fail)
    assert list(cache_folder.iterdir()) == []


def test_the_remains_of_a_killed_process_are_not_taken_for_the_folder(cache_folder):
    remains = cache_folder / ".thing.partial-x"
    remains.mkdir(parents=True)
    (remains / "it").write_text("half")
    folder = cache.build(cache.folder() / "thing", lambda folder: (folder / "it").write_text("whole"))
    assert (folder / "it").read_text() == "whole"


def test_the_first_of_two_processes_wins(cache_folder):
    def make(folder):
        # Another process finishes the same folder meanwhile.
        (cache_folder / "thing").mkdir()
        (cache_folder / "thing" / "it").write_text("theirs")
        (folder / "it").write_text("ours")

    folder = cache.build(cache.folder() / "thing", make)
    assert (folder / "it").read_text() == "theirs"
    assert [path.name for path in cache_folder.iterdir()] == ["thing"]


def test_other_parts_have_another_key():
    assert cache.key("a", 1) == cache.key("a", 1)
    assert len({cache.key("a", 1), cache.key("a", 2), cache.key("a1"), cache.key(["a", 1])}) == 4
