"""Files, includes and flags: what wins, what is found where, and what is refused with its file and line."""

import pytest

from training import config

ENCODER = "toy_encoder.width = 8\ntoy_encoder.num_heads = 2\n"


def value(loaded, binding):
    """The value as it is written, whether it was read or not."""
    return {str(name): written.text for name, written in loaded.bindings.items()}[binding]


def test_later_files_win_over_earlier_ones_and_flags_over_files(write):
    write("a.gin", ENCODER + "toy_encoder.rate = 0.2\ntoy_encoder.label = 'a'\ntoy_encoder.kind = 'rotary'")
    write("b.gin", "toy_encoder.rate = 0.3\ntoy_encoder.label = 'b'")
    loaded = config.load(["a.gin", "b.gin"], ["toy_encoder.rate=0.4", "toy_encoder.rate = 0.5"])
    assert value(loaded, "toy_encoder.rate") == "0.5"
    assert value(loaded, "toy_encoder.label") == "'b'"
    assert value(loaded, "toy_encoder.kind") == "'rotary'"


def test_a_file_overrides_what_it_includes(write):
    write("base.gin", ENCODER)
    write("run.gin", "include 'base.gin'\ntoy_encoder.width = 16\n")
    loaded = config.load(["run.gin"])
    assert (value(loaded, "toy_encoder.width"), value(loaded, "toy_encoder.num_heads")) == ("16", "2")
    assert loaded.origin("toy_encoder.width") == "run.gin:2"
    assert loaded.origin("toy_encoder.num_heads") == "base.gin:2"


def test_includes_are_found_from_the_current_folder_the_including_file_and_the_roots(write, tmp_path, monkeypatch):
    write("here/configs/one.gin", "toy_encoder.width = 8")
    write("here/configs/deep/two.gin", "toy_encoder.num_heads = 2")
    write("root/three.gin", "toy_encoder.rate = 0.5")
    write("here/configs/deep/run.gin", "include 'configs/one.gin'\ninclude 'two.gin'\ninclude 'three.gin'")
    monkeypatch.chdir(tmp_path / "here")
    loaded = config.load(["configs/deep/run.gin"], roots=[str(tmp_path / "root")])
    assert loaded.origin("toy_encoder.width") == "configs/one.gin:1"
    assert loaded.origin("toy_encoder.num_heads") == "configs/deep/two.gin:1"
    assert loaded.origin("toy_encoder.rate") == "three.gin:1"


def test_an_absolute_path_outside_is_shown_whole(write, tmp_path, monkeypatch):
    write("elsewhere/x.gin", ENCODER)
    write("here/y.gin", "")
    monkeypatch.chdir(tmp_path / "here")
    path = str(tmp_path / "elsewhere/x.gin")
    assert config.load([path]).origin("toy_encoder.width") == f"{path}:1"


def test_lines_are_known_in_blocks_and_of_each_key_of_a_dict(write):
    write(
        "x.gin",
        "# first\n\ntoy_rules.weights = {\n    'a': {'c': 1}, 'b': None,\n\n    'c': ('x', 'y'),  # why\n}\n"
        "toy_encoder:\n  width = 8\n\n  num_heads = 2\n",
    )
    loaded = config.load(["x.gin"])
    assert loaded.origin("toy_rules.weights") == "x.gin:3"
    assert [loaded.origin("toy_rules.weights", key) for key in "abc"] == ["x.gin:4", "x.gin:4", "x.gin:6"]
    assert loaded.origin("toy_rules.weights", "not there") == "x.gin:3"
    assert loaded.origin("toy_encoder.width") == "x.gin:9"
    assert loaded.origin("toy_encoder.num_heads") == "x.gin:11"


def test_a_missing_file_names_the_nearest_in_its_folder(write, mistake_of):
    write("configs/tiny.gin", "")
    assert mistake_of(["configs/tinny.gin"]) == "--gin_file: there is no file 'configs/tinny.gin'. Nearest: 'tiny.gin'."
    assert "There is no such folder. Nearest: 'configs'." in mistake_of(["config/tiny.gin"])
    write("configs/run.gin", "\ninclude 'tinie.gin'")
    assert mistake_of(["configs/run.gin"]).startswith("configs/run.gin:2: there is no file 'tinie.gin'.")


def test_a_circle_of_includes_is_refused_and_a_file_included_twice_is_not(write, mistake_of):
    write("a.gin", "include 'b.gin'")
    write("b.gin", "\ninclude 'a.gin'")
    assert "b.gin:2: including 'a.gin' closes a circle: a.gin:1 -> b.gin:2" in mistake_of(["a.gin"])
    write("base.gin", ENCODER)
    write("left.gin", "include 'base.gin'")
    write("run.gin", "include 'base.gin'\ninclude 'left.gin'")
    assert config.load(["run.gin"]).notes == []


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("\ntoy_encoder.width == 5", 2, "toy_encoder.width == 5"),
        ("toy_encoder.label = learned", 1, "write a string in quotes"),
        ("toy_encoder.label = 'x", 1, ""),
        ("toy_encoder.sizes = [1,\n2", 2, ""),
        ("toy_encoder.width", 1, "expected ':' or '='"),
        ("toy_encoder.width =", 1, ""),
        ("a = {[1]: 2}", 1, "unhashable"),
        ("include configs", 1, ""),
        ("import os", 1, "imports nothing"),
    ],
)
def test_bad_syntax_is_refused_with_file_and_line(write, mistake_of, text, line, says):
    write("configs/x.gin", text)
    message = mistake_of(["configs/x.gin"])
    assert message.startswith(f"configs/x.gin:{line}: ")
    assert says in message


def test_bad_syntax_in_a_flag_names_the_flag(mistake_of):
    assert mistake_of(bindings=["toy_encoder.label=learned"]).startswith("--gin.toy_encoder.label: not gin: 'learned'")
    assert "a flag binds one value" in mistake_of(bindings=["a=1\nb=2"])
    assert "a flag binds one value" in mistake_of(bindings=["include 'x.gin'"])


def test_a_key_written_twice_is_refused(write, mistake_of):
    write("x.gin", "toy_rules.weights = {\n 'a': 1,\n 'a': 2}")
    assert "toy_rules.weights: the key 'a' is written twice (x.gin:2 and line 3)." in mistake_of(["x.gin"])
