"""The same model on one device and under every preset: the same losses and the same gradient of every parameter, noise and
auxiliary losses included, in 1 microbatch and in 4; or a clear refusal, where a model has not what the preset splits.
"""

import functools
import math
import pathlib

import jax
import numpy as np
import pytest

from mistake import Mistake
from training import prove
from training.flags import parse
from training.modes import MODES
from training.setup import build

STEPS = 2
FAMILIES = ("bert", "lm", "moe", "vit", "mbt")
PRESETS = sorted(
    path.stem for path in pathlib.Path("configs/parallel").glob("*.gin") if path.stem not in ("none", "single")
)
NO_EXPERTS = "no tensor it is for has a dimension 'expert'"
REFUSED = {
    **{
        (family, preset): NO_EXPERTS
        for family in FAMILIES
        if family != "moe"
        for preset in ("expert", "gshard_2d", "gshard_3d")
    },
    **{(family, "spatial"): "no tensor it is for has a dimension 'height'" for family in ("bert", "lm", "moe")},
    # MBT's towers see their class tokens and the bottlenecks beside their patches, which no axis divides, and it has three stacks.
    **{
        ("mbt", preset): "does not divide"
        for preset in PRESETS
        if preset.startswith("context") or preset == "tensor_sequence"
    },
    **{("mbt", preset): "runs several in that part" for preset in ("pipeline_1f1b", "three_d")},
}


@pytest.fixture(autouse=True)
def programs_are_let_go():
    """Of the hundreds of programs here each is used once: they are not written to the cache, and not held in memory, of
    whose mappings a process may have only so many.
    """
    jax.config.update("jax_enable_compilation_cache", False)
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    jax.clear_caches()


def program(family: str, preset: str, accumulation: int):
    flags = parse([f"--gin_file=tests/invariance/{family}.gin", "--simulated_devices=8"], MODES)
    bindings = [f"batch.accumulation={accumulation}", "batch.microbatch_size=None"]
    return build(flags, [f"configs/parallel/{preset}.gin"], bindings).program


@functools.cache
def on_one_device(family: str) -> prove.Trace:
    return prove.run(program(family, "single", 1), STEPS)


CASES = [
    pytest.param(family, preset, accumulation, marks=pytest.mark.xdist_group(family))
    for family in FAMILIES
    for preset in PRESETS
    for accumulation in (1, 4)
]


@pytest.mark.parametrize(("family", "preset", "accumulation"), CASES)
def test_losses_and_gradients_are_those_of_one_device(family, preset, accumulation):
    if (family, preset) in REFUSED:
        with pytest.raises(Mistake, match=REFUSED[family, preset]):
            prove.run(program(family, preset, accumulation), 1)
        return
    expected, got = on_one_device(family), prove.run(program(family, preset, accumulation), STEPS)
    np.testing.assert_allclose(got.losses, expected.losses, rtol=1e-5)
    assert got.gradients.keys() == expected.gradients.keys()
    total = math.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in expected.gradients.values()))
    for path, gradient in expected.gradients.items():
        scale = max(float(np.linalg.norm(gradient)), 1e-3 * total)
        assert float(np.linalg.norm(got.gradients[path] - gradient)) <= 1e-4 * scale, path
