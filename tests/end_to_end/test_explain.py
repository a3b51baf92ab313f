"""--mode=explain answers for models that no machine here could hold."""

import json
import time

from commands import run


def test_480b_on_2048_devices_is_explained_in_seconds_with_its_published_count(tmp_path):
    began = time.monotonic()
    result = run("--mode=explain", f"--workdir={tmp_path}", gin_file="configs/benchmarks/mlperf_480b.gin")
    assert result.returncode == 0, result.stderr
    assert time.monotonic() - began < 20
    assert "481,815,347,200" in result.stdout
    layout = json.loads((tmp_path / "layout.json").read_text())
    assert layout["devices"] == 2048
    assert layout["totals"]["parameter"]["elements"] == 481_815_347_200
    # Published beside the results: .94 GB of float32 weights a chip (481.8e9 * 4 / 2048), where all is split 2048 ways.
    assert 0.941e9 < layout["totals"]["parameter"]["bytes_per_device"] < 0.96e9
    up = next(t for t in layout["tensors"] if t["path"] == "encoder.blocks.mlp.up.kernel")
    assert up["spec"] == [None, "data", "tensor"]
    assert up["why"] == [
        "rules.weights: 'embed' -> data (configs/parallel/gspmd_finalized.gin:6)",
        "rules.weights: 'mlp' -> tensor (configs/parallel/gspmd_finalized.gin:6)",
    ]
    assert {t["kind"] for t in layout["tensors"]} == {"parameter", "slot", "input", "activation"}


def test_200b_has_its_published_count(tmp_path):
    result = run("--mode=explain", gin_file="configs/benchmarks/mlperf_200b.gin")
    assert result.returncode == 0, result.stderr
    assert "199,717,148,096" in result.stdout
