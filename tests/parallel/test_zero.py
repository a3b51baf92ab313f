"""ZeRO shares out what its stage says, along a dimension that is divided; bytes a device are the closed form."""

import itertools
import math

import jax.numpy as jnp
import pytest

from mistake import Mistake
from parallel.layout import Layout
from parallel.mesh import MeshAxes
from parallel.modes import Modes
from parallel.rules import Rules
from parallel.zero import Zero

SIZES = {"data": 4, "tensor": 2}


def layout(stage, *, axes=("data",), weights=None, sizes=SIZES, parts=None):
    modes = {"": Modes(Rules(weights or {}, {"batch": "data"}), Zero(stage, axes))}
    return Layout(sizes, modes | (parts or {}))


def split(found, kind="weights", shape=(3, 8, 12), names=("layers", "embed", "mlp"), path="blocks.mlp.up.kernel"):
    return found.resolve(kind, path, shape, names, jnp.float32).split


WHOLE = ((), (), ())


@pytest.mark.parametrize(
    ("stage", "shared"),
    [(0, ()), (1, ("optimizer",)), (2, ("optimizer", "gradients")), (3, ("optimizer", "gradients", "weights"))],
)
def test_each_stage_shares_out_one_kind_more(stage, shared):
    for kind in ("weights", "gradients", "optimizer"):
        assert split(layout(stage), kind) == (((), ("data",), ()) if kind in shared else WHOLE)


def test_the_largest_dimension_that_nothing_splits_is_taken_and_the_last_only_where_no_other_can_be():
    names = ("embed", "heads", "head_dim")
    assert split(layout(3, weights={"embed": "tensor"}), shape=(16, 4, 8), names=names) == (("tensor",), ("data",), ())
    assert split(layout(3), shape=(8, 16, 32), names=names) == ((), ("data",), ())
    assert split(layout(3), shape=(7, 5, 8), names=names) == ((), (), ("data",))


def test_a_dimension_that_is_split_already_is_split_further_where_no_other_can_be():
    assert split(layout(3, weights={"mlp": "tensor"}), shape=(3, 7, 16)) == ((), (), ("tensor", "data"))


def test_layers_are_split_only_as_a_last_resort_and_an_indivisible_tensor_stays_whole():
    assert split(layout(3), shape=(8, 7, 9)) == (("data",), (), ())
    assert split(layout(3), shape=(3, 7, 9)) == WHOLE


def test_an_axis_that_rules_use_in_a_tensor_is_not_used_twice():
    assert split(layout(3, weights={"embed": "data"})) == ((), ("data",), ())
    both = layout(3, axes=("data", "tensor"), weights={"embed": "data"})
    assert split(both) == ((), ("data",), ("tensor",))


def test_a_part_may_have_a_stage_of_its_own():
    found = layout(3, parts={"audio": Modes(Rules({}, {"batch": "data"}), Zero(0))})
    assert split(found, path="audio.blocks.mlp.up.kernel") == WHOLE
    assert split(found, path="image.blocks.mlp.up.kernel") == ((), ("data",), ())


def test_what_shared_a_tensor_out_is_said():
    found = layout(3).resolve("weights", "blocks.mlp.up.kernel", (3, 8, 12), ("layers", "embed", "mlp"), jnp.float32)
    assert str(found.shared) == "zero.stage = 3: 'embed' -> data"
    assert found.bytes_per_device == 3 * 8 * 12 * 4 // 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Zero(4), "zero.stage: 4 is not a stage"),
        (lambda: Zero(1, "data"), "zero.axes: 'data' is one axis, not a tuple"),
        (lambda: Zero(1, ()), "zero.axes: () must be different mesh axes, one at least"),
        (lambda: Zero(1, ("data", "data")), "zero.axes: ('data', 'data') must be different"),
        (lambda: layout(1, axes=("dato",)), "zero.axes: 'dato' is not a mesh axis. Nearest: 'data'"),
    ],
)
def test_what_can_not_be_is_refused(make, message):
    with pytest.raises(Mistake) as caught:
        make()
    assert message in str(caught.value)


def test_a_stage_that_shares_nothing_out_is_refused():
    found = layout(1, weights={"embed": "data"}, sizes={"data": 4})
    split(found)
    split(found, "optimizer")
    found.resolve("activations", "batch.tokens", (8, 4), ("batch", "length"), jnp.int32)
    with pytest.raises(Mistake, match="zero.stage: 1 shares nothing out"):
        found.check_used()


def test_on_one_device_every_stage_may_be_asked_for():
    found = layout(3, sizes={"data": 1})
    assert split(found) == WHOLE
    found.resolve("activations", "batch.tokens", (8, 4), ("batch", "length"), jnp.int32)
    found.check_used()


def test_bytes_are_the_closed_form_of_the_paper():
    """Rajbhandari et al. 2020, section 5, for float32 weights and Adam: 4 P of weights, 4 P of gradients and 8 P of state,
    each divided by the devices from its stage on. Every tensor here has a dimension that is divided.
    """
    shapes = [((6, 16, 64), ("layers", "embed", "mlp")), ((6, 64), ("layers", "mlp")), ((96, 16), ("vocab", "embed"))]
    count = sum(math.prod(shape) for shape, _ in shapes)
    for stage, devices in itertools.product(range(4), (1, 2, 8)):
        found = layout(stage, sizes={"data": devices})

        def held(kind, found=found):
            return sum(
                found.resolve(kind, str(i), shape, names, jnp.float32).bytes_per_device
                for i, (shape, names) in enumerate(shapes)
            )

        share = lambda first, stage=stage, devices=devices: devices if stage >= first else 1
        assert held("weights") == 4 * count // share(3)
        assert held("gradients") == 4 * count // share(2)
        assert 2 * held("optimizer") == 8 * count // share(1)


def test_slices_are_not_shared_out_over():
    assert MeshAxes({"replica": 2, "data": 4}, {"replica": 2}).sizes(8) == {"replica": 2, "data": 4}
    found = layout(3, sizes={"replica": 2, "data": 4})
    assert split(found) == ((), ("data",), ())
