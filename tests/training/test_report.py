"""report.html: whole, escaped, self-contained, and true to the record."""

import html.parser
import itertools
import json
import math
import os
import re

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from training.report import LayoutRow, Mesh, NextCommand, Outcome, ParameterRow, Report, write_report
from training.report.charts import Line, figure, tick_labels
from training.report.markup import join, tag
from training.report.meshpicture import by_split, mesh_pictures, shard
from training.report.page import page
from training.report.series import linear_ticks, log_ticks, smoothed, thinned

VOID = {"br", "input", "meta", "wbr"}


class Parsed(html.parser.HTMLParser):
    """The elements of a document, checked to be balanced: (name, attributes), and the text within each name."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.texts = [], [], {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def all(self, name, class_=None):
        return [a for n, a in self.elements if n == name and (class_ is None or class_ in a.get("class", "").split())]


def full_report(**changes):
    steps = range(10, 1010, 10)
    values = {
        "title": "BERT tiny, masked LM",
        "command": "python train.py --gin_file=configs/runs/bert_tiny.gin",
        "started": "2026-12-01 14:03",
        "seconds": 120.0,
        "device": "8 simulated CPU devices",
        "steps": 1000,
        "metrics": {
            "train": {
                "loss": [(s, 10 * math.exp(-s / 300)) for s in steps],
                "finite": [(s, 1.0) for s in steps],
                "learning_rate": [(s, 1e-3 / s) for s in steps],
            },
            "validation": {"loss": [(0, 10.5), (500, 2.5), (1000, 0.5)]},
        },
        "timings": {
            "step_seconds": [(s, 0.1) for s in steps],
            "data_wait_seconds": [(s, 0.01) for s in steps],
            "tokens_per_second": [(s, 1e4) for s in steps],
        },
        "compile_seconds": 15.0,
        "outcomes": [Outcome("masked_accuracy", 0.312, 0.054, "always predicting the commonest token")],
        "layout": [LayoutRow("encoder", 1_234_567, 4_938_268, 617_284, "vocab over tensor")],
        "parameters": [
            ParameterRow(
                "token.table",
                (100, 64),
                "float32",
                ("vocab", "embed"),
                ("tensor", "data"),
                3200,
                "'vocab': 'tensor'",
                "configs/parallel/x.gin:7",
            ),
            ParameterRow("norm.scale", (64,), "float32", ("embed",), (), 256),
        ],
        "mesh": Mesh({"data": 4, "tensor": 2}, [f"cpu:{i}" for i in range(8)]),
        "config": "bert.width = 64  # configs/models/tiny.gin:3\n",
        "versions": {"jax": "0.10.2"},
        "notes": ["two updates were skipped"],
        "next_commands": [NextCommand("again", "python train.py --mode=plan")],
    }
    return Report(**values | changes)


def test_the_page_is_balanced_and_needs_nothing_else():
    text = page(full_report())
    parsed = Parsed(text)
    assert not re.search(r"https?:|//[a-z]", text.replace(" // ", " "), re.IGNORECASE)
    for name, attributes in parsed.elements:
        assert name not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "href", "srcset", "action", "background"} & attributes.keys()
    assert "@import" not in text and "url(" not in text
    (policy,) = [a["content"] for a in parsed.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")


def test_the_page_shows_what_the_record_holds():
    text = " ".join(itertools.chain(*Parsed(page(full_report())).texts.values()))
    for shown in (
        "BERT tiny, masked LM",
        "1,000 steps in 2 min 00 s",
        "31.2%",
        "against 5.4% always predicting the commonest token",
        "1,234,567",
        "4.71 MiB",
        "603 KiB",
        "two updates were skipped",
        "configs/parallel/x.gin:7",
        "configs/models/tiny.gin:3",
        "python train.py --mode=plan",
        "jax 0.10.2",
        "finite was 1.000 throughout",
    ):
        assert shown in text, shown


def test_the_time_bar_adds_up_to_the_run():
    # 120 s: 15 s compiling, 1000 steps of 0.1 s of which a tenth waits, 5 s of the rest.
    bar = [a for a in Parsed(page(full_report())).all("i") if "style" in a]
    assert [(a["title"], a["style"]) for a in bar] == [
        ("compiling: 15 s", "width:12.50%"),
        ("training steps: 1 min 30 s", "width:75.00%"),
        ("waiting for data: 10 s", "width:8.33%"),
        ("evaluation, checkpoints and the rest: 5.00 s", "width:4.17%"),
    ]


HOSTILE = "<script>alert('x')</script>\"'&</style></svg>"


def test_every_text_of_a_run_is_escaped():
    row = ParameterRow(HOSTILE, (4,), HOSTILE, (HOSTILE,), (HOSTILE,), 16, HOSTILE, HOSTILE)
    report = Report(
        title=HOSTILE,
        command=HOSTILE,
        started=HOSTILE,
        seconds=1.0,
        device=HOSTILE,
        steps=1,
        metrics={HOSTILE: {HOSTILE: [(1, 1.0), (2, math.nan)], "loss": [(1, 1.0), (2, math.inf)]}},
        outcomes=[Outcome(HOSTILE, 1.0, 2.0, HOSTILE)],
        layout=[LayoutRow(HOSTILE, 1, 1, 1, HOSTILE)],
        parameters=[row],
        mesh=Mesh({HOSTILE: 2}, [HOSTILE, HOSTILE]),
        config=f"{HOSTILE} = 1  # {HOSTILE}",
        versions={HOSTILE: HOSTILE},
        notes=[HOSTILE],
        next_commands=[NextCommand(HOSTILE, HOSTILE)],
    )
    text = page(report)
    parsed = Parsed(text)
    assert text.count("<script>") == len(parsed.all("script")) == 1
    assert text.count("</style>") == 1
    assert "alert('x')" not in text
    assert not any(key.startswith("on") for _, attributes in parsed.elements for key in attributes)
    assert HOSTILE in parsed.texts["h1"] and HOSTILE in parsed.texts["li"] and HOSTILE in parsed.texts["pre"]


def test_a_hash_within_quotes_is_no_comment():
    config = "a.b = 'x # y'  # file.gin:3\n# Macros\nN = 4\n"
    spans = Parsed(page(full_report(config=config))).texts
    assert "= 'x # y'" in spans["span"] and "# file.gin:3" in spans["span"] and "# Macros" in spans["span"]
    assert {"a.b ", "N "} <= set(spans["b"])


@pytest.mark.parametrize(
    "config", ["a = 'unbalanced # b", 'a = "\\', "a = '''", "'" * 40 + "#", "x" * 10_000 + "'" * 300]
)
def test_any_configuration_text_is_shown(config):
    assert Parsed(page(full_report(config=config))).elements


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1, 2.0)],
        [(0, 0.0)],
        [(1, math.nan)],
        [(1, 2.0), (2, 2.0)],
        [(1, -1.0), (2, math.inf)],
        [(5, 1e-30), (6, 1e30)],
        [(1, 0.0), (1, 0.0)],
    ],
)
def test_short_flat_and_broken_histories_are_drawn(points):
    for metrics in ({"train": {"loss": points}}, {"train": {"masked_accuracy": points}}):
        text = page(full_report(metrics=metrics, timings={"step_seconds": points}))
        assert Parsed(text).elements
        for path in re.findall(r' (?:d|x|y|cx|cy|x1|y1)="([^"]*)"', text):
            assert "nan" not in path and "inf" not in path


def test_a_run_without_any_history_or_mesh_has_a_page():
    bare = Report(title="bare", command="", started="", seconds=0.0, device="", steps=0)
    assert "Nothing was recorded." in Parsed(page(bare)).texts["p"]


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_report(path, full_report())
    before = path.read_bytes()
    assert before.startswith(b"<!doctype html>") and os.listdir(tmp_path) == ["report.html"]

    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError):
        write_report(path, full_report(title="other"))
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["report.html"]


# Charts.


def drawn(parsed, which=0):
    """The points (x, y), in pixels, of a chart's line."""
    path = parsed.all("path", "line")[which]["d"]
    return [tuple(map(float, point.split())) for point in re.findall(r"[ML]([^ML]+)", path)]


def test_a_chart_places_points_linearly_between_its_axes():
    parsed = Parsed(figure("loss", [Line("train", [(0, 0.0), (50, 5.0), (100, 10.0)])]))
    (x0, y0), (x1, y1), (x2, y2) = drawn(parsed)
    assert x0 < x1 < x2 and y0 > y1 > y2
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1) and y1 == pytest.approx((y0 + y2) / 2, abs=0.1)
    (line,) = json.loads(parsed.all("svg")[0]["data-hover"])
    assert line == {"name": "train", "points": [[x0, "0", "0"], [x1, "50", "5.000"], [x2, "100", "10.00"]]}


def test_a_logarithmic_chart_places_equal_factors_at_equal_distances():
    parsed = Parsed(figure("loss", [Line("train", [(0, 1.0), (1, 10.0), (2, 100.0)])], wide=True))
    ys = [y for _, y in drawn(parsed, which=1)]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)


def test_a_logarithmic_scale_is_offered_for_positive_values_only():
    for low, charts in ((1.0, 2), (0.0, 1), (-1.0, 1)):
        assert len(Parsed(figure("loss", [Line("train", [(0, low), (1, 2.0)])], wide=True)).all("svg")) == charts


def test_a_value_that_is_not_finite_interrupts_the_line_and_is_marked():
    parsed = Parsed(figure("loss", [Line("train", [(0, 1.0), (1, 2.0), (2, math.nan), (3, 3.0), (4, 2.0)])]))
    (line,) = parsed.all("path", "line")
    assert line["d"].count("M") == 2 and line["d"].count("L") == 2
    assert len(parsed.all("path", "gap")) == 1
    assert "train: nan at step 2" in parsed.texts["title"]


def test_each_split_has_its_line_and_its_last_value():
    parsed = Parsed(figure("loss", [Line("train", [(0, 1.0), (1, 2.0)]), Line("validation", [(0, 3.0), (1, 4.0)])]))
    assert [a["class"] for a in parsed.all("path", "line")] == ["line c0", "line c1"]
    assert "".join(parsed.texts["span"]) == "train 2.000validation 4.000"


def test_smoothing_leaves_a_straight_line_alone():
    points = [(s, 3.0 - 0.5 * s) for s in range(200)]
    assert np.allclose([v for _, v in smoothed(points)], [v for _, v in points])


def test_smoothing_is_the_mean_of_the_window_without_what_is_not_finite():
    rng = np.random.default_rng(0)
    values = rng.normal(size=200)
    values[[17, 90]] = np.nan
    found = np.array([v for _, v in smoothed(list(enumerate(values)))])
    for i in range(200):
        half = min(4, i, 199 - i)
        expected = np.nan if np.isnan(values[i]) else np.nanmean(values[i - half : i + half + 1])
        np.testing.assert_allclose(found[i], expected)


def test_a_short_series_is_not_smoothed():
    assert smoothed([(s, 1.0) for s in range(49)]) == ()


def test_thinning_keeps_spikes_gaps_and_order():
    points = [(s, math.sin(s / 500)) for s in range(20_000)]
    points[7777], points[12_345] = (7777, 99.0), (12_345, math.nan)
    kept = thinned(points, 400)
    assert len(kept) <= 600
    assert (7777, 99.0) in kept and any(math.isnan(value) for _, value in kept)
    assert [step for step, _ in kept] == sorted({step for step, _ in kept})
    assert thinned(points[:400], 400) == points[:400]


def test_ticks_are_round():
    assert linear_ticks(0, 10, 5) == [0, 2, 4, 6, 8, 10]
    assert linear_ticks(0.13, 0.47, 4) == pytest.approx([0.2, 0.3, 0.4])
    assert linear_ticks(-3, 4, 4) == [-2, 0, 2, 4]
    assert log_ticks(1.5, 12, 5) == [2, 5, 10]
    assert log_ticks(1e-3, 1e6, 5) == pytest.approx([10.0**p for p in range(-3, 7)])
    assert log_ticks(2.1, 2.5, 4) == pytest.approx([2.1, 2.2, 2.3, 2.4, 2.5])


@hypothesis.given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12), st.integers(2, 8))
def test_ticks_lie_within_the_axis_and_read_differently(low, span, about):
    hypothesis.assume(span > abs(low) * 1e-6)
    ticks = linear_ticks(low, low + span, about)
    assert 1 <= len(ticks) <= about + 1
    assert all(low - span * 1e-6 <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    for as_percent in (False, True):
        assert len(set(tick_labels(ticks, as_percent))) == len(ticks)


def test_tick_labels_have_the_places_they_need():
    assert tick_labels([0, 0.5, 1.0]) == ["0.0", "0.5", "1.0"]
    assert tick_labels([0, 5000, 10_000]) == ["0", "5,000", "10,000"]
    assert tick_labels([0.1, 0.2], as_percent=True) == ["10%", "20%"]
    assert tick_labels([0, 5e-5, 1e-4]) == ["0", "5.0e-05", "1.0e-04"]
    assert tick_labels([12_000_000, 14_000_000]) == ["1.2e+07", "1.4e+07"]
    assert tick_labels([0.0]) == ["0"]


# The picture of the mesh.


def test_a_device_holds_the_part_that_its_place_says():
    sizes = {"a": 2, "b": 3, "c": 4}
    for axes in ((), ("b",), ("a", "c"), ("c", "a"), ("b", "a", "c")):
        shape = [sizes[axis] for axis in axes]
        for coordinates in np.ndindex(2, 3, 4):
            place = dict(zip("abc", coordinates))
            expected = np.ravel_multi_index([place[axis] for axis in axes], shape) if axes else 0
            assert shard(axes, place, sizes) == (expected, math.prod(shape))


def test_each_device_says_which_slice_it_holds():
    row = ParameterRow("table", (100, 64), "float32", ("vocab", "embed"), ("tensor", "data"), 3200)
    parsed = Parsed(mesh_pictures(Mesh({"data": 4, "tensor": 2}, [f"cpu:{i}" for i in range(8)]), [row]))
    # Devices are numbered data first: cpu:5 is data 2, tensor 1.
    assert len(parsed.texts["title"]) == 8
    assert "cpu:0 holds table[0:50, 0:16]" in parsed.texts["title"]
    assert "cpu:5 holds table[50:100, 32:48]" in parsed.texts["title"]
    colours = [a["fill"] for a in parsed.all("rect") if "fill" in a]
    assert len(set(colours)) == 8


def test_copies_of_one_part_have_one_colour():
    row = ParameterRow("scale", (64,), "float32", ("embed",), ("tensor",), 128)
    parsed = Parsed(mesh_pictures(Mesh({"data": 4, "tensor": 2}, [f"cpu:{i}" for i in range(8)]), [row]))
    colours = [a["fill"] for a in parsed.all("rect") if "fill" in a]
    assert colours[0::2] == colours[:1] * 4 and colours[1::2] == colours[1:2] * 4 and colours[0] != colours[1]


def test_meshes_of_one_device_of_three_axes_and_of_thousands_are_drawn():
    row = ParameterRow("w", (64, 64), "float32", ("embed", "mlp"), ("data", ("tensor", "expert")), 4)
    for axes in (
        {"data": 1, "tensor": 1, "expert": 1},
        {"data": 2, "expert": 2, "tensor": 2},
        {"data": 64, "expert": 1, "tensor": 64},
    ):
        mesh = Mesh(axes, [str(i) for i in range(math.prod(axes.values()))])
        parsed = Parsed(mesh_pictures(mesh, [row]))
        assert len(parsed.texts["title"]) == min(math.prod(axes.values()), 64)


def test_parameters_split_alike_share_a_picture_and_the_largest_comes_first():
    rows = [
        ParameterRow("small", (4,), "float32", ("embed",), (), 16),
        ParameterRow("up", (8, 32), "float32", ("embed", "mlp"), (None, "tensor"), 512),
        ParameterRow("gate", (8, 32), "float32", ("embed", "mlp"), (None, ("tensor",)), 512),
    ]
    groups = by_split(rows)
    assert list(groups) == [(("mlp", ("tensor",)),), ()]
    assert [row.path for row in groups[(("mlp", ("tensor",)),)]] == ["up", "gate"]


# Markup.


def test_text_is_escaped_and_markup_is_not_escaped_twice():
    assert (
        tag("p", "a < b & ", tag("b", '"c"'), title='"<')
        == '<p title="&quot;&lt;">a &lt; b &amp; <b>&quot;c&quot;</b></p>'
    )
    assert join("<", tag("br"), "", between=" & ") == "&lt; &amp; <br>"
    assert (
        tag("input", checked=True, disabled=False, class_="a", stroke_width=1.5, x=2.0)
        == '<input checked class="a" stroke-width="1.5" x="2">'
    )
