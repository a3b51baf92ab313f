"""The table's forms against loops over single numbers, and its lists of differences."""

import numpy as np

from models.pretrained.table import Kernel, Row, Same, Vector, problems, their_shapes, to_ours, to_theirs

ROWS = (
    Row("query", "layer.{layer}.query.weight", Kernel()),
    Row("out", "layer.{layer}.out.weight", Kernel(inputs=2)),
    Row("bias", "layer.{layer}.query.bias", Vector()),
    Row("table", "table.weight", Same()),
)
# Two layers of width 6 with 2 heads of 3, and a table of 5 rows.
SHAPES = {"query": (2, 6, 2, 3), "out": (2, 2, 3, 6), "bias": (2, 2, 3), "table": (5, 6)}


def params() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {path: draw.normal(size=shape).astype(np.float32) for path, shape in SHAPES.items()}


def test_a_query_kernel_becomes_a_weight_of_outputs_by_inputs_with_heads_merged():
    ours, theirs = params()["query"], to_theirs(ROWS, params())
    for layer, i, n, h in np.ndindex(2, 6, 2, 3):
        assert theirs[f"layer.{layer}.query.weight"][n * 3 + h, i] == ours[layer, i, n, h]


def test_an_output_kernel_has_its_heads_among_the_inputs():
    ours, theirs = params()["out"], to_theirs(ROWS, params())
    for layer, n, h, o in np.ndindex(2, 2, 3, 6):
        assert theirs[f"layer.{layer}.out.weight"][o, n * 3 + h] == ours[layer, n, h, o]


def test_a_bias_is_flat():
    ours, theirs = params()["bias"], to_theirs(ROWS, params())
    for layer, n, h in np.ndindex(2, 2, 3):
        assert theirs[f"layer.{layer}.query.bias"][n * 3 + h] == ours[layer, n, h]


def test_a_round_trip_is_equal_to_the_bit_and_lies_in_memory_in_order():
    ours = params()
    back = to_ours(ROWS, to_theirs(ROWS, ours), SHAPES)
    assert back.keys() == ours.keys()
    for path in ours:
        assert back[path].tobytes() == ours[path].tobytes()
        assert back[path].flags.c_contiguous


def test_their_shapes_are_told_without_memory():
    huge = {**SHAPES, "table": (10**9, 10**6)}
    found = their_shapes(ROWS, huge)
    assert found["table.weight"] == (10**9, 10**6)
    assert found["layer.1.query.weight"] == (6, 6)
    assert len(found) == 7


def test_all_differences_are_listed_together():
    lines = problems({"a": (1,), "b": (2, 3), "odd": ()}, {"a": (1,), "b": (3, 2), "lost": (4,)})
    assert lines == ["missing: lost", "unused: odd", "mis-shaped: b is [2, 3], not [3, 2]"]
