"""Resolving: one sharding a tensor, or a mistake that names tensor, dimension, rule and mend. Nothing goes silently."""

import math

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from mistake import Mistake
from parallel import axes
from parallel.annotate import activate, part, shard
from parallel.layout import Layout
from parallel.modes import Modes
from parallel.mesh import MeshAxes
from parallel.rules import Rules

MESH = {"data": 2, "tensor": 4}


def place(binding, key):
    return f"mine.gin:{len(binding) + len(key)}"


def layout(weights=None, activations=None, optimizer=None, *, sizes=MESH, parts=None, **options):
    modes = {"": Rules(weights or {}, activations or {}, optimizer), **(parts or {})}
    return Layout(sizes, {scope: Modes(rules) for scope, rules in modes.items()}, **options)


def resolve(found, names, shape, kind="weights", path="encoder.blocks.mlp.up.kernel", dtype=jnp.float32):
    return found.resolve(kind, path, shape, names, dtype)


def mistake(found, names, shape, **options) -> str:
    with pytest.raises(Mistake) as caught:
        resolve(found, names, shape, **options)
    return str(caught.value)


def test_each_dimension_goes_where_its_rule_says():
    found = resolve(layout({"embed": "data", "mlp": "tensor"}), ("layers", "embed", "mlp"), (3, 8, 12))
    assert found.spec == PartitionSpec(None, "data", "tensor")
    assert (found.ways, found.bytes, found.bytes_per_device) == (8, 3 * 8 * 12 * 4, 3 * 8 * 12 * 4 // 8)


def test_a_dimension_may_take_several_axes_and_one_without_a_name_none():
    found = resolve(layout({"embed": ("data", "tensor")}), (None, "embed"), (5, 16), dtype=jnp.bfloat16)
    assert found.spec == PartitionSpec(None, ("data", "tensor"))
    assert found.bytes_per_device == 5 * 16 * 2 // 8


def test_bytes_do_not_overflow_at_the_size_of_the_largest_models():
    found = resolve(layout({"mlp": "tensor"}), ("layers", "embed", "mlp"), (1000, 2**20, 2**20))
    assert found.bytes_per_device == 1000 * 2**40


def test_weights_activations_and_optimizer_have_rules_of_their_own():
    found = layout({"embed": "data", "mlp": "tensor"}, {"embed": "tensor"}, {"embed": None})
    names, shape = ("embed", "mlp"), (8, 8)
    assert resolve(found, names, shape).spec == PartitionSpec("data", "tensor")
    assert resolve(found, names, shape, kind="activations").spec == PartitionSpec("tensor", None)
    assert resolve(found, names, shape, kind="optimizer").spec == PartitionSpec(None, "tensor")


def test_a_name_that_no_catalogue_lists_is_a_mistake_and_not_replicated():
    message = mistake(layout({"embed": "data"}), ("embd", "mlp"), (8, 8))
    assert message.startswith(
        "encoder.blocks.mlp.up.kernel [embd=8, mlp=8]: 'embd' is not a logical axis. Nearest: 'embed'"
    )


def test_a_size_that_is_not_divided_is_a_mistake_with_sizes_that_fit_and_the_place():
    found = layout({"embed": "data"}, sizes={"data": 16}, origin=lambda binding, key: "configs/parallel/mine.gin:9")
    assert mistake(found, ("embed", "mlp"), (1000, 4000)) == (
        "encoder.blocks.mlp.up.kernel [embed=1000, mlp=4000]: 'embed' -> data (16 devices) does not divide 1000 "
        "(configs/parallel/mine.gin:9).\n"
        "Sizes that fit: 992, 1008. Or let it be replicated: 'embed': None, or 'embed?': where it does not divide."
    )


def test_a_size_below_the_number_of_devices_fits_one_size_only():
    message = mistake(layout({"embed": ("data", "tensor")}), ("embed",), (3,))
    assert "'embed' -> data (2 devices), tensor (4 devices) does not divide 3.\nSizes that fit: 8. Or" in message


def test_a_mesh_axis_that_would_split_a_tensor_twice_is_a_mistake_naming_both_rules():
    message = mistake(layout({"embed": "tensor", "mlp": ("data", "tensor")}, origin=place), ("embed", "mlp"), (8, 8))
    assert message == (
        "encoder.blocks.mlp.up.kernel [embed=8, mlp=8]: mesh axis 'tensor' would split it twice, "
        "by rules.weights: 'embed' -> tensor (mine.gin:18) and by rules.weights: 'mlp' -> ('data', 'tensor') (mine.gin:16). "
        "Put one of them on another axis, or replicate it: 'mlp': None."
    )


def test_an_optional_rule_falls_back_where_it_does_not_divide_and_is_listed():
    found = layout({"kv_heads?": "tensor", "embed": "data"})
    whole = resolve(found, ("embed", "kv_heads", "head_dim"), (8, 1, 64))
    assert (whole.spec, whole.ways) == (PartitionSpec("data", None, None), 2)
    assert [str(rule) for rule in whole.fallbacks] == ["rules.weights: 'kv_heads' -> tensor"]
    split = resolve(found, ("embed", "kv_heads", "head_dim"), (8, 4, 64))
    assert (split.spec, split.fallbacks) == (PartitionSpec("data", "tensor", None), ())


def test_a_name_twice_in_a_tensor_may_be_split_where_it_divides_and_whole_where_not():
    found = resolve(layout({"embed?": "tensor"}), ("embed", "embed"), (8, 6))
    assert (found.spec, found.ways) == (PartitionSpec("tensor", None), 4)


NAMES = st.sampled_from([*axes.AXES][:8])
VALUES = st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "c"]), max_size=3, unique=True).map(tuple))


@hypothesis.given(
    sizes=st.fixed_dictionaries({axis: st.integers(1, 4) for axis in "abc"}),
    table=st.dictionaries(NAMES, st.tuples(VALUES, st.booleans()), max_size=6),
    dims=st.lists(st.tuples(st.one_of(st.none(), NAMES), st.sampled_from([1, 2, 3, 4, 6, 12, 24, 7])), max_size=4),
    dtype=st.sampled_from([np.dtype("f4"), np.dtype("i1"), jnp.dtype(jnp.bfloat16)]),
)
@hypothesis.settings(max_examples=300, deadline=None)
def test_what_resolves_never_uses_an_axis_twice_always_divides_and_its_bytes_add_up(sizes, table, dims, dtype):
    found = layout({name + "?" * optional: value for name, (value, optional) in table.items()}, sizes=sizes)
    names, shape = tuple(name for name, _ in dims), tuple(size for _, size in dims)
    try:
        resolved = resolve(found, names, shape, dtype=dtype)
    except Mistake as caught:
        assert "would split it twice" in str(caught) or "does not divide" in str(caught)
        return
    used = []
    for (name, size), entry in zip(dims, resolved.spec, strict=True):
        mesh_axes = () if entry is None else (entry,) if isinstance(entry, str) else entry
        used.extend(mesh_axes)
        assert size % math.prod(sizes[axis] for axis in mesh_axes) == 0
        value, optional = table.get(name, (None, False))
        assert mesh_axes == (value or ()) or (optional and size % math.prod(sizes[axis] for axis in value))
    assert len(used) == len(set(used))
    assert resolved.ways == math.prod(sizes[axis] for axis in used)
    assert resolved.bytes == math.prod(shape) * dtype.itemsize
    assert resolved.bytes_per_device * resolved.ways == resolved.bytes


# Rules, axes and parts that nothing met.


def unused(found) -> str:
    with pytest.raises(Mistake) as caught:
        found.check_used()
    return str(caught.value)


def test_a_rule_that_no_tensor_meets_is_a_mistake_unless_it_may_go_unused():
    found = layout({"embed": "data", "mlp": "tensor", "heads?": "tensor", "kv_heads": "tensor"}, origin=place)
    resolve(found, ("embed", "mlp"), (8, 8))
    assert unused(found) == (
        "rules.weights: no tensor it is for has a dimension 'kv_heads' (mine.gin:21). "
        "Drop it, or mark it as meant for other models too: 'kv_heads?'."
    )


def test_an_unused_rule_gets_the_nearest_name_that_was_met():
    found = layout({"heads": "data", "kv_heads": "tensor"})
    resolve(found, ("heads",), (8,))
    assert "'kv_heads'. Nearest: 'heads'. Drop it" in unused(found)


def test_a_mesh_axis_that_nothing_is_on_is_a_mistake():
    found = layout({"embed": "data"})
    resolve(found, ("embed",), (8,))
    assert unused(found).startswith(
        "mesh.axes: nothing of this model is on axis 'tensor', so its 4 devices would all do"
    )


def test_a_mesh_axis_whose_every_rule_fell_back_is_one_that_nothing_is_on():
    found = layout({"embed": "data", "kv_heads?": "tensor"})
    resolve(found, ("embed", "kv_heads"), (8, 1))
    assert "nothing of this model is on axis 'tensor'" in unused(found)


def test_all_that_is_unused_is_told_at_once():
    assert len(unused(layout({"embed": "data"}, {"mlp": "tensor"}, parts={"image": Rules({}, {})})).splitlines()) == 5


def test_nothing_unused_is_no_mistake():
    found = layout({"embed": "data", "vocab?": "tensor"}, {"mlp": "tensor"}, {"embed": "tensor"})
    for kind, name in (("weights", "embed"), ("activations", "mlp"), ("optimizer", "embed")):
        resolve(found, (name,), (8,), kind=kind)
    found.check_used()


# Parts with rules of their own.


def test_the_deepest_part_that_a_path_lies_in_wins():
    parts = {
        "encoder": Rules({"embed": "data"}, {}),
        "encoder/blocks": Rules({"embed": None}, {}),
        "out": Rules({"embed": "tensor"}, {}),
    }
    found = layout({"embed": "tensor"}, parts=parts)
    for path, axis in {
        "encoder.blocks.mlp.kernel": None,
        "encoder.blocks.out.kernel": "tensor",
        "encoder.pooler.kernel": "data",
        "mu:encoder.pooler.kernel": "data",
        "head.kernel": "tensor",
        "encoder_two.kernel": "tensor",
        "encoder.blocks_two.kernel": "data",
    }.items():
        assert resolve(found, ("embed",), (8,), path=path).spec == PartitionSpec(axis), path


def test_what_a_part_does_not_say_it_takes_from_the_whole_model():
    # gin gives a part the whole model's tables where it binds none of its own.
    whole = {"mlp": "tensor"}
    found = layout({"embed": "data"}, whole, origin=place, parts={"encoder": Rules({"embed": "tensor"}, whole)})
    activation = resolve(found, ("mlp",), (8,), kind="activations", path="encoder.x")
    assert str(activation.rules[0]).startswith("rules.activations: ")
    resolve(found, ("embed",), (8,), path="head.kernel")
    resolve(found, ("embed",), (8,), path="encoder.kernel")
    found.check_used()


def test_the_optimizer_slots_of_a_part_follow_its_weights():
    parts = {"encoder": Rules({"embed": "tensor", "mlp": "data"}, {}, {"mlp": None})}
    found = layout({"embed": "data"}, {}, {"mlp": None}, parts=parts)
    slot = resolve(found, ("embed", "mlp"), (8, 8), kind="optimizer", path="mu:encoder.kernel")
    assert slot.spec == PartitionSpec("tensor", None)


def test_a_part_with_an_optimizer_table_only_keeps_the_weights_rules_of_the_whole_as_written():
    found = layout(
        {"embed": "data", "mlp": "tensor"},
        parts={"encoder": Rules({"embed": "data", "mlp": "tensor"}, {}, {"embed": None})},
    )
    slot = resolve(found, ("embed", "mlp"), (8, 8), kind="optimizer", path="mu:encoder.kernel")
    assert [str(rule) for rule in slot.rules] == [
        "encoder/rules.optimizer: 'embed' -> None",
        "rules.weights: 'mlp' -> tensor",
    ]
    resolve(found, ("embed", "mlp"), (8, 8), path="encoder.kernel")
    found.check_used()


def test_a_part_that_the_model_has_not_is_a_mistake():
    found = layout({"embed": ("data", "tensor")}, parts={"image/tower": Rules({"embed": ("data", "tensor")}, {})})
    resolve(found, ("embed",), (8,))
    assert unused(found) == "image/tower/rules: no parameter or activation is in a part 'image.tower' of the model."


def test_a_fault_in_a_parts_rules_is_told_under_its_scope():
    with pytest.raises(Mistake, match=r"^image/rules.weights: 'embd' is not a logical axis"):
        layout(parts={"image": Rules({"embd": "data"}, {})})


# On devices.


@pytest.fixture(scope="module")
def mesh():
    return MeshAxes({"data": 2, "tensor": 4}).build(jax.devices())


def test_a_constraint_lands_on_the_output_of_a_jitted_function(mesh):
    found = layout({}, {"batch": "data", "embed": "tensor"}, mesh=mesh)

    @jax.jit
    def double(x):
        with activate(found), part("encoder"):
            return shard(2 * x, "batch", "length", "embed", name="residual")

    x = np.arange(4 * 3 * 8, dtype="f4").reshape(4, 3, 8)
    y = double(x)
    assert y.sharding.spec == PartitionSpec("data", None, "tensor")
    assert {shard.data.shape for shard in y.addressable_shards} == {(2, 3, 2)}
    np.testing.assert_array_equal(y, 2 * x)


def test_a_constraint_that_replicates_gathers_what_was_split(mesh):
    found = layout({}, {"batch": None}, mesh=mesh)

    @jax.jit
    def same(x):
        with activate(found):
            return shard(x + 0, "batch", name="x")

    x = jax.device_put(np.arange(8.0), jax.NamedSharding(mesh, PartitionSpec("data")))
    assert same(x).sharding.is_fully_replicated


def test_a_mistake_in_an_activation_names_its_part_and_name(mesh):
    found = layout({}, {"batch": "data"}, mesh=mesh)
    with (
        activate(found),
        part("encoder"),
        part("blocks"),
        pytest.raises(Mistake, match=r"^encoder.blocks.residual \[batch=3"),
    ):
        jax.eval_shape(lambda x: shard(x, "batch", name="residual"), jnp.ones(3))


def test_recording_lists_activations_and_needs_no_devices():
    found = layout({}, {"batch": "data"})
    with found.recording() as met, activate(found), part("encoder"):
        jax.eval_shape(lambda x: shard(x, "batch", "embed", name="residual"), jnp.ones((2, 3), jnp.bfloat16))
    (only,) = met
    assert (only.path, only.shape, only.names, only.dtype) == (
        "encoder.residual",
        (2, 3),
        ("batch", "embed"),
        jnp.bfloat16,
    )
    assert only.spec == PartitionSpec("data", None)


def test_a_tensor_is_placed_as_it_resolved(mesh):
    found = layout({"embed": "tensor"}, mesh=mesh)
    put = jax.device_put(np.arange(8.0), found.sharding(resolve(found, ("embed",), (8,))))
    assert {shard.data.shape for shard in put.addressable_shards} == {(2,)}
    assert jax.device_put(np.arange(8.0), found.replicated()).sharding.is_fully_replicated
