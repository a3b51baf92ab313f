"""Declaring, stacking, binding and drawing parameters."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.layers.initializers import ONES, FanIn, TruncatedNormal
from parallel.parameters import Declared, abstract, bind, declared, initialize, name_key, param, stack

NORMAL = TruncatedNormal(0.02)


class Inner(nnx.Module):
    def __init__(self):
        self.kernel = param((4, 6), ("embed", "mlp"), NORMAL)
        self.scale = param((4,), ("embed",), ONES)

    def __call__(self, x):
        return (x * self.scale[...]) @ self.kernel[...]


class Outer(nnx.Module):
    def __init__(self, num_layers=3):
        self.inner = Inner()
        self.blocks = stack(Inner(), num_layers)
        self.nothing = None


def test_declared_lists_every_parameter_by_its_dotted_path():
    assert declared(Outer()) == {
        "inner.kernel": Declared((4, 6), ("embed", "mlp"), NORMAL),
        "inner.scale": Declared((4,), ("embed",), ONES),
        "blocks.kernel": Declared((3, 4, 6), ("layers", "embed", "mlp"), NORMAL),
        "blocks.scale": Declared((3, 4), ("layers", "embed"), ONES),
    }


def test_a_declaration_of_any_size_takes_no_memory():
    huge = nnx.Module()
    huge.table = param((10**6, 10**6, 10**6), ("vocab", "embed", "mlp"), NORMAL)
    record = declared(huge)["table"]
    assert record.size == 10**18
    assert record.stacked(10).size == 10**19  # Beyond 64 bits.
    assert abstract({"table": record})["table"].shape == (10**6, 10**6, 10**6)


def test_names_and_dimensions_must_be_as_many():
    with pytest.raises(AssertionError):
        Declared((2, 3), ("embed",), NORMAL)


def test_stacks_do_not_nest():
    with pytest.raises(AssertionError, match="nest"):
        stack(stack(Inner(), 2), 2)


def test_a_bound_module_computes_with_its_values_and_the_original_stays_a_declaration():
    module, rng = Inner(), np.random.default_rng(0)
    values = {"kernel": rng.normal(size=(4, 6)).astype("f4"), "scale": rng.normal(size=4).astype("f4")}
    x = rng.normal(size=(2, 4)).astype("f4")
    np.testing.assert_allclose(bind(module, values)(x), (x * values["scale"]) @ values["kernel"], rtol=1e-5)
    assert isinstance(module.kernel.get_value(), jax.ShapeDtypeStruct)
    assert declared(bind(module, values)) == declared(module)


def test_bound_values_come_back_under_their_paths():
    values = initialize(declared(Outer()), 0)
    flat = nnx.to_flat_state(nnx.state(bind(Outer(), values), nnx.Param))
    back = {".".join(map(str, path)): variable[...] for path, variable in flat}
    assert back.keys() == values.keys()
    for path, value in back.items():
        assert value is values[path]


@pytest.mark.parametrize("change", [lambda v: v | {"other": jnp.zeros(3)}, lambda v: {"kernel": v["kernel"]}])
def test_a_path_too_many_or_too_few_does_not_bind(change):
    with pytest.raises((AssertionError, KeyError)):
        bind(Inner(), change(initialize(declared(Inner()), 0)))


def test_values_have_the_declared_shape_and_dtype():
    for path, value in initialize(declared(Outer()), 0).items():
        record = declared(Outer())[path]
        assert (value.shape, value.dtype) == (record.shape, record.dtype)


def test_a_value_does_not_depend_on_which_others_exist():
    declarations = declared(Outer())
    together = initialize(declarations, 5)
    for path, record in declarations.items():
        np.testing.assert_array_equal(initialize({path: record}, 5)[path], together[path])


def test_seed_and_path_each_make_another_value():
    record = Declared((8, 8), ("embed", "mlp"), NORMAL)
    first = initialize({"a": record, "b": record}, 0)
    second = initialize({"a": record}, 1)
    assert not np.array_equal(first["a"], first["b"])
    assert not np.array_equal(first["a"], second["a"])


def test_each_layer_of_a_stack_is_drawn_on_its_own_whatever_the_depth():
    deep = initialize(declared(Outer(num_layers=5)), 0)["blocks.kernel"]
    shallow = initialize(declared(Outer(num_layers=2)), 0)["blocks.kernel"]
    np.testing.assert_array_equal(deep[:2], shallow)
    assert len({layer.tobytes() for layer in np.asarray(deep)}) == 5


def test_the_spread_is_that_asked_for_and_nothing_lies_beyond_two_sigmas_of_the_uncut_normal():
    kernel = initialize({"k": Declared((4, 300, 200), ("layers", "embed", "mlp"), NORMAL)}, 0)["k"]
    # The standard deviation of a normal cut at +-2: sqrt(1 - 4 phi(2) / (2 Phi(2) - 1)).
    phi, inside = math.exp(-2) / math.sqrt(2 * math.pi), math.erf(math.sqrt(2))
    cut = math.sqrt(1 - 4 * phi / inside)
    for layer in np.asarray(kernel):
        assert abs(layer.std() / 0.02 - 1) < 0.01
        assert abs(layer.mean()) < 0.02 * 5 / math.sqrt(layer.size)
        assert np.abs(layer).max() <= 2 * 0.02 / cut * 1.0001


def test_fan_in_of_a_stack_is_that_of_one_layer():
    kernel = initialize({"k": Declared((3, 16, 25, 50), ("layers", "heads", "head_dim", "embed"), FanIn(2))}, 0)["k"]
    assert abs(np.std(kernel) / (1 / math.sqrt(16 * 25)) - 1) < 0.02


def test_a_stream_is_named_by_the_crc_of_its_name():
    key = jax.random.key(3)
    expected = jax.random.fold_in(key, 0x3610A686)  # CRC-32 of b"hello", as published.
    assert jax.random.key_data(name_key(key, "hello")).tolist() == jax.random.key_data(expected).tolist()


def test_values_drawn_sharded_over_eight_devices_are_those_drawn_on_one():
    declarations = {
        "blocks.kernel": Declared((2, 16, 32), ("layers", "embed", "mlp"), NORMAL),
        "table": Declared((64, 16), ("vocab", "embed"), FanIn()),
    }
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "tensor"))
    placed = {
        "blocks.kernel": NamedSharding(mesh, PartitionSpec(None, "data", "tensor")),
        "table": NamedSharding(mesh, PartitionSpec("tensor", "data")),
    }
    sharded = jax.jit(lambda: initialize(declarations, 7), out_shardings=placed)()
    alone = initialize(declarations, 7)
    for path in declarations:
        assert len({str(shard.index) for shard in sharded[path].addressable_shards}) == 8
        np.testing.assert_allclose(sharded[path], alone[path], rtol=2e-6, atol=0)
