"""Meshes: sizes that add up, mistakes that say what would, and slices crossed by no axis but those named."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from mistake import Mistake
from parallel.mesh import MeshAxes


@pytest.mark.parametrize(
    ("axes", "devices", "sizes"),
    [
        ({"data": -1}, 8, {"data": 8}),
        ({"data": -1, "tensor": 4}, 8, {"data": 2, "tensor": 4}),
        ({"data": 2, "tensor": -1}, 1024, {"data": 2, "tensor": 512}),
        ({"a": 2, "b": -1, "c": 2}, 4, {"a": 2, "b": 1, "c": 2}),
        ({"data": 2, "tensor": 4}, 8, {"data": 2, "tensor": 4}),
        ({"data": 2, "tensor": 4}, None, {"data": 2, "tensor": 4}),
    ],
)
def test_minus_one_is_what_the_others_leave(axes, devices, sizes):
    found = MeshAxes(axes).sizes(devices)
    assert found == sizes
    assert list(found) == list(axes)


MISTAKES = {
    "no axis": ({"axes": {}}, 8, "mesh.axes: names no axis. For one device: mesh.axes = {'data': 1}."),
    "name": ({"axes": {"a b": 2}}, 8, "mesh.axes: 'a b' is not a name for an axis. Use a word such as 'data'."),
    "number for a name": ({"axes": {3: 2}}, 8, "mesh.axes: 3 is not a name"),
    "zero": ({"axes": {"data": 0}}, 8, "mesh.axes: 'data' has size 0. A size is a positive integer, or -1"),
    "-2": ({"axes": {"data": -2}}, 8, "mesh.axes: 'data' has size -2."),
    "fraction": ({"axes": {"data": 2.0}}, 8, "mesh.axes: 'data' has size 2.0."),
    "truth": ({"axes": {"data": True}}, 8, "mesh.axes: 'data' has size True."),
    "two rests": ({"axes": {"a": -1, "b": -1}}, 8, "mesh.axes: more than one -1 in {'a': -1, 'b': -1}."),
    "rest of unknown": (
        {"axes": {"data": -1}},
        None,
        "mesh.axes: a -1 needs a number of devices. Give every size, or",
    ),
    "indivisible": (
        {"axes": {"data": -1, "tensor": 3}},
        8,
        "takes a multiple of 3 devices, and there are 8. Products that fit: [1, 2, 4, 8].",
    ),
    "too many": ({"axes": {"data": -1, "tensor": 4}}, 2, "takes a multiple of 4 devices, and there are 2."),
    "unequal": (
        {"axes": {"data": 2, "tensor": 2}},
        8,
        "takes 4 devices, and there are 8. Make one size -1 to take what there is, set mesh.num_devices = 4 to use some",
    ),
    "slices of no axis": (
        {"axes": {"data": 8}, "slices": {"dat": 2}},
        8,
        "mesh.slices: 'dat' is not an axis of mesh.axes.",
    ),
    "slices of none": ({"axes": {"data": 8}, "slices": {"data": 0}}, 8, "mesh.slices: 'data' has 0 slices."),
    "slices that don't fit": (
        {"axes": {"data": -1}, "slices": {"data": 3}},
        8,
        "mesh.slices: 3 slices don't divide axis 'data' of size 8.",
    ),
    "no devices": (
        {"axes": {"data": -1}, "num_devices": 0},
        8,
        "mesh.num_devices: 0. A number of devices is a positive",
    ),
    "fewer than none": ({"axes": {"data": -1}, "num_devices": -2}, 8, "mesh.num_devices: -2. A number"),
}


@pytest.mark.parametrize(("arguments", "devices", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mesh_that_cannot_be_is_a_mistake_that_says_what_would_do(arguments, devices, message):
    with pytest.raises(Mistake) as caught:
        MeshAxes(**arguments).sizes(devices)
    assert message in str(caught.value)
    assert str(caught.value).startswith("mesh.")


def test_more_devices_asked_for_than_there_are_is_a_mistake():
    with pytest.raises(Mistake, match=r"^mesh.num_devices: 9 asked for, and there are 8\."):
        MeshAxes({"data": -1}, num_devices=9).build(jax.devices())


def test_num_devices_takes_the_first_of_them():
    mesh = MeshAxes({"data": -1, "tensor": 2}, num_devices=4).build(jax.devices())
    assert dict(mesh.shape) == {"data": 2, "tensor": 2}
    assert {device.id for device in mesh.devices.flat} == {0, 1, 2, 3}


def test_every_device_is_in_the_mesh_once_and_the_last_axis_has_the_neighbours():
    mesh = MeshAxes({"data": -1, "tensor": 4}).build(jax.devices())
    assert mesh.axis_names == ("data", "tensor")
    np.testing.assert_array_equal([[d.id for d in row] for row in mesh.devices], [[0, 1, 2, 3], [4, 5, 6, 7]])


@pytest.mark.parametrize("slices", [{"data": 2}, {"tensor": 2}, {"data": 2, "tensor": 2}, {"data": 4}])
def test_only_the_axes_named_in_slices_cross_from_one_slice_to_another(slices):
    sizes = {"data": 4, "tensor": 2}
    mesh = MeshAxes(sizes, slices=slices).build(jax.devices())
    ids = np.vectorize(lambda device: device.id)(mesh.devices)
    assert sorted(ids.flat) == list(range(8))
    slice_of = ids // (8 // int(np.prod(list(slices.values()))))  # Consecutive devices stand for a slice.
    for at in itertools.product(*map(range, ids.shape)):
        # The slice depends on the outer part of each axis' coordinate alone.
        outer = 0
        for coordinate, (name, size) in zip(at, sizes.items(), strict=True):
            count = slices.get(name, 1)
            outer = outer * count + coordinate // (size // count)
        assert slice_of[at] == outer


@dataclasses.dataclass(frozen=True)
class PodDevice:
    """What a device of a pod of several slices shows."""

    id: int
    slice_index: int
    platform: str = "gpu"
    device_kind: str = "a GPU"
    process_index: int = 0


@dataclasses.dataclass(frozen=True)
class TorusDevice(PodDevice):
    """What a TPU shows besides."""

    coords: tuple[int, int, int] = (0, 0, 0)
    core_on_chip: int = 0


def test_slices_that_the_devices_show_are_kept_even_when_they_come_in_another_order():
    devices = [PodDevice(i, slice_index=i % 2) for i in range(8)]
    mesh = MeshAxes({"data": 2, "tensor": 4}, slices={"data": 2}).build(devices)
    assert [{device.slice_index for device in row} for row in mesh.devices] == [{0}, {1}]


@pytest.mark.parametrize("platform", ["gpu", "cpu"])
def test_processes_are_the_slices_of_devices_that_show_none(platform):
    devices = [PodDevice(i, slice_index=0, platform=platform, process_index=i % 2) for i in range(8)]
    mesh = MeshAxes({"data": 4, "tensor": 2}, slices={"data": 2}).build(devices)
    assert [{device.process_index for device in row} for row in mesh.devices] == [{0}, {0}, {1}, {1}]
    assert sorted(device.id for device in mesh.devices.flat) == list(range(8))


def test_more_slices_than_processes_is_a_mistake():
    devices = [PodDevice(i, slice_index=0, process_index=i // 4) for i in range(8)]
    with pytest.raises(
        Mistake, match=r"^mesh.slices: {'data': 4} makes 4 slices, and the devices lie in 2, one a process\."
    ):
        MeshAxes({"data": 4, "tensor": 2}, slices={"data": 4}).build(devices)


def test_the_processes_of_one_tpu_slice_are_no_slices():
    # A 4 x 2 torus of two hosts: cut in order, whatever the hosts.
    devices = [
        TorusDevice(
            i, slice_index=0, platform="tpu", device_kind="TPU v4", process_index=i % 2, coords=(i % 4, i // 4, 0)
        )
        for i in range(8)
    ]
    mesh = MeshAxes({"data": 8}, slices={"data": 4}).build(devices)
    assert [device.id for device in mesh.devices] == list(range(8))


def test_more_slices_than_the_devices_lie_in_is_a_mistake():
    devices = [PodDevice(i, slice_index=i // 4) for i in range(8)]
    with pytest.raises(Mistake, match=r"^mesh.slices: {'data': 4} makes 4 slices, and the devices lie in 2\."):
        MeshAxes({"data": 4, "tensor": 2}, slices={"data": 4}).build(devices)
