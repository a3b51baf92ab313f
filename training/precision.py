"""What precision weights are held in: float32, or bfloat16 beside a float32 master copy among the optimizer's slots."""

import dataclasses
from typing import Literal, NamedTuple

import gin
import jax
import jax.numpy as jnp
import optax

from mistake import Mistake
from parallel.parameters import Params


@gin.configurable("precision")
@dataclasses.dataclass(frozen=True)
class Precision:
    """Precision of what a run holds. That of the computation is the model's `dtype`.

    Args:
      weights: 'float32', or 'bfloat16': each device then holds, sends and gathers two bytes a weight, and updates are made
        on a float32 master copy, which is optimizer state: rules.optimizer and every ZeRO stage share it out.
    """

    weights: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self):
        if self.weights not in ("float32", "bfloat16"):
            raise Mistake(f"precision.weights: {self.weights!r} is neither 'float32' nor 'bfloat16'.")

    @property
    def dtype(self) -> jnp.dtype:
        """Of the weights."""
        return jnp.dtype(self.weights)


class MasterState(NamedTuple):
    """The float32 weights, of which those that a run computes with are roundings."""

    weights: Params


def with_master(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """`optimizer`, working on a float32 copy that it keeps as the slot 'master' of its state, a dict by link."""

    def init(params: Params):
        # A copy of its own: the step gives up each buffer once.
        return optimizer.init(params) | {"master": MasterState(jax.tree.map(jnp.copy, params))}

    def update(updates, state, params=None):
        own = {name: link for name, link in state.items() if name != "master"}
        updates, own = optimizer.update(updates, own, state["master"].weights)
        return updates, own | {"master": state["master"]}

    return optax.GradientTransformation(init, update)


def exact(params: Params, opt_state) -> Params:
    """The float32 weights: the master copy where there is one."""
    return opt_state["master"].weights if "master" in opt_state else params


def updated(params: Params, opt_state, updates: Params) -> tuple[Params, dict]:
    """(weights, optimizer state) after `updates`, made on the master copy and rounded where there is one."""
    if "master" not in opt_state:
        return optax.apply_updates(params, updates), opt_state
    master = optax.apply_updates(opt_state["master"].weights, updates)
    rounded = {path: value.astype(params[path].dtype) for path, value in master.items()}
    return rounded, opt_state | {"master": MasterState(master)}


def replaced(params: Params, opt_state, values: Params) -> tuple[Params, dict]:
    """(weights, optimizer state) with the float32 `values` in place of some weights."""
    rounded = params | {path: value.astype(params[path].dtype) for path, value in values.items()}
    if "master" not in opt_state:
        return rounded, opt_state
    return rounded, opt_state | {"master": MasterState(opt_state["master"].weights | values)}
