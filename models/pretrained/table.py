"""A two-way table between our parameters and another library's tensors: one row serves import and export.

Ours are stacked over layers, and kernels are [inputs, outputs] with heads apart; theirs are one tensor a layer, laid
out as torch has them. A row's form moves numbers and never computes with them, so a round trip is equal to the bit.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import numpy as np
from flax import nnx

Shape = tuple[int, ...]
Settings = dict[str, object]


class Form(Protocol):
    """How one array is laid out in the other library; `ours` undoes `theirs`, given the shape that ours has."""

    def theirs(self, ours: np.ndarray) -> np.ndarray: ...

    def ours(self, theirs: np.ndarray, shape: Shape) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class Kernel:
    """Ours [*inputs, *outputs], for y = x @ kernel; theirs torch.nn.Linear's [outputs, inputs], heads merged.

    Args:
      inputs: how many leading dimensions of ours are inputs: 2 where heads and their dimension go in.
    """

    inputs: int = 1

    def theirs(self, ours: np.ndarray) -> np.ndarray:
        return ours.reshape(math.prod(ours.shape[: self.inputs]), -1).T

    def ours(self, theirs: np.ndarray, shape: Shape) -> np.ndarray:
        return theirs.T.reshape(shape)


@dataclasses.dataclass(frozen=True)
class Vector:
    """Ours of any shape (a bias [heads, head_dim]); theirs flat."""

    def theirs(self, ours: np.ndarray) -> np.ndarray:
        return ours.reshape(-1)

    def ours(self, theirs: np.ndarray, shape: Shape) -> np.ndarray:
        return theirs.reshape(shape)


@dataclasses.dataclass(frozen=True)
class Same:
    """An embedding table [rows, width], the same in both."""

    def theirs(self, ours: np.ndarray) -> np.ndarray:
        return ours

    def ours(self, theirs: np.ndarray, shape: Shape) -> np.ndarray:
        return theirs.reshape(shape)


@dataclasses.dataclass(frozen=True)
class Row:
    """Our path, their name, and the form. '{layer}' in their name says that ours is stacked over layers."""

    ours: str
    theirs: str
    form: Form

    def tensors(self, ours: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Their tensors of our parameter, by their names."""
        if "{layer}" not in self.theirs:
            yield self.theirs, self.form.theirs(ours)
            return
        for layer, each in enumerate(ours):
            yield self.theirs.format(layer=layer), self.form.theirs(each)

    def parameter(self, tensors: Mapping[str, np.ndarray], shape: Shape) -> np.ndarray:
        """Our parameter, of `shape`, from their tensors, which must be there in the right shapes."""
        if "{layer}" not in self.theirs:
            return np.ascontiguousarray(self.form.ours(tensors[self.theirs], shape))
        layers = (tensors[self.theirs.format(layer=layer)] for layer in range(shape[0]))
        # NumPy would stack transposed views in their own order of memory, and safetensors writes memory as it lies.
        return np.ascontiguousarray(np.stack([self.form.ours(each, shape[1:]) for each in layers]))


@dataclasses.dataclass(frozen=True)
class Family:
    """All that is known of one family of checkpoints.

    Args:
      name: as in config.json's model_type.
      rows: the table of the encoder.
      head_rows: the rows that each head adds; None is no head.
      ignored: their tensors that ours have no use for, with the reason.
      tied: their tensors that must equal another one of theirs, which is kept.
      canonical: their name of a tensor, freed of a prefix or an older spelling.
      settings: (config.json, canonical names) -> gin bindings that build the model.
      shapes: (settings, head, number of classes) -> the shape of each of our parameters.
      head: (config.json, shapes by canonical name) -> (which head theirs has, or None; its number of classes, or 0).
      own_head: shapes of our parameters -> the same of our checkpoint.
      objective_head: an objective of ours -> the head that it has, or None.
      config: (settings, head, number of classes) -> config.json.
      prefixed: (their canonical name, head) -> the name to export.
    """

    name: str
    rows: tuple[Row, ...]
    head_rows: Mapping[str | None, tuple[Row, ...]]
    ignored: Mapping[str, str]
    tied: Mapping[str, str]
    canonical: Callable[[str], str]
    settings: Callable[[dict, Iterable[str]], Settings]
    shapes: Callable[[Settings, str | None, int], dict[str, Shape]]
    head: Callable[[dict, Mapping[str, Shape]], tuple[str | None, int]]
    own_head: Callable[[Mapping[str, Shape]], tuple[str | None, int]]
    objective_head: Callable[[nnx.Module], str | None]
    config: Callable[[Settings, str | None, int], dict]
    prefixed: Callable[[str, str | None], str]


def their_shapes(rows: Iterable[Row], shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes of their tensors for our parameters of `shapes`. Takes no memory: the rows move views of one zero."""
    zero = np.zeros((), np.float32)
    found = {row.ours: row for row in rows}
    pairs = (pair for path, shape in shapes.items() for pair in found[path].tensors(np.broadcast_to(zero, shape)))
    return {name: tensor.shape for name, tensor in pairs}


def to_theirs(rows: Iterable[Row], params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Their tensors, by canonical name, of our parameters."""
    present = [row for row in rows if row.ours in params]
    return {name: np.ascontiguousarray(x) for row in present for name, x in row.tensors(params[row.ours])}


def to_ours(
    rows: Iterable[Row], tensors: Mapping[str, np.ndarray], shapes: Mapping[str, Shape]
) -> dict[str, np.ndarray]:
    """Our parameters of `shapes` from their tensors; `problems` must have found none."""
    return {row.ours: row.parameter(tensors, shapes[row.ours]) for row in rows if row.ours in shapes}


def problems(found: Mapping[str, Shape], wanted: Mapping[str, Shape]) -> list[str]:
    """One line for each kind of difference between the shapes found and wanted; none when they agree."""
    lines = []
    if missing := sorted(wanted.keys() - found.keys()):
        lines.append(f"missing: {', '.join(missing)}")
    if unused := sorted(found.keys() - wanted.keys()):
        lines.append(f"unused: {', '.join(unused)}")
    shared = sorted(found.keys() & wanted.keys())
    differ = [f"{n} is {list(found[n])}, not {list(wanted[n])}" for n in shared if tuple(found[n]) != tuple(wanted[n])]
    if differ:
        lines.append(f"mis-shaped: {'; '.join(differ)}")
    return lines
