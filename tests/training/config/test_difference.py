"""Two operative configurations differ by their values, and by nothing else."""

from training.config import difference

OLD = "toy.a = 1  # x.gin:1\ntoy.b = 'same'  # x.gin:2\n\nother.c = {\n    'k': 1,\n    'l': 2,\n}  # x.gin:3\n"


def test_equal_values_are_no_difference_wherever_they_come_from_and_however_they_are_laid_out():
    assert difference(OLD, OLD) == ""
    assert difference(OLD, "other.c = {'k': 1, 'l': 2}  # default\ntoy.b = \"same\"\ntoy.a = 1  # --gin.toy.a") == ""


def test_changes_are_listed_with_the_new_origin():
    new = "toy.a = 2  # --gin.toy.a\n\nother.c = {\n    'k': 1,\n}  # y.gin:4\nimage/toy.d = @box()  # y.gin:9\n"
    assert difference(OLD, new).split("\n") == [
        "toy.a: 1 -> 2 (--gin.toy.a)",
        "toy.b: 'same' -> nothing",
        "other.c: {'k': 1, 'l': 2} -> {'k': 1} (y.gin:4)",
        "image/toy.d: nothing -> @box() (y.gin:9)",
    ]


def test_the_order_of_a_dict_and_the_type_of_a_number_are_values_too():
    assert difference("a.b = {'x': 1, 'y': 2}", "a.b = {'y': 2, 'x': 1}") != ""
    assert difference("a.b = 1", "a.b = 1.0") == "a.b: 1 -> 1.0"


def test_bindings_and_patterns_may_be_ignored():
    new = OLD.replace("= 1 ", "= 9 ").replace("'k': 1", "'k': 9")
    assert difference(OLD, new, ignore=["toy.a", "other.*"]) == ""
    assert difference(OLD, new, ignore=["other.*"]) == "toy.a: 1 -> 9 (x.gin:1)"
