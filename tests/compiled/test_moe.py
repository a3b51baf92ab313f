"""GShard's exchange in the compiled step: tokens travel to their experts and back by all-to-all, over one axis."""

import math

import pytest
from programs import compiled_step

GIN = "configs/runs/pretrain_moe.gin"
MIXTURES = 2
# 16 groups of 128 tokens, 8 experts of 40 seats, states of 128 in bfloat16, which a float32 product of default
# precision reads.
SENT = 16 * 8 * 40 * 128 * 2
LAYOUTS = {"expert": "expert", "gshard_2d": "data", "gshard_3d": "expert"}


def exchanges(found, over):
    """All-to-alls of the loop over blocks; a split table of embeddings may have its own, once a step."""
    return [c for c in found.collectives("all-to-all", over=over) if c.times > 1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_mixture_sends_tokens_and_answers_once_forward_and_once_backward(layout):
    found = compiled_step(GIN, "batch.size=16", layout=layout)
    sent = exchanges(found, LAYOUTS[layout])
    assert [(c.times, c.axes(found.mesh)) for c in sent] == [(MIXTURES, (LAYOUTS[layout],))] * 4
    # Each device has its share of the examples, and of the states where these are split too.
    ways = math.prod(found.mesh.values())
    assert {sum(math.prod(dims) * 2 for _, dims in c.arrays) for c in sent} == {SENT // ways}


def test_no_weight_of_an_expert_is_gathered_or_summed_over_the_experts_axis():
    found = compiled_step(GIN, "batch.size=16", layout="expert")
    expert = 128 * 384
    for c in found.collectives("all-reduce", "all-gather", "reduce-scatter"):
        assert not any(dims[-3:] in ((8, 128, 384), (8, 384, 128)) for _, dims in c.arrays), c
    local = [r for r in found.program.parameters if ".mixture.mlp.up" in r.path]
    assert [r.bytes_per_device for r in local] == [4 * MIXTURES * expert]


@pytest.mark.parametrize("layout", ["data", "zero3"])
def test_where_experts_are_not_split_no_block_sends_a_token(layout):
    found = compiled_step(GIN, "batch.size=16", layout=layout)
    in_blocks = [c for c in found.collectives() if c.times > 1]
    weights = {math.prod(record.shape[1:]) for record in found.program.declared.values()}
    assert {c.kind for c in in_blocks} <= {"all-reduce", "all-gather", "reduce-scatter"}
    for c in in_blocks:
        assert all(math.prod(dims) in weights | {1} for _, dims in c.arrays), c


def test_dropless_a_chip_runs_ragged_products_of_its_own_tokens():
    found = compiled_step(GIN, "batch.size=16", "moe.dispatch='sorted'", layout="data")
    text = found.program.lower_train_step().as_text()
    # Two choices of each of a chip's 2 examples of 128 tokens: 3 products and, for each, 2 in the backward pass.
    products = [line for line in text.splitlines() if "chlo.ragged_dot" in line]
    assert len(products) >= 9 and all("tensor<512x" in line for line in products)
    assert {c.kind for c in found.collectives()} == {"all-reduce"}
