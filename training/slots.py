"""What an optimizer keeps: layer by layer where it works tensor by tensor, under the parameters' logical names.

The state is that of an `optax.named_chain`: a dict from a link's name ('adam', 'trust', 'rate') to that link's
NamedTuple, in which a dict from parameter path to array is a slot of every parameter, and a bare array is a count.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import optax
from jax.tree_util import DictKey, GetAttrKey, KeyPath, SequenceKey

if TYPE_CHECKING:
    from parallel.parameters import Declared

    Declarations = dict[str, Declared]

Names = tuple[str | None, ...]


class LayerwiseState(NamedTuple):
    """State for the parameters without layers, and, with a leading 'layers', for the stacks by number of layers."""

    single: optax.OptState
    stacked: dict[str, optax.OptState]


def layerwise(transform: optax.GradientTransformation, declared: "Declarations") -> optax.GradientTransformation:
    """`transform`, seeing each layer of a stacked parameter as a tensor of its own, as if it had never been stacked.

    It is mapped over the leading 'layers' dimension of updates, state and parameters. For whatever takes a norm, a mean
    or factors of a whole tensor: trust ratios, RMS clipping, Adafactor's statistics. Parameters that are not among
    `declared` pass unchanged and take no state.
    """
    single_paths = [path for path, record in declared.items() if record.names[:1] != ("layers",)]
    stacks: dict[str, list[str]] = {}
    for path, record in declared.items():
        if record.names[:1] == ("layers",):
            stacks.setdefault(str(record.shape[0]), []).append(path)

    def single(tree: dict[str, Any]) -> dict[str, Any]:
        return {path: tree[path] for path in single_paths}

    def stack(tree: dict[str, Any], num_layers: str) -> dict[str, Any]:
        return {path: tree[path] for path in stacks[num_layers]}

    def init(params: optax.Params) -> LayerwiseState:
        return LayerwiseState(
            single=transform.init(single(params)),
            stacked={n: jax.vmap(transform.init)(stack(params, n)) for n in stacks},
        )

    def update(
        updates: optax.Updates, state: LayerwiseState, params: optax.Params
    ) -> tuple[optax.Updates, LayerwiseState]:
        new, single_state = transform.update(single(updates), state.single, single(params))
        updates_of, state_of = updates | new, {}
        for n in stacks:
            new, state_of[n] = jax.vmap(transform.update)(stack(updates, n), state.stacked[n], stack(params, n))
            updates_of |= new
        return updates_of, LayerwiseState(single_state, state_of)

    return optax.GradientTransformation(init, update)


def slot_names(opt_state: optax.OptState, declared: "Declarations") -> Any:
    """The logical name of every dimension in `opt_state`, concrete or abstract: what `rules.optimizer` shards it by.

    Returns the same tree with a tuple of names in place of each array; map with the state first:
    `jax.tree.map(f, opt_state, names)`. A slot shaped like its parameter has the parameter's names; a factored one
    those of the dimensions that are left; the placeholders, of one element, that Adafactor keeps for what it does not
    need have (None,) or ('layers', None); counts have () or ('layers',).
    """
    return jax.tree_util.tree_map_with_path(lambda keypath, slot: _names(keypath, slot.shape, declared), opt_state)


def slot_path(keypath: KeyPath) -> str:
    """A readable name for an array of the state: 'adam.mu:encoder.blocks.mlp.up.kernel', 'rate.count'."""
    *place, last = map(_text, keypath)
    return f"{'.'.join(place)}:{last}" if isinstance(keypath[-1], DictKey) else ".".join([*place, last])


def _names(keypath: KeyPath, shape: tuple[int, ...], declared: "Declarations") -> Names:
    stacked = GetAttrKey("stacked") in keypath
    layers: Names = ("layers",) if stacked else ()
    if not isinstance(keypath[-1], DictKey):
        assert len(shape) == len(layers), f"{slot_path(keypath)} {list(shape)}: neither a count nor a parameter's slot."
        return layers
    record = declared.get(keypath[-1].key)
    assert record is not None, f"{slot_path(keypath)}: no such parameter."
    if shape == record.shape:
        return record.names
    skip = len(layers)
    of_layer, sizes, names = shape[skip:], record.shape[skip:], record.names[skip:]
    left = _left_after_factoring(_text(keypath[-2]), sizes)
    if left is not None and of_layer == tuple(sizes[dim] for dim in left):
        return layers + tuple(names[dim] for dim in left)
    assert of_layer == (1,), f"{slot_path(keypath)} {list(shape)}: no names follow from {record.names} {record.shape}."
    return (*layers, None)


def _left_after_factoring(slot: str, shape: tuple[int, ...]) -> list[int] | None:
    """The dimensions of `shape` that a factored slot keeps, or None when `slot` is not one.

    Of the two largest dimensions `optax.scale_by_factored_rms` averages v_row over the largest and v_col over the
    second. The sort has to be optax's own, for the sake of equal sizes, of which the last counts as the largest.
    """
    if slot not in ("v_row", "v_col") or len(shape) < 2:
        return None
    second, largest = np.argsort(shape)[-2:]
    gone = largest if slot == "v_row" else second
    return [dim for dim in range(len(shape)) if dim != gone]


def _text(key: DictKey | GetAttrKey | SequenceKey) -> str:
    return str(key.name if isinstance(key, GetAttrKey) else key.key if isinstance(key, DictKey) else key.idx)
