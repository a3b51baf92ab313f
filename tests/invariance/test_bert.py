"""The same gin on one device and on any mesh: same loss, same gradient of every parameter, noise on. BERT by layout by
accumulation.
"""

import functools
import math

import numpy as np
import pytest

from training import prove
from training.flags import parse
from training.modes import MODES
from training.setup import build

STEPS = 2
BATCH = 16
COMMON = [
    "--gin_file=tests/end_to_end/tiny.gin",
    "--simulated_devices=8",
    "--gin.masked_lm_data.train_split='train[:4%]'",
    # Rates so high that one wrong gradient shows in the next step's loss.
    "--gin.linear.peak=0.02",
    "--gin.linear.warmup=0",
    "--gin.linear.steps=100",
]
# What large encoders switch on, all at once: pre-LN, gated feed-forward, grouped keys and values, rotary positions, no
# biases, remat.
LARGE = [
    "--gin.bert.pre_norm=True",
    "--gin.bert.gated_mlp=True",
    "--gin.bert.num_kv_heads=2",
    "--gin.bert.positions='rotary'",
    "--gin.bert.attention_bias=False",
    "--gin.bert.mlp_bias=False",
    "--gin.bert.norm_bias=False",
    "--gin.remat.keep=('query', 'attention')",
    "--gin.masked_lm.label_smoothing=0.1",
]
KINDS = {"published": [], "large": LARGE}
LAYOUTS = ["data", "zero3", "tensor", "gspmd_finalized"]


def program(kind: str, layout: str, accumulation: int):
    flags = parse(COMMON + KINDS[kind], MODES)
    bindings = [f"batch.size={BATCH}", f"batch.accumulation={accumulation}", "batch.microbatch_size=None"]
    return build(flags, [f"configs/parallel/{layout}.gin"], bindings).program


@functools.cache
def on_one_device(kind: str) -> prove.Trace:
    return prove.run(program(kind, "single", 1), STEPS)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in KINDS])
def test_loss_and_every_gradient_equal_those_of_one_device(kind, layout, accumulation):
    expected, got = on_one_device(kind), prove.run(program(kind, layout, accumulation), STEPS)
    np.testing.assert_allclose(got.losses, expected.losses, rtol=1e-5)
    assert got.gradients.keys() == expected.gradients.keys()
    total = math.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in expected.gradients.values()))
    for path, gradient in expected.gradients.items():
        scale = max(float(np.linalg.norm(gradient)), 1e-3 * total)
        np.testing.assert_allclose(got.gradients[path] / scale, gradient / scale, atol=1e-4, rtol=0, err_msg=path)


def test_the_comparison_sees_other_noise():
    """The proof can fail: with another seed for the noise alone, losses and gradients differ by more than it allows."""
    expected = on_one_device("published")
    flags = parse([*COMMON, "--gin.bert.dropout=0.11"], MODES)
    other = prove.run(
        build(flags, ["configs/parallel/data.gin"], [f"batch.size={BATCH}", "batch.accumulation=1"]).program, STEPS
    )
    assert max(abs(a - b) / b for a, b in zip(other.losses, expected.losses, strict=True)) > 1e-4
