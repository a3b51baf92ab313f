"""ZeRO in the compiled step: what each stage sends, and that what it shares out is never sent or summed whole."""

import math

import pytest
from programs import compiled_step

GIN = "tests/compiled/bert.gin"
MICROBATCHES = 2  # batch.accumulation there.
STAGES = {1: "zero1", 2: "zero2", 3: "zero3"}


def step(layout):
    return compiled_step(GIN, layout=layout)


def weights(found):
    return {d: record for d, record in found.program.declared.items()}


def matrices(collectives):
    """Bytes of arrays of two dimensions and more, times how often they are sent."""
    return sum(4 * math.prod(dims) * c.times for c in collectives for _, dims in c.arrays if _large(dims))


def _large(dims):
    # The smallest matrix of the model is 512 x 512; stacked biases and norms are at most 2 x 2048.
    return math.prod(dims) >= 512 * 512


def parameter_bytes(found):
    return sum(4 * record.size for record in weights(found).values() if _large(record.shape))


def test_data_parallel_all_reduces_each_gradient_and_nothing_else():
    found = step("data")
    assert {c.kind for c in found.collectives()} == {"all-reduce"}
    layers = sum(4 * r.size for r in weights(found).values() if r.names[0] == "layers" and _large(r.shape))
    in_backward = [c for c in found.collectives("all-reduce") if c.times == MICROBATCHES * 2]
    assert matrices(in_backward) == MICROBATCHES * layers


@pytest.mark.parametrize("stage", [2, 3])
def test_from_stage_2_on_no_gradient_is_all_reduced_whole(stage):
    found = step(STAGES[stage])
    assert matrices(found.collectives("all-reduce")) == 0
    table = 4 * 4096 * 512
    assert matrices(found.collectives("reduce-scatter")) == MICROBATCHES * (parameter_bytes(found) + table)


def test_stages_1_and_2_gather_the_new_weights_once_a_step():
    for stage in (1, 2):
        found = step(STAGES[stage])
        assert matrices(found.collectives("all-gather")) == parameter_bytes(found)


def test_stage_3_gathers_a_layer_when_it_runs_forward_and_backward():
    found = step("zero3")
    gathers = found.collectives("all-gather", over="data")
    of_layers = [c for c in gathers if c.times == MICROBATCHES * 2 and _large(c.arrays[0][1])]
    layer = sum(
        record.size // 2
        for path, record in weights(found).items()
        if record.names[0] == "layers" and _large(record.shape)
    )
    # In bfloat16: the TPU compiler casts what a float32 product of default precision reads before it is sent.
    assert {kind for c in of_layers for kind, _ in c.arrays} == {"bf16"}
    assert sum(math.prod(c.arrays[0][1]) for c in of_layers) == 2 * layer


def test_arguments_shrink_by_stage_as_the_closed_form_says():
    """Weights 4 P and Adam's state 8 P bytes, each divided by the eight chips from its stage on; the compiler pads arrays to
    its tiles, so it counts a little more.
    """
    size = 4 * sum(record.size for record in weights(step("data")).values())
    for layout, expected in {
        "data": 3 * size,
        "zero1": size + 2 * size / 8,
        "zero2": size + 2 * size / 8,
        "zero3": 3 * size / 8,
    }.items():
        found = step(layout)
        resolved = found.program.parameters + found.program.slots
        declared = sum(r.bytes_per_device for r in resolved)
        assert declared == pytest.approx(expected, rel=2e-3), layout
        assert declared <= found.arguments <= 1.25 * declared, layout


def test_hybrid_zero_3_sends_only_sums_of_gradients_over_the_slow_network():
    found = step("hybrid_zero3")
    assert {c.kind for c in found.collectives(over="replica")} == {"all-reduce"}
    assert matrices(found.collectives("all-gather")) > 0
    assert all(c.axes(found.mesh) == ("data",) for c in found.collectives("all-gather"))
