"""ZeRO (Rajbhandari et al. 2020): optimizer state, gradients and weights shared out over the devices that share the batch."""

import dataclasses
import math

import gin

from mistake import Mistake, nearest

# From which stage on each kind of tensor is shared out.
_FROM_STAGE = {"optimizer": 1, "gradients": 2, "weights": 3}


@gin.configurable("zero")
@dataclasses.dataclass(frozen=True)
class Zero:
    """Which kinds of state are shared out, beyond what `rules` split already.

    Each tensor is split along one dimension that the devices divide: one that nothing splits yet sooner than one that is
    split already, any sooner than the last one, and a large one sooner than a small one; the dimension of stacked layers
    only as a last resort, since a scan takes one layer at a time. A tensor that has no such dimension stays whole, which --mode=explain lists.

    Args:
      stage: 0 shares nothing out, 1 the optimizer state, 2 gradients too, 3 weights too.
      axes: the mesh axes to share out over.
    """

    stage: int = 0
    axes: tuple[str, ...] = ("data",)

    def __post_init__(self):
        if self.stage not in (0, 1, 2, 3):
            raise Mistake(f"zero.stage: {self.stage} is not a stage. They are 0, 1, 2 and 3.")
        if isinstance(self.axes, str):
            raise Mistake(f"zero.axes: {self.axes!r} is one axis, not a tuple of them. Write ({self.axes!r},).")
        if len(set(self.axes)) != len(self.axes) or (self.stage and not self.axes):
            raise Mistake(f"zero.axes: {tuple(self.axes)} must be different mesh axes, one at least.")

    def check(self, sizes: dict[str, int]) -> None:
        """Raises Mistake for an axis that the mesh, of `sizes`, doesn't have."""
        for axis in self.axes if self.stage else ():
            if axis not in sizes:
                raise Mistake(
                    f"zero.axes: {axis!r} is not a mesh axis. {nearest(axis, sizes)} mesh.axes has: {', '.join(sizes)}."
                )

    def shares(self, kind: str) -> bool:
        """Whether tensors of `kind` ('weights', 'gradients', 'optimizer') are shared out."""
        return kind in _FROM_STAGE and self.stage >= _FROM_STAGE[kind]

    def dimension(
        self,
        shape: tuple[int, ...],
        names: tuple[str | None, ...],
        splits: tuple[tuple[str, ...], ...],
        sizes: dict[str, int],
    ) -> tuple[int, tuple[str, ...]] | None:
        """(dimension, mesh axes to split it over in addition), or None where every one is indivisible.

        splits: the mesh axes that each dimension is split over already. An axis in use there is not used again.
        """
        taken = {axis for split in splits for axis in split}
        free = tuple(axis for axis in self.axes if axis not in taken)
        ways = math.prod(sizes[axis] for axis in free)
        if not free or ways == 1:
            return None
        pieces = [size // math.prod(sizes[a] for a in split) for size, split in zip(shape, splits, strict=True)]
        fits = [dim for dim, piece in enumerate(pieces) if piece and piece % ways == 0]
        if not fits:
            return None
        last = len(shape) - 1
        # Along the last of three dimensions the TPU compiler leaves an all-reduce where a reduce-scatter would do.
        prefer = lambda dim: (names[dim] != "layers", not splits[dim], dim < last, pieces[dim], -dim)
        return max(fits, key=prefer), free
