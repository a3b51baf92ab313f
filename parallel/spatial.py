"""Convolution over images whose rows and columns devices share: each gets the edges it needs from its neighbours.

With input n and output m = n / stride of a dimension on each device, low padding p, kernel k and dilation a, a device needs
p inputs before its own and a (k - 1) + 1 - stride - p after: the same on every device. They travel as permutations, rows
first and columns after, so that corners come along; where the edge is wider than a neighbour's share, from further
neighbours too. Beyond the outermost devices there is nothing, and zeros come from there, which is the padding.
"""

import jax
from jax.sharding import Mesh, PartitionSpec

from mistake import Mistake
from parallel.convolution import convolution

Axes = tuple[str, ...]


def convolve(
    mesh: Mesh,
    split: tuple[Axes, ...],
    x_BHWC: jax.Array,
    kernel_HWIO: jax.Array,
    *,
    strides: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding="SAME",
    groups: int = 1,
) -> jax.Array:
    """parallel.convolution.convolution of images split over `mesh`; split: the mesh axes of each dimension of x.

    Channels are whole within. Raises Mistake where the sizes make devices' shares unequal.
    """
    spans = tuple(a * (k - 1) + 1 for a, k in zip(dilation, kernel_HWIO.shape, strict=False))
    pads = padding
    if isinstance(padding, str):
        pads = jax.lax.padtype_to_pads(x_BHWC.shape[1:3], spans, strides, padding)
    pads = [tuple(pad) for pad in pads]
    edges = []
    for dim in (0, 1):
        ways = 1
        for axis in split[1 + dim]:
            ways *= mesh.shape[axis]
        if ways == 1:
            edges.append(None)
            continue
        low, high = pads[dim]
        _check(("height", "width")[dim], x_BHWC.shape[1 + dim], ways, spans[dim], strides[dim], low, high)
        edges.append((split[1 + dim], ways, low, spans[dim] - strides[dim] - low))

    def local(x, kernel):
        own = list(pads)
        for dim, edge in enumerate(edges):
            if edge is not None:
                x, own[dim] = _with_edges(x, 1 + dim, *edge), (0, 0)
        return convolution(x, kernel, strides=strides, dilation=dilation, padding=own, groups=groups)

    spec = PartitionSpec(*(axes if axes else None for axes in split[:3]), None)
    run = jax.shard_map(local, mesh=mesh, in_specs=(spec, PartitionSpec()), out_specs=spec, check_vma=False)
    return run(x_BHWC, kernel_HWIO)


def _check(name: str, size: int, ways: int, span: int, stride: int, low: int, high: int) -> None:
    share = size // ways
    out = (size + low + high - span) // stride + 1
    if share % stride:
        unit = ways * stride
        raise Mistake(
            f"rules.activations: {name!r} of {size} over {ways} devices gives each {share}, which a stride of {stride} does not "
            f"divide. Sizes that fit: {size // unit * unit or unit}, {(size // unit + 1) * unit}."
        )
    if out != size // stride:
        raise Mistake(
            f"rules.activations: a convolution of {name!r} {size} gives {out}, and devices' shares are equal only where it gives "
            f"{size // stride}: with padding that keeps the size ('SAME'), or none where kernel and stride are equal."
        )


def _with_edges(x: jax.Array, dim: int, axes: Axes, ways: int, before: int, after: int) -> jax.Array:
    """x with `before` more of dimension `dim` from the devices before this one, and `after` from those that follow; fewer
    of its own where these are negative.
    """
    size = x.shape[dim]
    pieces = [jax.lax.slice_in_dim(x, max(-before, 0), size - max(-after, 0), axis=dim)]
    for hop in range(1, -(-max(before, 0) // size) + 1):
        wanted = min(size, before - (hop - 1) * size)
        edge = jax.lax.slice_in_dim(x, size - wanted, size, axis=dim)
        pieces.insert(0, jax.lax.ppermute(edge, axes, [(i, i + hop) for i in range(ways - hop)]))
    for hop in range(1, -(-max(after, 0) // size) + 1):
        wanted = min(size, after - (hop - 1) * size)
        edge = jax.lax.slice_in_dim(x, 0, wanted, axis=dim)
        pieces.append(jax.lax.ppermute(edge, axes, [(i, i - hop) for i in range(hop, ways)]))
    return jax.lax.concatenate(pieces, dim)
