"""Origins, messages with their place, and an operative configuration that loads as the run it came from."""

import ast

import gin
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistake import Mistake
from training import config

ENCODER = "toy_encoder.width = 8\ntoy_encoder.num_heads = 2\n"

# An infinity has no literal that repr would write: it has a test of its own.
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.binary(max_size=4)
)
KEYS = st.text(max_size=6) | st.integers() | st.tuples(st.integers(), st.text(max_size=2))
LITERALS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


def by_python(text):
    """The bindings of gin text without references and scopes, read by Python; repr tells types and order."""
    return {ast.unparse(line.targets[0]): repr(ast.literal_eval(line.value)) for line in ast.parse(text).body}


def reload(write, text, run):
    """The configuration of an operative text, after a run."""
    write("operative.gin", text)
    loaded = config.load(["operative.gin"])
    run()
    loaded.check_read()
    return loaded


@settings(max_examples=150, deadline=None)
@given(value=LITERALS)
def test_any_literal_comes_through_gin_and_through_the_operative_configuration(toys, tmp_path_factory, value):
    loaded = config.load([], [f"toy_box.value={value!r}"])
    assert repr(toys.box()) == repr(value)
    values, text = loaded.values(), loaded.operative()
    assert by_python(text) == {"toy_box.value": repr(value), "toy_box.more": "None"}
    file = tmp_path_factory.getbasetemp() / "operative.gin"
    file.write_text(text, encoding="utf-8")
    again = config.load([str(file)])
    assert repr(toys.box()) == repr(value)
    again.check_read()
    assert again.values() == values
    assert config.difference(text, again.operative()) == ""


def test_infinities_come_through_as_well(write, toys):
    write("x.gin", "toy_box.value = [1e999, -1e999]")
    loaded = config.load(["x.gin"])
    assert toys.box() == [float("inf"), -float("inf")]
    reload(
        write, loaded.operative(), lambda: toys.box() == [float("inf"), -float("inf")] or pytest.fail("another value")
    )


def test_the_operative_configuration_says_where_every_value_came_from_and_marks_defaults(write, toys):
    write("configs/x.gin", "STEPS = 100\n\ntoy_run.encoder = None\ntoy_run.steps = %STEPS\ntoy_box.value = 'unused'")
    loaded = config.load(["configs/x.gin"], ["toy_run.rate=@toy_rate", "toy_rate.peak=1e-4", "toy_rate.steps=2"])
    assert toys.Run().rate() == (1e-4, 2, 0)
    assert loaded.operative() == (
        "toy_rate.peak = 0.0001  # --gin.toy_rate.peak\n"
        "toy_rate.steps = 2  # --gin.toy_rate.steps\n"
        "toy_rate.warmup = 0  # default\n"
        "\n"
        "toy_run.encoder = None  # configs/x.gin:3\n"
        "toy_run.other = None  # default\n"
        "toy_run.rate = @toy_rate  # --gin.toy_run.rate\n"
        "toy_run.steps = 100  # configs/x.gin:4, STEPS: configs/x.gin:1\n"
    )


def test_a_dict_keeps_its_order_on_one_line_or_several(write, toys):
    long = ", ".join(f"'key_{i}': {i}" for i in reversed(range(20)))
    write("x.gin", "toy_box.value = {'z': 1, 'a': 2}\ntoy_box.more = {" + long + "}")
    loaded = config.load(["x.gin"])
    toys.box()
    text = loaded.operative()
    assert "toy_box.value = {'z': 1, 'a': 2}  # x.gin:1\n" in text
    assert "toy_box.more = {\n    'key_19': 19,\n    'key_18': 18,\n" in text and "}  # x.gin:2\n" in text
    again = reload(write, text, toys.box)
    assert again.origin("toy_box.more", "key_18") == "operative.gin:3"


def test_scopes_and_macros_of_references_load_as_the_same_run(write, toys):
    write(
        "x.gin",
        "SHARED = @toy_encoder()\nSIZES = [1, %TWO]\nTWO = 2\n"
        "toy_run.encoder = %SHARED\ntoy_run.other = @b/toy_encoder()\n"
        "toy_encoder.num_heads = 2\ntoy_encoder.sizes = %SIZES\nSHARED/toy_encoder.width = 8\n"
        "b/toy_encoder.width = 16\nb/toy_encoder.rate = 0.5\n",
    )
    loaded = config.load(["x.gin"])

    def run():
        made = toys.Run()
        found = [(part.width, part.num_heads, part.rate, part.sizes) for part in (made.encoder, made.other)]
        assert found == [(8, 2, 0.1, [1, 2]), (16, 2, 0.5, [1, 2])]

    run()
    values, text = loaded.values(), loaded.operative()
    assert values["SHARED"] == "@toy_encoder()" and "SIZES" not in values
    assert values["toy_encoder.rate"] == "0.1" and values["b/toy_encoder.rate"] == "0.5"
    again = reload(write, text, run)
    assert again.values() == values
    assert config.difference(text, again.operative()) == ""


def test_a_default_that_its_annotation_leaves_out_loads_again(write, toys):
    write("x.gin", ENCODER)
    loaded = config.load(["x.gin"])
    toys.Encoder()
    assert loaded.values()["toy_encoder.oddly"] == "'auto'"
    assert reload(write, loaded.operative(), toys.Encoder).values() == loaded.values()


def test_the_operative_configuration_speaks_of_constructed_things_only(write, toys):
    write("x.gin", ENCODER + "toy_box.value = 1")
    loaded = config.load(["x.gin"])
    assert loaded.operative() == "\n"
    toys.box()
    assert set(loaded.values()) == {"toy_box.value", "toy_box.more"}


def test_origin_follows_scopes_macros_and_module_names(write):
    write("x.gin", "W = {\n 'a': 1\n}\ntoy_rules.weights = %W\nimage/toy_rules.activations = {}")
    loaded = config.load(["x.gin"], ["a/toy_rules.weights={'a': 3}"])
    assert loaded.origin("toy_rules.weights") == "x.gin:4, W: x.gin:1"
    assert loaded.origin("toy_rules.weights", "a") == "x.gin:4, W: x.gin:2"
    assert loaded.origin("image/toy_rules.weights") == loaded.origin("toy_rules.weights")
    assert (
        loaded.origin("a/toy_rules.weights", "a")
        == loaded.origin("a/b/toy_rules.weights")
        == "--gin.a/toy_rules.weights"
    )
    assert loaded.origin("conftest.toy_rules.weights") == loaded.origin("toy_rules.weights")
    assert loaded.origin("toy_rules.activations") == "default"
    assert loaded.scopes("toy_rules") == ["image", "a"]


def test_point_adds_the_place_to_every_line_that_begins_with_a_binding(write):
    write("x.gin", ENCODER + "toy_rules.weights = {\n 'a': 1,\n}\nimage/toy_box.value = 2")
    loaded = config.load(["x.gin"], ["toy_encoder.rate=0.5"])
    message = (
        "toy_encoder.num_heads: 2 does not divide it.\n"
        "toy_rules.weights: 'a' is wrong.\n"
        "toy_rules.weights: 'a' is wrong (x.gin:4).\n"
        "    toy_encoder.width: indented\n"
        "image/toy_box.value: scoped\n"
        "toy_box.value: said without its scope\n"
        "toy_encoder.rate: from a flag\n"
        "toy_encoder.kind: a default has no place\n"
        "Use 3: or not."
    )
    assert loaded.point(message).split("\n") == [
        "toy_encoder.num_heads: 2 does not divide it. (x.gin:2)",
        "toy_rules.weights: 'a' is wrong. (x.gin:4)",
        "toy_rules.weights: 'a' is wrong (x.gin:4).",
        "    toy_encoder.width: indented",
        "image/toy_box.value: scoped (x.gin:6)",
        "toy_box.value: said without its scope (x.gin:6)",
        "toy_encoder.rate: from a flag (--gin.toy_encoder.rate)",
        "toy_encoder.kind: a default has no place",
        "Use 3: or not.",
    ]


@gin.configurable("toy_refusal")
def refusal(inner=None, fault=Mistake):
    raise fault("toy_refusal.inner: no.\nAnd a second line.")


@gin.configurable("toy_around")
def around(value=None):
    return value


@pytest.mark.parametrize("fault", [Mistake, TypeError])
def test_clean_takes_gins_own_words_off_however_many_calls_an_exception_passed(fault):
    config.load([], ["toy_around.value=@s/toy_refusal()"])
    gin.bind_parameter("toy_refusal.fault", fault)
    with pytest.raises(fault) as caught:
        around()
    assert "In call to configurable" in str(caught.value)
    assert config.clean(caught.value) == "toy_refusal.inner: no.\nAnd a second line."
    assert config.clean(Mistake("plain")) == "plain"
