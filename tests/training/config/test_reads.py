"""A binding that nothing read is refused, and says why nothing did."""

import gin
import pytest

from mistake import Mistake
from training import config

ENCODER = "toy_encoder.width = 8\ntoy_encoder.num_heads = 2\n"


def unread(loaded):
    with pytest.raises(Mistake) as caught:
        loaded.check_read()
    return str(caught.value)


def test_all_that_was_read_passes(write, toys):
    write(
        "x.gin",
        ENCODER
        + "toy_run.encoder = @toy_encoder()\ntoy_run.rate = @toy_rate\nN = 3\ntoy_rate.steps = %N\ntoy_rate.peak = 1",
    )
    loaded = config.load(["x.gin"])
    run = toys.Run()
    assert run.rate() == (1, 3, 0)
    toys.Run()
    loaded.check_read()


def test_a_configurable_that_nothing_uses_is_refused_with_every_binding(write, toys):
    write("x.gin", ENCODER + "toy_box.value = 1")
    loaded = config.load(["x.gin"])
    toys.box()
    assert unread(loaded).split("\n") == [
        "toy_encoder.width: nothing uses 'toy_encoder' (x.gin:1). Take this out, or refer to @toy_encoder.",
        "toy_encoder.num_heads: nothing uses 'toy_encoder' (x.gin:2). Take this out, or refer to @toy_encoder.",
    ]


def test_a_scope_that_nothing_opens_names_the_nearest(write, toys):
    write(
        "x.gin",
        ENCODER + "toy_box.value = [@train/toy_encoder()]\ntrian/toy_encoder.width = 16\ntrain/toy_encoder.rate = 0.5",
    )
    loaded = config.load(["x.gin"])
    toys.box()
    assert unread(loaded).startswith(
        "trian/toy_encoder.width: nothing opens the scope 'trian' (x.gin:4). Nearest: 'train'."
    )
    assert "rate" not in unread(loaded)


def test_a_scope_may_be_opened_while_running(write, toys):
    write("x.gin", "toy_rules.weights = {}\nimage/toy_rules.weights = {'a': 1}\nimage/deep/toy_rules.activations = {}")
    loaded = config.load(["x.gin"])
    assert loaded.scopes("toy_rules") == ["image", "image/deep"]
    toys.Rules()
    assert "image/toy_rules.weights: nothing opens the scope 'image' (x.gin:2)." in unread(loaded)
    with gin.config_scope("image"):
        assert toys.Rules().weights == {"a": 1}
    assert unread(loaded).startswith(
        "image/deep/toy_rules.activations: nothing opens the scope 'image/deep' (x.gin:3)."
    )
    with gin.config_scope("image/deep"):
        toys.Rules()
    loaded.check_read()


def test_a_scope_opened_for_something_else_is_said_so(write, toys):
    write("x.gin", "a/toy_box.value = 1\na/toy_rules.weights = {}")
    loaded = config.load(["x.gin"])
    with gin.config_scope("a"):
        toys.box()
    assert unread(loaded).startswith("a/toy_rules.weights: nothing uses 'toy_rules' in the scope 'a' (x.gin:2).")


def test_a_binding_that_the_calling_code_overrides_is_refused(write, toys):
    write("x.gin", "toy_box.value = 1")
    loaded = config.load(["x.gin"])
    toys.box(value=2)
    assert (
        unread(loaded)
        == "toy_box.value: no effect: the code that calls 'toy_box' sets it itself (x.gin:1). Take this out."
    )
    toys.box()
    loaded.check_read()


def test_a_binding_that_a_scope_replaces_in_every_call_is_refused(write, toys):
    write("x.gin", "toy_box.value = 1\na/toy_box.value = 2")
    loaded = config.load(["x.gin"])
    with gin.config_scope("a"):
        toys.box()
    assert (
        unread(loaded) == "toy_box.value: no effect: a/toy_box.value holds wherever it would (x.gin:1). Take this out."
    )


def test_a_scoped_binding_that_the_calling_code_overrides_is_not_blamed_on_the_one_without_scope(write, toys):
    write("x.gin", "toy_box.value = 1\na/toy_box.value = 2")
    loaded = config.load(["x.gin"])
    toys.box()
    with gin.config_scope("a"):
        toys.box(value=3)
    assert unread(loaded).startswith("a/toy_box.value: no effect: the code that calls 'toy_box' sets it itself")


def test_what_a_later_binding_overrides_need_not_be_read(write, toys):
    write("x.gin", "toy_box.value = 1\ntoy_box.value = 2")
    loaded = config.load(["x.gin"])
    assert toys.box() == 2
    loaded.check_read()
