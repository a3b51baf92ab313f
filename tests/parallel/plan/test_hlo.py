"""The reader of compiled programs: every form of groups, trip counts, and each collective once. Texts are shortened from real
programs; what they mean was worked out by hand.
"""

import pytest

from parallel.plan.hlo import Program

MESH = {"data": 2, "tensor": 4}


def program(*lines, before=""):
    return Program(before + "ENTRY %main (p: f32[8]) -> f32[8] {\n" + "".join(f"  {line}\n" for line in lines) + "}\n")


def only(*lines):
    (found,) = program(*lines).collectives
    return found


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", ("tensor",)),
        ("{{0,4},{1,5},{2,6},{3,7}}", ("data",)),
        ("{{0,1,2,3,4,5,6,7}}", ("data", "tensor")),
        ("[2,4]<=[8]", ("tensor",)),
        ("[4,2]<=[2,4]T(1,0)", ("data",)),
        ("[1,8]<=[8]", ("data", "tensor")),
        ("mesh['a'=2,'b'=4] {'b'}", ("tensor",)),
        ("mesh['a'=2,'b'=4] {'a'}", ("data",)),
        ("mesh['a'=2,'b'=1,'c'=4] {'a','c'}", ("data", "tensor")),
        ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}", ("tensor",)),
        ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}", ("data",)),
        ("mesh['a'=8] {'a':(1)2}", ("data",)),
        ("mesh['a'=8] {'a':(2)4}", ("tensor",)),
    ],
)
def test_groups_in_every_form_cross_the_axes_they_cross(groups, axes):
    found = only(
        f"ROOT %all-reduce.1 = f32[8]{{0}} all-reduce(%p), channel_id=1, replica_groups={groups}, use_global_device_ids=true"
    )
    assert found.axes(MESH) == axes
    assert (found.kind, found.bytes, found.times) == ("all-reduce", 32, 1)


def test_a_permutation_crosses_the_axes_along_which_its_pairs_differ():
    line = "ROOT %c = f32[8]{0} collective-permute(%p), channel_id=1, source_target_pairs={PAIRS}"
    assert only(line.replace("PAIRS", "{0,1},{1,2},{2,3},{3,0}")).axes(MESH) == ("tensor",)
    assert only(line.replace("PAIRS", "{0,4},{4,0}")).axes(MESH) == ("data",)


LOOP = """%body (q: (s32[], f32[8])) -> (s32[], f32[8]) {
  %g = bf16[2,16]{1,0} all-gather(%x), channel_id=7, replica_groups={{0,1}}, metadata={op_name="jit(f)/while/body/dot"}
}

%condition (q: (s32[], f32[8])) -> pred[] {
  %limit = s32[]{:T(128)} constant(6)
  ROOT %less = pred[] compare(%i, %limit), direction=LT
}

"""


def test_what_runs_in_a_loop_counts_as_often_as_the_loop_runs():
    found = program("ROOT %w = (s32[], f32[8]{0}) while(%t), condition=%condition, body=%body", before=LOOP)
    (gather,) = found.collectives
    assert (gather.kind, gather.times, gather.bytes, gather.source) == ("all-gather", 6, 64, "jit(f)/while/body/dot")


def test_a_known_trip_count_is_believed():
    line = 'ROOT %w = (s32[], f32[8]{0}) while(%t), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"5"}}'
    assert program(line, before=LOOP).times["body"] == 5


def test_loops_within_loops_multiply():
    outer = """%outer (q: (s32[], f32[8])) -> (s32[], f32[8]) {
  %w = (s32[], f32[8]{0}) while(%t), condition=%condition, body=%body
}

"""
    line = 'ROOT %v = (s32[], f32[8]{0}) while(%t), condition=%c, body=%outer, backend_config={"known_trip_count":{"n":"3"}}'
    assert program(line, before=LOOP + outer).times["body"] == 18


def test_a_fused_reduce_scatter_is_one():
    fused = """%all-reduce-scatter.3 (input: f32[16,4]) -> f32[2,4] {
  %all-reduce.1 = f32[16,4]{1,0} all-reduce(%input), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}
}

"""
    (found,) = program(
        "ROOT %f = f32[2,4]{1,0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.3", before=fused
    ).collectives
    assert (found.kind, found.bytes) == ("reduce-scatter", 256)


def test_the_pieces_of_an_asynchronous_collective_are_one():
    pieces = "".join(
        f"%piece.{n} (p: f32[2]) -> f32[8] {{\n  %g.{n} = f32[8]{{0}} all-gather(%p), channel_id=4, replica_groups={{{{0,1,2,3}}}}\n}}\n\n"
        for n in range(3)
    )
    calls = [f"%f.{n} = f32[8]{{0}} fusion(%p), kind=kOutput, calls=%piece.{n}" for n in range(3)]
    assert len(program(*calls, before=pieces).collectives) == 1


def test_a_started_permutation_sends_its_operand_once():
    start = (
        "%s = (f32[64]{0}, f32[64]{0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%p), channel_id=9, "
        "source_target_pairs={{0,1},{1,0}}"
    )
    found = only(start, "ROOT %d = f32[64]{0} collective-permute-done(%s)")
    assert (found.kind, found.bytes) == ("collective-permute", 256)


def test_operands_and_attributes_are_read_to_their_end():
    (instruction,) = program(
        'ROOT %d = f32[2,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="x, y"}'
    ).computations["main"]
    assert instruction.operands == ["a", "b"]
    assert instruction.attribute("lhs_contracting_dims") == "{1}"
    assert instruction.arrays == [("f32", (2, 4))]
