"""The state of training: one pytree, all of it in every checkpoint."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from parallel.parameters import Declared, Params, initialize


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything that a step reads and writes.

    step: int32, steps done (skipped ones too); the data position and the random streams follow from it.
    params: float32, or bfloat16 beside a master copy in opt_state (training.precision). opt_state: optax's. ema: moving
      average of the float32 weights, or None.
    skipped: int32, steps whose gradients were not finite. halted: bool, set by the first such step when the policy is
      to stop;
    from then on steps change nothing, so the state stays that of the step at fault.
    """

    step: jax.Array
    params: Params
    opt_state: Any
    ema: Params | None
    skipped: jax.Array
    halted: jax.Array


def fresh_state(
    declared: dict[str, Declared], optimizer, seed: int, *, ema: bool, dtype: jnp.dtype = jnp.float32
) -> TrainState:
    """The state before the first step, its params in `dtype`. Traceable; `jax.eval_shape` of it allocates nothing."""
    params = initialize(declared, seed)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=jax.tree.map(lambda x: x.astype(dtype), params),
        opt_state=optimizer.init(params),
        ema=jax.tree.map(jnp.copy, params) if ema else None,
        skipped=jnp.zeros((), jnp.int32),
        halted=jnp.zeros((), bool),
    )
