"""The mesh: named axes over devices, with the slow network between slices said aloud."""

import math
from collections.abc import Sequence

import gin
import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from mistake import Mistake


@gin.configurable("mesh")
class MeshAxes:
    """Names and sizes of the mesh's axes, in the order of importance for the network: the last axis gets the nearest
    neighbours.

    Args:
      axes: {'data': -1, 'tensor': 4}. At most one -1: the devices that the others leave.
      slices: {'data': 2}: how many ways each named axis goes over the slow network between slices. The factor is part of that
        axis's size; axes not named stay within a slice. Devices that show no slices of their own, GPUs or CPUs of several
        processes, lie in one slice a process; those of one process, or of one TPU slice, are cut into slices in order.
      num_devices: how many of the devices to use; None is all of them.
      simulated_devices: on a machine whose only device is the CPU, how many to simulate there (0: none).
    """

    def __init__(
        self,
        axes: dict[str, int] = gin.REQUIRED,
        slices: dict[str, int] | None = None,
        num_devices: int | None = None,
        simulated_devices: int = 0,
    ):
        if not axes:
            raise Mistake("mesh.axes: names no axis. For one device: mesh.axes = {'data': 1}.")
        for name, size in axes.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise Mistake(f"mesh.axes: {name!r} is not a name for an axis. Use a word such as 'data'.")
            if isinstance(size, bool) or not isinstance(size, int) or (size < 1 and size != -1):
                raise Mistake(
                    f"mesh.axes: {name!r} has size {size!r}. A size is a positive integer, or -1 for what is left."
                )
        if sum(size == -1 for size in axes.values()) > 1:
            raise Mistake(f"mesh.axes: more than one -1 in {axes}. Give all sizes but one.")
        for name, count in (slices or {}).items():
            if name not in axes:
                raise Mistake(f"mesh.slices: {name!r} is not an axis of mesh.axes. Axes: {', '.join(axes)}.")
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise Mistake(f"mesh.slices: {name!r} has {count!r} slices. A number of slices is a positive integer.")
        if num_devices is not None and (
            isinstance(num_devices, bool) or not isinstance(num_devices, int) or num_devices < 1
        ):
            raise Mistake(
                f"mesh.num_devices: {num_devices!r}. A number of devices is a positive integer, or None for all."
            )
        if simulated_devices < 0:
            raise Mistake(f"mesh.simulated_devices: {simulated_devices} is not a number of devices. 0 simulates none.")
        self.axes, self.slices = dict(axes), dict(slices or {})
        self.num_devices, self.simulated_devices = num_devices, simulated_devices

    @property
    def needs_devices(self) -> bool:
        """Whether the sizes depend on how many devices there are."""
        return -1 in self.axes.values()

    def sizes(self, num_devices: int | None) -> dict[str, int]:
        """Size of each axis when there are `num_devices` (None: not known, and no size may be -1).

        Raises Mistake when the axes' product is not the number of devices.
        """
        known = math.prod(size for size in self.axes.values() if size != -1)
        sizes = dict(self.axes)
        if num_devices is None:
            if self.needs_devices:
                raise Mistake("mesh.axes: a -1 needs a number of devices. Give every size, or --simulated_devices=N.")
        elif self.needs_devices:
            if num_devices % known:
                raise Mistake(
                    f"mesh.axes: {self.axes} takes a multiple of {known} devices, and there are {num_devices}. "
                    f"Products that fit: {_divisors(num_devices)}."
                )
            sizes = {name: num_devices // known if size == -1 else size for name, size in sizes.items()}
        elif known != num_devices:
            raise Mistake(
                f"mesh.axes: {self.axes} takes {known} devices, and there are {num_devices}. Make one size -1 to take what there is, "
                f"set mesh.num_devices = {known} to use some of them, or simulate with --simulated_devices={known}."
            )
        for name, count in self.slices.items():
            if sizes[name] % count:
                raise Mistake(f"mesh.slices: {count} slices don't divide axis {name!r} of size {sizes[name]}.")
        return sizes

    def fits(self, num_devices: int) -> bool:
        """Whether these axes can be built from `num_devices`."""
        wanted = math.prod(size for size in self.axes.values() if size != -1)
        there = self.num_devices or num_devices
        return there <= num_devices and (there % wanted == 0 if self.needs_devices else there == wanted)

    def build(self, devices: Sequence[jax.Device]) -> Mesh:
        """The mesh over `devices`: axes laid on the torus where there is one, and slices outermost within the axes they
        split.
        """
        devices = list(devices)
        if self.num_devices is not None:
            if self.num_devices > len(devices):
                raise Mistake(f"mesh.num_devices: {self.num_devices} asked for, and there are {len(devices)}.")
            devices = devices[: self.num_devices]
        sizes = self.sizes(len(devices))
        slices = len({getattr(device, "slice_index", 0) for device in devices})
        if slices > 1 and not self.slices:
            raise Mistake(
                f"mesh.slices: the devices lie in {slices} slices. Say which axis crosses the slow network, as in {{'data': {slices}}}."
            )
        if math.prod(self.slices.values()) > 1:
            grid = _hybrid(sizes, self.slices, devices)
        else:
            grid = mesh_utils.create_device_mesh(tuple(sizes.values()), devices, allow_split_physical_axes=True)
        return Mesh(grid, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def _hybrid(sizes: dict[str, int], slices: dict[str, int], devices: list[jax.Device]) -> np.ndarray:
    """A grid in which only the axes in `slices` cross from one slice to another."""
    outer = [slices.get(name, 1) for name in sizes]
    inner = [size // count for size, count in zip(sizes.values(), outer, strict=True)]
    there = len({getattr(d, "slice_index", 0) for d in devices})
    # The hosts of a TPU slice are joined by the fast network; other hosts by the slow one.
    hosts = len({d.process_index for d in devices}) if there == 1 and devices[0].platform != "tpu" else 1
    if there > 1 or hosts > 1:
        if there * hosts != math.prod(outer):
            lie = f"{there}" if there > 1 else f"{hosts}, one a process"
            raise Mistake(f"mesh.slices: {slices} makes {math.prod(outer)} slices, and the devices lie in {lie}.")
        return mesh_utils.create_hybrid_device_mesh(
            inner, outer, devices, process_is_granule=hosts > 1, allow_split_physical_axes=True
        )
    # No slices of its own (simulated devices, or one slice): consecutive devices stand for a slice.
    grid = np.array(devices, dtype=object).reshape(*outer, *inner)
    order = [axis for i in range(len(sizes)) for axis in (i, i + len(sizes))]
    return grid.transpose(order).reshape(tuple(sizes.values()))


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
