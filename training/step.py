"""One training step, as a pure function of state and batch: gradients summed over microbatches, divided once, clipped,
applied.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from parallel.parameters import Params
from parallel.randomness import Randomness
from training.metrics import Sums, add
from training.optimizers import clip_by_global_norm, ema_update
from training.state import TrainState

Batch = dict[str, jax.Array]
Losses = Callable[[Params, Batch, Randomness | None], Sums]


def gradients(
    losses: Losses, params: Params, batch: Batch, randomness: Randomness | None, accumulation: int
) -> tuple[Params, Sums]:
    """Gradient of the weighted mean loss over the whole batch, float32, and the sums of all metrics.

    With accumulation A the batch [B, ...] runs as A microbatches of B/A in a scan. Gradients of loss *sums* are added
    and divided
    by the sum of all weights at the end, so they equal those of the big batch however the weights lie.
    """

    def loss_sum(params, batch, randomness):
        sums = losses(params, batch, randomness)
        return sums["loss"][0], sums

    def one(batch, randomness):
        (_, sums), grads = jax.value_and_grad(loss_sum, has_aux=True)(params, batch, randomness)
        return grads, sums

    if accumulation == 1:
        grads, sums = one(batch, randomness)
    else:
        micro = _microbatches((batch, randomness), accumulation)
        shapes = jax.eval_shape(lambda m: one(*jax.tree.map(lambda x: x[0], m)), micro)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

        def accumulate(total, m):
            grads, sums = one(*m)
            return (jax.tree.map(jnp.add, total[0], grads), add(total[1], sums)), None

        (grads, sums), _ = jax.lax.scan(accumulate, zeros, micro)
    weight = sums["loss"][1]
    # A batch of padding alone has no weight: its gradients are zero, not 0/0.
    grads = jax.tree.map(lambda g: g / jnp.maximum(weight, 1e-20), grads)
    return grads, sums


def _microbatches(tree, accumulation: int):
    """Leaves [B, ...] -> [A, B/A, ...], example b in microbatch b mod A.

    The dimension indexed by the loop must not be the one that devices share: [B/A, A] keeps the split of B on B/A.
    Scalars (the random key) go to every microbatch.
    """

    def split(x):
        if x.ndim == 0:
            return jnp.broadcast_to(x, (accumulation,))
        return jnp.swapaxes(x.reshape(x.shape[0] // accumulation, accumulation, *x.shape[1:]), 0, 1)

    return jax.tree.map(split, tree)


def make_step(
    losses: Losses,
    optimizer: optax.GradientTransformation,
    *,
    seed: int,
    accumulation: int,
    clip_norm: float | None,
    ema_decay: float | None,
    non_finite: Literal["stop", "skip"],
    rate: Callable[[jax.Array], jax.Array],
) -> Callable[[TrainState, Batch], tuple[TrainState, Sums, Params]]:
    """A function (state, batch) -> (state, sums, gradients before clipping).

    sums holds the objective's pairs, 'gradient_norm', 'learning_rate' and 'finite'. Who does not return the gradients
    from a
    compiled function does not pay for them.
    """

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, Sums, Params]:
        num_examples = jax.tree.leaves(batch)[0].shape[0]
        randomness = Randomness.for_step(seed, state.step, num_examples)
        unclipped, sums = gradients(losses, state.params, batch, randomness, accumulation)
        grads, norm = clip_by_global_norm(unclipped, clip_norm)
        finite = jnp.isfinite(sums["loss"][0]) & jnp.isfinite(norm)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        ema = None if ema_decay is None else ema_update(state.ema, params, ema_decay, state.step - state.skipped)

        use = finite & ~state.halted
        kept = lambda new, old: jax.tree.map(lambda n, o: jnp.where(use, n, o), new, old)
        halted = state.halted | ~finite if non_finite == "stop" else state.halted
        new_state = TrainState(
            step=jnp.where(halted, state.step, state.step + 1),
            params=kept(params, state.params),
            opt_state=kept(opt_state, state.opt_state),
            ema=kept(ema, state.ema),
            skipped=state.skipped + (~finite & ~state.halted).astype(jnp.int32),
            halted=halted,
        )
        one = jnp.ones((), jnp.float32)
        own = {
            "gradient_norm": (norm, one),
            "learning_rate": (jnp.asarray(rate(state.opt_state["rate"].count), jnp.float32), one),
        }
        return new_state, sums | own | {"finite": (finite.astype(jnp.float32), one)}, unclipped

    return step
