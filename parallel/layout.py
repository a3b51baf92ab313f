"""A layout: a mesh, rules, and how blocks are run. It resolves each tensor to exactly one sharding, or says what is
wrong.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mistake import Mistake, nearest
from parallel import axes
from parallel.attention import attention
from parallel.remat import Remat
from parallel.rules import Rule, Rules


@dataclasses.dataclass(frozen=True)
class Resolved:
    """Where one tensor goes.

    rules: for each dimension the rule that decided, or None when the name has none. split: the mesh axes that each
      dimension is
    split over, () for none. ways: into how many pieces that is in all.
    """

    kind: str
    path: str
    shape: tuple[int, ...]
    names: tuple[str | None, ...]
    dtype: np.dtype
    rules: tuple[Rule | None, ...]
    split: tuple[tuple[str, ...], ...]
    ways: int

    @property
    def spec(self) -> PartitionSpec:
        """The mesh axes of each dimension."""
        return PartitionSpec(*map(_entry, self.split))

    @property
    def fallbacks(self) -> tuple[Rule, ...]:
        """The rules, all marked '?', that do not divide a dimension, which is whole therefore."""
        return tuple(
            rule for rule, split in zip(self.rules, self.split, strict=True) if rule and rule.mesh_axes != split
        )

    @property
    def bytes(self) -> int:
        """Of the whole tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def bytes_per_device(self) -> int:
        """On each device: exact, since every sharded dimension is divided evenly."""
        return self.bytes // self.ways


class Layout:
    """A mesh and rules that resolve, validate and explain; while active (see annotate.activate) it gives the four verbs
    their meaning.

    Args:
      sizes: size of each mesh axis.
      rules: of the whole model under '', and of named parts under the part's gin scope ('image', 'encoder/blocks').
      remat: what blocks keep for the backward pass.
      mesh: the devices; None for a layout that only resolves (explain), which then needs none.
      origin: (binding, key) -> 'file:line' of a rule, for messages.
    """

    def __init__(
        self,
        sizes: dict[str, int],
        rules: dict[str, Rules],
        remat: Remat | None = None,
        mesh: Mesh | None = None,
        origin: Callable[[str, str], str] = lambda binding, key: "",
    ):
        self.sizes, self.mesh, self.remat = dict(sizes), mesh, remat or Remat()
        self.parts: dict[str, dict[str, dict[str, Rule]]] = {}
        whole = rules[""].compile(self.sizes, origin)
        for scope, own in rules.items():
            tables = own.compile(self.sizes, origin, scope)
            # What a part does not say itself it takes from the whole model: the same rules, at the same place.
            tables |= {kind: whole[kind] for kind, table in own.tables.items() if table == rules[""].tables[kind]}
            self.parts[scope.replace("/", ".")] = tables | {"optimizer": tables["weights"] | tables["optimizer"]}
        self.fired: set[Rule] = set()
        self.met_axes: set[str] = set()
        self.met_parts: set[str] = set()
        self.activations: list[Resolved] | None = None

    # Resolving.

    def resolve(self, kind: str, path: str, shape: tuple[int, ...], names: tuple[str | None, ...], dtype) -> Resolved:
        """The one sharding of the tensor `path`. kind: 'weights', 'activations' or 'optimizer'. A name of None is
        replicated.

        Raises Mistake, naming tensor, dimension and rule, when a name is not in the catalogue, one mesh axis would
        split the tensor
        twice, or a size is not divided.
        """
        for name in filter(None, names):
            axes.require(name, _show(path, shape, names))
        table = self._table(kind, path)
        rules = tuple(table.get(name) if name else None for name in names)
        used: dict[str, Rule] = {}
        splits, ways = [], 1
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
            self.met_axes.update(rule.mesh_axes)
            splits[-1] = rule.mesh_axes
            ways *= split
        return Resolved(kind, path, tuple(shape), tuple(names), np.dtype(dtype), rules, tuple(splits), ways)

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
        for part in self.parts:
            if part and part not in self.met_parts:
                faults.append(
                    f"{part.replace('.', '/')}/rules: no parameter or activation is in a part {part!r} of the model."
                )
        names = {rule.name for rule in self.fired}
        written = {rule: None for kinds in self.parts.values() for table in kinds.values() for rule in table.values()}
        for rule in written:
            if rule not in self.fired and not rule.optional:
                where = f" ({rule.place})" if rule.place else ""
                faults.append(
                    f"{rule.binding}: no tensor it is for has a dimension {rule.name!r}{where}. {nearest(rule.name, names)} "
                    f"Drop it, or mark it as meant for other models too: '{rule.name}?'."
                )
        for axis, size in self.sizes.items():
            if axis not in self.met_axes:
                faults.append(
                    f"mesh.axes: nothing of this model is on axis {axis!r}, so its {size} devices would all do the same work. "
                    f"Name it in rules.weights or rules.activations, or leave it out."
                )
        if faults:
            raise Mistake("\n".join(fault.replace("  ", " ") for fault in faults))

    def _table(self, kind: str, path: str) -> dict[str, Rule]:
        """The rules for `path`: those of the deepest part that it lies in, the longer one of two that end at the same
        depth.
        """
        path = path.rpartition(":")[2]  # An optimizer slot's path ends in its parameter's.
        inside = [part for part in self.parts if part and f".{part}." in f".{path}."]
        self.met_parts.update(inside)
        return self.parts[
            max(inside, key=lambda part: (f".{path}.".rindex(f".{part}.") + len(part), len(part)), default="")
        ][kind]

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

    def constrain(self, x: jax.Array, names: tuple[str, ...], name: str, part: str) -> jax.Array:
        """annotate.shard under this layout."""
        path = f"{part}.{name}" if part else name
        resolved = self.resolve("activations", path, x.shape, names, x.dtype)
        if self.activations is not None:
            self.activations.append(resolved)
            return x
        return jax.lax.with_sharding_constraint(x, self.sharding(resolved))

    def run_blocks(self, body: Callable, x: jax.Array, layers, num_layers: int) -> jax.Array:
        """annotate.run_blocks under this layout: a scan, so compile time does not grow with depth."""
        body = self.remat.wrap(body)
        return jax.lax.scan(lambda x, layer: (body(x, layer), None), x, layers)[0]

    def attend(self, q_BSNH: jax.Array, k_BTKH: jax.Array, v_BTKH: jax.Array, **options) -> jax.Array:
        """annotate.attend under this layout."""
        return attention(q_BSNH, k_BTKH, v_BTKH, **options)

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[Resolved]]:
        """Within it `constrain` only lists what it meets."""
        assert self.activations is None
        self.activations = []
        try:
            yield self.activations
        finally:
            self.activations = None


def _entry(mesh_axes: tuple[str, ...]):
    return None if not mesh_axes else mesh_axes[0] if len(mesh_axes) == 1 else mesh_axes


def _show(path: str, shape: tuple[int, ...], names: tuple[str | None, ...]) -> str:
    dims = ", ".join(f"{name or '-'}={size}" for name, size in zip(names, shape, strict=True))
    return f"{path} [{dims}]"
