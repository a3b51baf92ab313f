"""A layout: a mesh, and how a model and its parts are spread over it. It resolves each tensor to exactly one sharding, or
says what is wrong, and gives the verbs of `annotate` their meaning.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mistake import Mistake, nearest
from parallel import axes, spatial
from parallel.annotate import scan_layers
from parallel.apart import run_apart
from parallel.attention import attention
from parallel.convolution import convolution
from parallel.modes import Modes, PartModes, Parts
from parallel.parameters import Declared
from parallel.pipeline import Pipeline, pipelined
from parallel.remat import Remat
from parallel.rules import Rule, rule_for
from parallel.sums import Sums

Names = tuple[str | None, ...]
QUERY_AXES, KEY_AXES = ("batch", "length", "heads", "head_dim"), ("batch", "length", "kv_heads", "head_dim")


@dataclasses.dataclass(frozen=True)
class Resolved:
    """Where one tensor goes.

    rules: for each dimension the rule that decided, or None when the name has none. split: the mesh axes that each
      dimension is split over, () for none. ways: into how many pieces that is in all. shared: the rule by which ZeRO
      splits one dimension further, or None.
    """

    kind: str
    path: str
    shape: tuple[int, ...]
    names: Names
    dtype: np.dtype
    rules: tuple[Rule | None, ...]
    split: tuple[tuple[str, ...], ...]
    ways: int
    shared: Rule | None = None

    @property
    def by_rules(self) -> tuple[tuple[str, ...], ...]:
        """`split` without what ZeRO adds."""
        extra = () if self.shared is None else self.shared.mesh_axes
        return tuple(tuple(axis for axis in split if axis not in extra) for split in self.split)

    @property
    def spec(self) -> PartitionSpec:
        """The mesh axes of each dimension."""
        return PartitionSpec(*map(_entry, self.split))

    @property
    def fallbacks(self) -> tuple[Rule, ...]:
        """The rules, all marked '?', that do not divide a dimension, which is whole therefore."""
        pairs = zip(self.rules, self.split, strict=True)
        return tuple(rule for rule, split in pairs if rule and not set(rule.mesh_axes) <= set(split))

    @property
    def bytes(self) -> int:
        """Of the whole tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def bytes_per_device(self) -> int:
        """On each device: exact, since every sharded dimension is divided evenly."""
        return self.bytes // self.ways


class Layout:
    """A mesh and the modes of a model and its parts; it resolves, validates and explains, and while active (see
    annotate.activate) it gives the verbs their meaning.

    Args:
      sizes: size of each mesh axis.
      modes: of the whole model under '', and of named parts under the part's gin scope ('image', 'encoder/blocks').
      remat: what blocks keep for the backward pass.
      mesh: the devices; None for a layout that only resolves (explain), which then needs none.
      origin: (binding, key) -> 'file:line' of a rule, for messages.
    """

    def __init__(
        self,
        sizes: dict[str, int],
        modes: dict[str, Modes],
        remat: Remat | None = None,
        mesh: Mesh | None = None,
        origin: Callable[[str, str], str] = lambda binding, key: "",
    ):
        self.sizes, self.mesh, self.remat = dict(sizes), mesh, remat or Remat()
        self.parts = Parts(modes, self.sizes, origin)
        self._origin = origin
        self.fired: set[Rule] = set()
        self.shared: set[str] = set()
        self.met_axes: set[str] = set()
        self.activations: list[Resolved] | None = None

    # Resolving.

    def resolve(self, kind: str, path: str, shape: tuple[int, ...], names: Names, dtype) -> Resolved:
        """The one sharding of the tensor `path`. kind: 'weights', 'gradients', 'optimizer' or 'activations'. A name of
        None is replicated.

        Raises Mistake, naming tensor, dimension and rule, when a name is not in the catalogue, one mesh axis would split
        the tensor twice, or a size is not divided.
        """
        for name in filter(None, names):
            axes.require(name, _show(path, shape, names))
        part = self.parts.of(path)
        table, tensor = part.tables[kind], path.rpartition(".")[2]
        rules = tuple(rule_for(table, name, tensor) if name else None for name in names)
        used: dict[str, Rule] = {}
        splits: list[tuple[str, ...]] = []
        for name, size, rule in zip(names, shape, rules, strict=True):
            splits.append(())
            if rule is None:
                continue
            self.fired.add(rule)
            split = math.prod(self.sizes[axis] for axis in rule.mesh_axes)
            if size % split:
                if not rule.optional:
                    raise Mistake(self._indivisible(path, shape, names, name, size, split, rule))
                continue
            for axis in rule.mesh_axes:
                if axis in used:
                    raise Mistake(
                        f"{_show(path, shape, names)}: mesh axis {axis!r} would split it twice, by {used[axis]} and by {rule}. "
                        f"Put one of them on another axis, or replicate it: {rule.name!r}: None."
                    )
                used[axis] = rule
            splits[-1] = rule.mesh_axes
        shared = self._share_out(part, kind, shape, names, splits)
        self.met_axes.update(axis for split in splits for axis in split)
        ways = math.prod(self.sizes[axis] for split in splits for axis in split)
        return Resolved(kind, path, tuple(shape), tuple(names), np.dtype(dtype), rules, tuple(splits), ways, shared)

    def _share_out(self, part: PartModes, kind: str, shape, names: Names, splits: list[tuple[str, ...]]) -> Rule | None:
        """Splits one of `splits` further, in place, where ZeRO says so; the rule that says it."""
        if not part.zero.shares(kind):
            return None
        found = part.zero.dimension(tuple(shape), tuple(names), tuple(splits), self.sizes)
        if found is None:
            return None
        dim, more = found
        splits[dim] = (*splits[dim], *more)
        self.shared.add(part.name)
        scope = part.name.replace(".", "/")
        binding = f"{scope}/zero.stage" if scope else "zero.stage"
        return Rule(f"{binding} = {part.zero.stage}", names[dim] or "-", more, True, self._origin(binding, ""))

    def sharding(self, resolved: Resolved, memory_kind: str | None = None) -> NamedSharding:
        """The placement on this layout's devices."""
        assert self.mesh is not None, "this layout has no devices"
        return NamedSharding(self.mesh, resolved.spec, memory_kind=memory_kind)

    def replicated(self) -> NamedSharding:
        """The placement of what every device holds whole."""
        assert self.mesh is not None
        return NamedSharding(self.mesh, PartitionSpec())

    def check_used(self) -> None:
        """Raises Mistake for rules, mesh axes and parts that no tensor met. Call when every tensor was resolved."""
        faults = []
        for part in self.parts.unmet():
            faults.append(
                f"{part.replace('.', '/')}/rules: no parameter or activation is in a part {part!r} of the model."
            )
        names = {rule.key for rule in self.fired}
        written = {rule: None for part in self.parts for table in part.tables.values() for rule in table.values()}
        for rule in written:
            if rule not in self.fired and not rule.optional:
                where = f" ({rule.place})" if rule.place else ""
                faults.append(
                    f"{rule.binding}: no tensor it is for has a dimension {rule.key!r}{where}. {nearest(rule.key, names)} "
                    f"Drop it, or mark it as meant for other models too: '{rule.key}?'."
                )
        for part in self.parts:
            ways = math.prod(self.sizes[axis] for axis in part.zero.axes) if part.zero.stage else 1
            if ways > 1 and part.name not in self.shared and part.name not in self.parts.unmet():
                scope = f"{part.name.replace('.', '/')}/" if part.name else ""
                faults.append(
                    f"{scope}zero.stage: {part.zero.stage} shares nothing out over {part.zero.axes}: rules use these axes in every "
                    "tensor already. Take other zero.axes, or zero.stage = 0."
                )
        for axis, size in self.sizes.items():
            if axis not in self.met_axes:
                faults.append(
                    f"mesh.axes: nothing of this model is on axis {axis!r}, so its {size} devices would all do the same work. "
                    f"Name it in rules.weights or rules.activations, or leave it out."
                )
        if faults:
            raise Mistake("\n".join(fault.replace("  ", " ") for fault in faults))

    def _indivisible(self, path, shape, names, name, size, split, rule) -> str:
        over = ", ".join(f"{axis} ({self.sizes[axis]} devices)" for axis in rule.mesh_axes)
        below = size // split * split
        fits = ", ".join(str(n) for n in (below, below + split) if n)
        where = f" ({rule.place})" if rule.place else ""
        return (
            f"{_show(path, shape, names)}: {name!r} -> {over} does not divide {size}{where}.\n"
            f"Sizes that fit: {fits}. Or let it be replicated: {name!r}: None, or '{name}?': where it does not divide."
        )

    # The verbs.

    def constrain(self, x: jax.Array, names: Names, name: str, part: str) -> jax.Array:
        """annotate.shard under this layout."""
        resolved = self.resolve("activations", _path(part, name), x.shape, names, x.dtype)
        if self.activations is not None:
            self.activations.append(resolved)
        if self.mesh is None or self.activations is not None:
            return x
        return jax.lax.with_sharding_constraint(x, self.sharding(resolved))

    def use(self, weight: jax.Array, record: Declared, path: str) -> jax.Array:
        """`weight`, or one layer of it, as it is computed with: gathered where ZeRO shares it out; its gradient goes to
        where gradients go. record: of the whole parameter `path`, with its layers.
        """
        zero = self.parts.of(path).zero
        if self.mesh is None or not (zero.shares("weights") or zero.shares("gradients")):
            return weight
        stored = self.resolve("weights", path, record.shape, record.names, record.dtype)
        gradient = self.resolve("gradients", path, record.shape, record.names, record.dtype)
        skip = len(record.shape) - weight.ndim
        place = lambda split: NamedSharding(self.mesh, PartitionSpec(*map(_entry, split[skip:])))
        return _use(weight, place(stored.by_rules), place(gradient.split))

    def run_blocks(
        self, body: Callable, x: Any, per_example: Any, layers: Any, num_layers: int, part: str
    ) -> tuple[Any, Sums]:
        """annotate.run_blocks under this layout: a scan, so compile time does not grow with depth, or a pipeline."""
        body, pipeline = self.rematerialized(body, layers, part), self.pipeline_of(part)
        if pipeline.schedule is None:
            return scan_layers(body, x, per_example, layers)
        return pipelined(body, x, per_example, layers, pipeline, self.mesh, self.sizes, num_layers)

    def pipeline_of(self, part: str) -> Pipeline:
        """How the stack in `part` is pipelined."""
        return self.parts.of(_path(part, "")).pipeline

    def rematerialized(self, body: Callable, layers: Any, part: str) -> Callable:
        """`body`, which runs one of `layers`, keeping for the backward pass what remat.keep says."""
        shared = self.parts.of(_path(part, "")).zero.shares("weights")
        return self.remat.wrap(body, frozenset(leaf.shape[1:] for leaf in jax.tree.leaves(layers) if shared))

    def attend(self, q_BSNH: jax.Array, k_BTKH: jax.Array, v_BTKH: jax.Array, part: str, **options) -> jax.Array:
        """annotate.attend under this layout."""
        context = self.parts.of(_path(part, "")).context
        if context.algorithm is None:
            return attention(q_BSNH, k_BTKH, v_BTKH, **options)
        query = self.resolve("activations", _path(part, "query"), q_BSNH.shape, QUERY_AXES, q_BSNH.dtype)
        key = self.resolve("activations", _path(part, "key"), k_BTKH.shape, KEY_AXES, k_BTKH.dtype)
        return context.attend(self.mesh, self.sizes, query.split, key.split, q_BSNH, k_BTKH, v_BTKH, **options)

    def convolve(
        self, x_BHWC: jax.Array, kernel_HWIO: jax.Array, names: Names, name: str, part: str, **options
    ) -> jax.Array:
        """annotate.convolve under this layout."""
        resolved = self.resolve("activations", _path(part, f"{name}_input"), x_BHWC.shape, names, x_BHWC.dtype)
        if self.mesh is None or not any(resolved.split[1:3]):
            return convolution(x_BHWC, kernel_HWIO, **options)
        return spatial.convolve(self.mesh, resolved.split, x_BHWC, kernel_HWIO, **options)

    def apart(
        self,
        function: Callable,
        shared: Any,
        arrays: tuple,
        axis: str,
        name: str,
        part: str,
        *,
        what: str,
        whole: Names,
    ) -> Any:
        """annotate.apart under this layout."""
        modes = self.parts.of(_path(part, name))
        if modes.pipeline.schedule is not None:
            raise Mistake(f"{what} can't be in a pipeline. Take another, or leave pipeline.schedule out.")
        for rule in (rule for table in modes.tables.values() for rule in table.values()):
            if rule.name in whole and rule.mesh_axes:
                raise Mistake(
                    f"{what} can't be where {rule.name!r} is split, as it is by {rule}. Take another, or no such rule."
                )
        first = arrays[0]
        rest = (None,) * (first.ndim - 1)
        rows = self.resolve("activations", _path(part, name), first.shape, (axis, *rest), first.dtype)
        if self.mesh is None or not rows.split[0]:
            return function(shared, *arrays)
        return run_apart(self.mesh, rows.split[0], function, shared, arrays)

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[Resolved]]:
        """Within it `constrain` only lists what it meets."""
        assert self.activations is None
        self.activations = []
        try:
            yield self.activations
        finally:
            self.activations = None


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _use(weight: jax.Array, whole: NamedSharding, share: NamedSharding) -> jax.Array:
    return jax.lax.with_sharding_constraint(weight, whole)


def _use_backward(whole: NamedSharding, share: NamedSharding, _, gradient: jax.Array) -> tuple[jax.Array]:
    return (jax.lax.with_sharding_constraint(gradient, share),)


_use.defvjp(lambda weight, whole, share: (_use(weight, whole, share), None), _use_backward)


def _path(part: str, name: str) -> str:
    return f"{part}.{name}" if part else name


def _entry(mesh_axes: tuple[str, ...]):
    return None if not mesh_axes else mesh_axes[0] if len(mesh_axes) == 1 else mesh_axes


def _show(path: str, shape: tuple[int, ...], names: tuple[str | None, ...]) -> str:
    dims = ", ".join(f"{name or '-'}={size}" for name, size in zip(names, shape, strict=True))
    return f"{path} [{dims}]"
