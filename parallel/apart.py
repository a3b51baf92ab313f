"""Rows that know nothing of each other, each device its own: what no partitioner sees of a sort over all rows."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec


def run_apart(
    mesh: Mesh, mesh_axes: tuple[str, ...], function: Callable, shared: Any, arrays: tuple[jax.Array, ...]
) -> Any:
    """function(shared, *arrays) with the rows of `arrays`, and of what it gives, cut over `mesh_axes`. All else
    stays the partitioner's: `shared` is whole over these axes, and the other axes of the mesh split what they split.
    """
    rows = PartitionSpec(mesh_axes)
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(PartitionSpec(), *(rows for _ in arrays)),
        out_specs=rows,
        axis_names=set(mesh_axes),
        check_vma=False,
    )(shared, *arrays)
