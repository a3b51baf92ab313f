"""What a reference gives is told from the code: another kind, one left uncalled, and one without end are refused."""

from typing import Protocol

import gin
import pytest

from training import config


class Reader(Protocol):
    """What reads."""

    size: int

    def read(self) -> str: ...


class Lamp:
    """What shines."""


@gin.configurable("toy_file")
class File:
    def __init__(self, size: int = 1):
        self.size = size

    def read(self) -> str:
        return "text"


@gin.configurable("toy_lamp")
def lamp(power: int = 1) -> Lamp:
    return Lamp()


@gin.configurable("toy_unsaid")
def unsaid():
    return File()


@gin.configurable("toy_shelf")
class Shelf:
    def __init__(self, reader: Reader = gin.REQUIRED, lamp: Lamp | None = None, size: int = 1, inner=None):
        self.reader, self.lamp, self.size, self.inner = reader, lamp, size, inner


@pytest.mark.parametrize(
    "binding, said",
    [
        ("reader=7", "7 is not a Reader, such as @toy_file()"),
        ("reader='toy_file'", "'toy_file' is not a Reader"),
        ("reader=(@toy_file(),)", "(@toy_file(),) is not a Reader"),
        ("reader=@toy_file", "@toy_file without () is not a Reader"),
        ("reader=@toy_lamp()", "@toy_lamp() is not a Reader"),
        ("lamp=@toy_file()", "@toy_file() is not a Lamp, such as @toy_lamp() or None"),
        ("size=@toy_file()", "@toy_file() is not an int"),
    ],
)
def test_another_kind_is_refused_with_who_gives_the_right_one(mistake_of, binding, said):
    message = mistake_of(bindings=["toy_shelf.reader=@toy_file()", f"toy_shelf.{binding}"])
    name = binding.split("=")[0]
    assert f"toy_shelf.{name}: {said}" in message and f"(--gin.toy_shelf.{name})" in message


@pytest.mark.parametrize("given", ["@toy_file()", "@toy_unsaid()"])
def test_the_right_kind_and_what_the_code_does_not_say_are_taken(given):
    config.load([], [f"toy_shelf.reader={given}", "toy_shelf.lamp=@toy_lamp()"])
    config.load([], [f"toy_shelf.reader={given}", "toy_shelf.lamp=None"])


@pytest.mark.parametrize(
    "bindings",
    [
        ["toy_shelf.inner=@toy_shelf()"],
        ["toy_shelf.inner={'a': [@toy_shelf()]}"],
        ["toy_shelf.inner=%SELF", "SELF=@toy_shelf()"],
        ["toy_shelf.inner=@toy_box()", "toy_box.value=@toy_shelf()"],
        ["toy_shelf.inner=@a/toy_shelf()"],
    ],
)
def test_a_configurable_that_takes_itself_without_end_is_refused(mistake_of, bindings):
    message = mistake_of(bindings=["toy_shelf.reader=@toy_file()", *bindings])
    assert "would be given to itself, without end (--gin." in message


def test_a_configurable_may_take_itself_where_a_scope_ends_it():
    config.load([], ["toy_box.value=@a/toy_box()", "a/toy_box.value=3", "toy_run.encoder=@toy_box()"])
    config.load([], ["toy_box.value=@toy_box"])
