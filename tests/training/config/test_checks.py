"""Whatever a configuration gets wrong is refused at once, with its file and line and the nearest name."""

import gin
import pytest

from training import config

ENCODER = ["toy_encoder.width=8", "toy_encoder.num_heads=2"]


def test_an_unknown_configurable_names_the_nearest(write, mistake_of):
    write("configs/x.gin", "\ntoy_encodr.width = 8")
    message = mistake_of(["configs/x.gin"])
    assert message.startswith(
        "toy_encodr.width: there is no configurable 'toy_encodr' (configs/x.gin:2). Nearest: 'toy_encoder'"
    )


def test_an_unknown_parameter_names_the_nearest_or_all(mistake_of):
    assert (
        "toy_encoder.num_head: 'toy_encoder' has no parameter 'num_head' (--gin.toy_encoder.num_head). "
        "Nearest: 'num_heads'" in mistake_of(bindings=[*ENCODER, "toy_encoder.num_head=4"])
    )
    assert "All: value, more." in mistake_of(bindings=["toy_box.qqqq=4"])


def test_a_parameter_kept_from_gin_is_unknown_and_kwargs_take_any_name(mistake_of):
    config.load([], ["toy_ranking.shown=3", "toy_ranking.whatever=4"])
    assert "toy_run.encodr" in mistake_of(bindings=["toy_run.encodr=4"])


def test_an_unknown_reference_names_the_nearest_wherever_it_stands(write, mistake_of):
    write("x.gin", "toy_box.value = {'a': [1, @train/toy_encodr()]}")
    assert (
        "toy_box.value: @train/toy_encodr(): there is no configurable 'toy_encodr' (x.gin:1). Nearest: 'toy_encoder'"
        in mistake_of(["x.gin"])
    )


def test_an_unknown_macro_names_the_nearest_or_how_to_set_it(write, mistake_of):
    write("x.gin", "STEPS = 5\ntoy_box.value = %STPES\ntoy_box.more = %STEPS")
    assert mistake_of(["x.gin"]) == "toy_box.value: nothing sets the macro %STPES (x.gin:2). Nearest: 'STEPS'."
    assert "Set it: STEPS = VALUE, or --gin.STEPS=VALUE." in mistake_of(bindings=["toy_box.value=%STEPS"])


def test_a_macro_that_nothing_reads_is_refused(write, mistake_of):
    write("x.gin", "toy_box.value = %STEPS\nSTEPS = 1\n\nSTEP = 5")
    assert mistake_of(["x.gin"]) == "STEP: nothing reads this macro, as %STEP (x.gin:4). Nearest: 'STEPS'."


def test_a_macro_whose_reader_is_overridden_is_noted(write):
    write("x.gin", "STEPS = 5\ntoy_box.value = %STEPS")
    loaded = config.load(["x.gin"], ["toy_box.value=3"])
    assert loaded.notes == ["STEPS: every binding that reads this macro is overridden, so it has no effect (x.gin:1)."]


def test_macros_in_a_circle_are_refused(mistake_of):
    message = mistake_of(bindings=["A=%B", "B=[%A]", "toy_box.value=%A"])
    assert "A: the macro's value needs itself (--gin.A)." in message
    assert "B: the macro's value needs itself (--gin.B)." in message


def test_a_macro_named_as_a_constant_is_refused(mistake_of):
    assert "REQUIRED: a constant has this name" in mistake_of(bindings=["REQUIRED=1", "toy_box.value=%REQUIRED"])


def test_all_required_values_that_nothing_sets_are_listed_at_once(write, mistake_of):
    write(
        "x.gin",
        "toy_run.encoder = @toy_encoder()\ntoy_run.rate = @toy_rate\ntoy_rate.steps = %STEPS\nSTEPS = %gin.REQUIRED\n"
        "toy_run.steps = %gin.REQUIRED",
    )
    expected = {
        "STEPS": " (x.gin:4)",
        "toy_run.steps": " (x.gin:5)",
        "toy_rules.weights": "",
        "toy_encoder.width": ", and @toy_encoder() is used (x.gin:1)",
        "toy_encoder.num_heads": ", and @toy_encoder() is used (x.gin:1)",
        "toy_rate.peak": ", and @toy_rate is used (x.gin:2)",
    }
    assert mistake_of(["x.gin"], constructs=["toy_rules"]).split("\n") == [
        f"{name}: required, but nothing sets it{where}. Set it: --gin.{name}=VALUE, or in a gin file."
        for name, where in expected.items()
    ]


def test_a_required_value_may_come_from_a_scope(mistake_of):
    scoped = ["a/toy_encoder.width=8", "toy_encoder.num_heads=2", "toy_run.other=@a/toy_encoder()"]
    config.load([], [*scoped, "toy_run.encoder=@a/b/toy_encoder()"])
    assert "toy_encoder.width: required" in mistake_of(bindings=[*scoped, "toy_run.encoder=@b/toy_encoder()"])


def test_what_is_neither_bound_nor_referred_to_requires_nothing():
    config.load([], ["toy_box.value=1"])


@pytest.mark.parametrize(
    ("binding", "says"),
    [
        ("toy_encoder.width=8.0", "8.0 is not an int"),
        ("toy_encoder.width=True", "True is not an int"),
        ("toy_encoder.width=%W", "8.5 is not an int"),
        ("toy_encoder.rate='1e-3'", "'1e-3' is not a float"),
        ("toy_encoder.rate=False", "False is not a float"),
        ("toy_encoder.pre_norm=1", "1 is not True or False"),
        ("toy_encoder.kind='rotry'", "'rotry' is not one of 'learned', 'rotary'"),
        ("toy_encoder.label=3", "3 is not a string or None"),
        ("toy_encoder.sizes=3", "3 is not tuple[int, ...]"),
        ("toy_encoder.sizes=(1, 'a')", "(1, 'a') is not tuple[int, ...]"),
        ("toy_encoder.pair=(1,)", "(1,) is not tuple[int, float]"),
        ("toy_encoder.names='abc'", "'abc' is not Sequence[str]"),
        ("toy_encoder.table=['a']", "['a'] is not Mapping[str, int]"),
        ("toy_encoder.table={'a': None}", "{'a': None} is not Mapping[str, int]"),
        ("toy_encoder.width=None", "None is not an int"),
    ],
)
def test_a_value_of_another_type_is_refused(mistake_of, binding, says):
    name = binding.split("=")[0]
    message = mistake_of(bindings=[*ENCODER, "W=8.5", "toy_box.value=%W", binding])
    assert message.startswith(f"{name}: {says} (--gin.{name}).")


def test_a_choice_that_is_not_there_names_the_nearest(write, mistake_of):
    write("x.gin", "toy_encoder.kind = 'rotry'")
    assert "(x.gin:1). Nearest: 'rotary'." in mistake_of(["x.gin"], ENCODER)


@pytest.mark.parametrize(
    "binding",
    [
        "rate=1",
        "label=None",
        "sizes=[1, 2]",
        "pair=(1, 2)",
        "names=('a',)",
        "table={'a': 1}",
        "schedule='unchecked'",
        "oddly='auto'",
        "anything={1: 'a'}",
        "width=@toy_box()",
        "sizes=(1, @toy_box())",
        "kind='rotary'",
    ],
)
def test_a_value_that_fits_is_taken(binding):
    config.load([], [*ENCODER, f"toy_encoder.{binding}"])


def test_mistakes_of_several_kinds_come_together(mistake_of):
    message = mistake_of(
        bindings=["toy_encoder.widht=8", "toy_boxx.value=1", "toy_encoder.rate='a'", "toy_box.value=%NO"]
    )
    starts = [line.split(":")[0] for line in message.split("\n")]
    assert starts == [
        "toy_encoder.widht",
        "toy_boxx.value",
        "toy_box.value",
        "toy_encoder.rate",
        "toy_encoder.width",
        "toy_encoder.num_heads",
    ]


def test_a_refused_configuration_leaves_gin_as_it_was(mistake_of):
    config.load([], ["toy_box.value=1"])
    mistake_of(bindings=["toy_box.valu=2"])
    assert gin.query_parameter("toy_box.value") == 1


def test_what_was_loaded_before_is_gone(toys):
    config.load([], ["toy_box.value=1"])
    config.load([], ["toy_box.more=1"])
    assert toys.box() is None
