"""Rule tables: what a table says, and every way to say it wrong."""

import pytest

from mistake import Mistake
from parallel.rules import Rules, rule_for

MESH = {"data": 2, "tensor": 4}


def compiled(weights=None, activations=None, optimizer=None, origin=lambda binding, key: "", scope=""):
    return Rules(weights or {}, activations or {}, optimizer).compile(MESH, origin, scope)


def mistake(**tables) -> str:
    with pytest.raises(Mistake) as caught:
        compiled(**tables)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "axes"),
    [("data", ("data",)), (("data", "tensor"), ("data", "tensor")), (None, ()), ((), ()), (["data"], ("data",))],
)
def test_a_value_is_an_axis_or_several_or_none(value, axes):
    rule = compiled(weights={"embed": value})["weights"]["embed"]
    assert (rule.name, rule.mesh_axes, rule.optional) == ("embed", axes, False)


def test_a_question_mark_makes_a_rule_optional_and_is_no_part_of_its_name():
    rule = compiled(weights={"heads?": "tensor"})["weights"]["heads"]
    assert rule.optional and rule.name == "heads"


def test_a_rule_shows_its_binding_name_value_and_place():
    rules = compiled(
        weights={"embed": "data", "mlp": ("data", "tensor"), "heads": None},
        origin=lambda binding, key: f"a.gin:{len(key)}",
        scope="encoder/blocks",
    )["weights"]
    assert [str(rule) for rule in rules.values()] == [
        "encoder/blocks/rules.weights: 'embed' -> data (a.gin:5)",
        "encoder/blocks/rules.weights: 'mlp' -> ('data', 'tensor') (a.gin:3)",
        "encoder/blocks/rules.weights: 'heads' -> None (a.gin:5)",
    ]


def test_an_unknown_logical_name_is_a_mistake_with_the_nearest():
    message = mistake(weights={"embd": "data"}, origin=lambda binding, key: f"mine.gin:7 {binding} {key}")
    assert message.startswith("rules.weights: 'embd' is not a logical axis. Nearest: 'embed'")
    assert message.endswith(" (mine.gin:7 rules.weights embd)")


def test_an_unknown_mesh_axis_is_a_mistake_with_the_nearest_and_all_there_are():
    assert mistake(activations={"mlp": "tensors"}) == (
        "rules.activations: 'mlp' -> 'tensors', which is not a mesh axis. Nearest: 'tensor'. mesh.axes has: data, tensor."
    )


def test_a_mesh_axis_twice_in_a_rule_is_a_mistake():
    assert "names a mesh axis twice" in mistake(weights={"embed": ("data", "data")})


def test_a_name_with_and_without_a_question_mark_is_a_mistake():
    message = mistake(weights={"embed": "data", "embed?": "tensor"})
    assert message == "rules.weights: 'embed' is there twice, with and without '?'. Keep one."


@pytest.mark.parametrize("value", [5, 1.5, {"data": 2}, True])
def test_a_value_that_is_no_axis_is_a_mistake(value):
    assert mistake(weights={"embed": value}).startswith(f"rules.weights: 'embed' -> {value!r}. A value is a mesh axis,")


def test_a_table_that_is_none_is_a_mistake():
    with pytest.raises(Mistake, match=r"^rules.activations: None is not a table of rules\. Write one such as"):
        Rules({}, None).compile(MESH, lambda binding, key: "")


def test_a_key_that_is_no_name_is_a_mistake():
    assert mistake(weights={3: "data"}).startswith("rules.weights: 3 is not a logical axis: a name in quotes is meant.")


def test_all_faults_of_all_tables_are_told_at_once():
    message = mistake(weights={"embd": "data", "mlp": "x"}, activations={"batsh": None}, optimizer={"vocab": "y"})
    assert [line.partition(":")[0] for line in message.splitlines()] == [
        "rules.weights",
        "rules.weights",
        "rules.activations",
        "rules.optimizer",
    ]


@pytest.mark.parametrize(
    ("table", "group", "expert_group"),
    [
        ({}, None, None),
        ({"batch": "data"}, ("data",), ("data",)),
        ({"batch": "data", "expert": "data"}, ("data",), None),
        ({"batch": ("data", "tensor"), "expert": "tensor"}, ("data", "tensor"), ("data",)),
        ({"batch": "data", "group": ("data", "tensor"), "expert": "data"}, ("data", "tensor"), ("tensor",)),
        ({"batch": "data", "group": None, "expert_group": "tensor"}, (), ("tensor",)),
    ],
    ids=str,
)
def test_groups_of_tokens_follow_their_examples_where_nothing_else_is_said(table, group, expert_group):
    activations = compiled(activations=table)["activations"]
    found = [rule_for(activations, name, "expert_inputs") for name in ("group", "expert_group")]
    assert [rule and rule.mesh_axes for rule in found] == [group, expert_group]
