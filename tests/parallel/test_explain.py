"""The explanation: rows that say what was resolved, and totals that are their sums."""

import io
import json

import jax.numpy as jnp
import rich.console

from parallel.explain import Explanation, explanation, render
from parallel.layout import Layout
from parallel.modes import Modes
from parallel.rules import Rules

TENSORS = {
    "encoder.blocks.mlp.up.kernel": ((2, 8, 16), ("layers", "embed", "mlp")),
    "encoder.blocks.attention.key.kernel": ((2, 8, 1, 4), ("layers", "embed", "kv_heads", "head_dim")),
    "encoder.final_norm.scale": ((8,), ("embed",)),
    "head.bias": ((30,), ("vocab",)),
    "head.norm.bias": ((5,), ("transformed",)),
}


def explained() -> Explanation:
    rules = Rules(
        {"embed": "data", "mlp": "tensor", "kv_heads?": "tensor", "vocab?": "tensor"},
        {"batch": "data"},
        {"embed": None, "mlp": "tensor"},
    )
    layout = Layout(
        {"data": 2, "tensor": 4}, {"": Modes(rules)}, origin=lambda binding, key: "my.gin:3" if key == "mlp" else ""
    )
    resolve = layout.resolve
    residual = resolve("activations", "encoder.residual", (4, 6, 8), ("batch", "length", "embed"), jnp.bfloat16)
    return explanation(
        layout,
        parameters=[resolve("weights", path, shape, names, "f4") for path, (shape, names) in TENSORS.items()],
        slots=[resolve("optimizer", f"mu:{path}", shape, names, "f4") for path, (shape, names) in TENSORS.items()],
        inputs=[resolve("activations", "batch.tokens", (4, 6), ("batch", "length"), "i4")],
        activations=[residual, residual],
    )


# By hand: elements, bytes (4 a float), and bytes a device on 2 x 4.
PARAMETERS = {
    "encoder.blocks": (256 + 64, 1024 + 256, 1024 // 8 + 256 // 2),
    "encoder.final_norm": (8, 32, 16),
    "head": (30, 120, 120),
    "head.norm": (5, 20, 20),
}


def row(path, kind="parameter"):
    (found,) = (r for r in explained().of(kind) if r.path == path)
    return found


def test_parts_add_up():
    assert explained().parts("parameter") == PARAMETERS
    assert explained().num_parameters == 363


def test_totals_are_the_sums_of_the_rows_and_survive_json():
    plain = json.loads(json.dumps(explained().to_json()))
    assert plain["mesh"] == {"data": 2, "tensor": 4} and plain["devices"] == 8
    assert plain["totals"]["parameter"] == {"elements": 363, "bytes": 4 * 363, "bytes_per_device": 256 + 16 + 140}
    assert plain["totals"]["slot"] == {
        "elements": 363,
        "bytes": 4 * 363,
        "bytes_per_device": 1024 // 4 + 256 + 32 + 140,
    }
    assert plain["totals"]["input"] == {"elements": 24, "bytes": 96, "bytes_per_device": 48}
    # The same activation met twice is one row.
    assert plain["totals"]["activation"] == {"elements": 192, "bytes": 384, "bytes_per_device": 192}
    assert len(plain["tensors"]) == 5 + 5 + 1 + 1
    assert plain["tensors"][0]["spec"] == [None, "data", "tensor"]


def test_a_row_says_which_rules_decided_and_where_they_were_written():
    assert row("encoder.blocks.mlp.up.kernel").why == (
        "rules.weights: 'embed' -> data",
        "rules.weights: 'mlp' -> tensor (my.gin:3)",
    )
    assert row("mu:encoder.blocks.mlp.up.kernel", "slot").why == (
        "rules.optimizer: 'embed' -> None",
        "rules.optimizer: 'mlp' -> tensor (my.gin:3)",
    )


def test_a_fallback_is_listed_also_where_another_dimension_is_split():
    key = row("encoder.blocks.attention.key.kernel")
    assert key.spec == (None, "data", None, None)
    assert key.why == (
        "rules.weights: 'embed' -> data",
        "rules.weights: 'kv_heads' -> tensor, which does not divide: whole",
    )


def test_what_every_device_holds_whole_says_why():
    assert row("head.bias").replicated_because == "'vocab' does not divide"
    assert row("head.norm.bias").replicated_because == "no rule for 'transformed'"
    assert row("mu:encoder.final_norm.scale", "slot").replicated_because == "'embed': None"
    assert row("encoder.final_norm.scale").replicated_because == ""


def test_a_slots_part_is_its_parameters():
    assert row("mu:head.norm.bias", "slot").part == row("head.norm.bias").part == "head.norm"


def test_the_page_shows_mesh_tensors_rules_and_totals():
    console = rich.console.Console(file=io.StringIO(), width=200)
    render(explained(), console)
    page = console.file.getvalue()
    lines = {line.split()[0]: line.split() for line in page.splitlines() if line.split()}
    assert "data 2 x tensor 4" in page and "= 8 devices" in page
    assert lines["encoder.final_norm"] == ["encoder.final_norm", "8", "32", "16", "32", "32"]
    assert page.count("mlp 16/tensor") == 2  # The parameter and its slot.
    assert "my.gin:3" in page
    # Whole everywhere: head.bias and head.norm.bias with their slots, and two slots whose 'embed' is replicated.
    assert "Whole on every device (568 bytes in all)" in page
    assert "total parameters  363" in page


def test_a_page_without_slots_is_shown_too():
    console = rich.console.Console(file=io.StringIO(), width=80)
    layout = Layout({"data": 1}, {"": Modes(Rules({}, {}))})
    render(explanation(layout, parameters=[layout.resolve("weights", "scale", (), (), "f4")]), console)
    assert "total parameters  1" in console.file.getvalue()
