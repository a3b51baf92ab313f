"""An override that a later include undoes is pointed out; an override that anyone would expect is not."""

from training import config


def test_an_include_after_an_override_is_noted_with_both_places(write):
    write("base.gin", "\ntoy_box.value = 1")
    write("run.gin", "toy_box.value = 2\ninclude 'base.gin'")
    (note,) = config.load(["run.gin"]).notes
    assert note == (
        "toy_box.value: 2 (run.gin:1) is undone by a later include: 1 (base.gin:2). "
        "To keep it, write it after the include."
    )


def test_a_base_that_a_later_file_includes_is_noted(write):
    write("base.gin", "toy_box.value = 1")
    write("first.gin", "toy_box.value = 2")
    write("second.gin", "include 'base.gin'")
    (note,) = config.load(["first.gin", "second.gin"]).notes
    assert "2 (first.gin:1)" in note and "1 (base.gin:1)" in note


def test_a_second_include_that_brings_a_base_value_back_is_noted(write):
    write("base.gin", "toy_box.value = 1")
    write("tiny.gin", "include 'base.gin'\ntoy_box.value = 2")
    write("other.gin", "include 'base.gin'")
    write("run.gin", "include 'tiny.gin'\ninclude 'other.gin'")
    (note,) = config.load(["run.gin"]).notes
    assert "2 (tiny.gin:2)" in note and "1 (base.gin:1)" in note


def test_expected_overrides_are_not_noted(write):
    write("base.gin", "toy_box.value = 1\ntoy_box.more = 1")
    write("data.gin", "toy_box.more = 3")
    write("run.gin", "include 'base.gin'\ninclude 'data.gin'\ntoy_box.value = 2")
    write("later.gin", "toy_box.value = 3")
    assert config.load(["run.gin", "later.gin"], ["toy_box.value=4"]).notes == []


def test_an_undone_override_that_was_made_again_is_not_noted(write):
    write("base.gin", "toy_box.value = 1")
    write("run.gin", "toy_box.value = 2\ninclude 'base.gin'")
    assert config.load(["run.gin"], ["toy_box.value=2"]).notes == []


def test_an_include_that_binds_the_same_value_is_not_noted(write):
    write("base.gin", "toy_box.value = 1")
    write("run.gin", "toy_box.value = 1\ninclude 'base.gin'")
    assert config.load(["run.gin"]).notes == []
    # 1, 1.0 and True are equal in Python, and other values here.
    write("run.gin", "toy_box.value = True\ninclude 'base.gin'")
    assert len(config.load(["run.gin"]).notes) == 1


def test_a_file_put_on_top_of_what_another_includes_is_not_noted(write):
    write("layout.gin", "toy_box.value = 1")
    write("run.gin", "include 'layout.gin'")
    write("none.gin", "toy_box.value = 2")
    write("other.gin", "include 'none.gin'")
    assert config.load(["run.gin", "other.gin"]).notes == []
