"""One training step, as a pure function of state and batch: gradients added over microbatches, clipped, applied."""

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from parallel.parameters import Params
from parallel.randomness import Randomness
from parallel.sums import Sums, add
from training.optimizers import clip_by_global_norm, ema_update
from training.precision import exact, updated
from training.state import TrainState

Batch = dict[str, jax.Array]
Losses = Callable[[Params, Batch, Randomness | None], Sums]
Seeds = dict[str, jax.Array]
# (params, batch, randomness, seeds) -> (gradients of the seeded sums, float32, and all sums), of one microbatch.
Differentiated = Callable[[Params, Batch, Randomness | None, Seeds], tuple[Params, Sums]]


def seeds(minimized: dict[str, float], weights: dict[str, jax.Array]) -> Seeds:
    """coefficient / weight of each sum that is minimized. weights: of the global batch.

    Known before the first microbatch runs, so gradients of losses with different weights share one accumulator. A batch of
    padding alone has no weight: its gradients are zero, not 0/0.
    """
    assert minimized.keys() == weights.keys(), (minimized, weights)
    return {name: coefficient / jnp.maximum(weights[name], 1e-20) for name, coefficient in minimized.items()}


def differentiate(losses: Losses) -> Differentiated:
    """The gradient of sum_k seed_k * sum_k by reverse mode."""

    def differentiated(params, batch, randomness, seeds):
        def minimized(params):
            sums = losses(params, batch, randomness)
            return sum(seed * sums[name][0] for name, seed in seeds.items()), sums

        (_, sums), grads = jax.value_and_grad(minimized, has_aux=True)(params)
        return jax.tree.map(lambda g: g.astype(jnp.float32), grads), sums

    return differentiated


def gradients(
    differentiated: Differentiated,
    params: Params,
    batch: Batch,
    randomness: Randomness | None,
    seeds: Seeds,
    accumulation: int,
    constrain: Callable[[Params], Params] = lambda grads: grads,
) -> tuple[Params, Sums]:
    """Gradient of what is minimized over the whole batch, float32, and the sums of all metrics.

    With accumulation A the batch [B, ...] runs as A microbatches of B/A in a scan. The seeds hold the weights of the whole
    batch, so the sum of the microbatches' gradients is that of the big batch however the weights lie. `constrain` places
    gradients, and the accumulator, on the mesh.
    """

    def one(batch, randomness):
        grads, sums = differentiated(params, batch, randomness, seeds)
        return constrain(grads), sums

    if accumulation == 1:
        return one(batch, randomness)
    micro = _microbatches((batch, randomness), accumulation)
    shapes = jax.eval_shape(lambda m: one(*jax.tree.map(lambda x: x[0], m)), micro)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def accumulate(total, m):
        grads, sums = one(*m)
        return (constrain(jax.tree.map(jnp.add, total[0], grads)), add(total[1], sums)), None

    return jax.lax.scan(accumulate, (constrain(zeros[0]), zeros[1]), micro)[0]


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the mesh holds gradients, and the updates that an optimizer makes of them; the identity on one device."""

    gradients: Callable[[Params], Params] = lambda grads: grads
    updates: Callable[[Params], Params] = lambda updates: updates


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
    differentiated: Differentiated,
    optimizer: optax.GradientTransformation,
    *,
    minimized: dict[str, float],
    weights: Callable[[Batch], dict[str, jax.Array]],
    seed: int,
    accumulation: int,
    clip_norm: float | None,
    ema_decay: float | None,
    non_finite: Literal["stop", "skip"],
    rate: Callable[[jax.Array], jax.Array],
    place: Placement = Placement(),
) -> Callable[[TrainState, Batch], tuple[TrainState, Sums, Params]]:
    """A function (state, batch) -> (state, sums, gradients before clipping).

    minimized, weights: the objective's. sums holds the objective's pairs, 'gradient_norm', 'learning_rate' and 'finite'.
    Who does not return the gradients from a compiled function does not pay for them.
    """

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, Sums, Params]:
        num_examples = jax.tree.leaves(batch)[0].shape[0]
        randomness = Randomness.for_step(seed, state.step, num_examples)
        each = seeds(minimized, weights(batch))
        unclipped, sums = gradients(
            differentiated, state.params, batch, randomness, each, accumulation, place.gradients
        )
        grads, norm = clip_by_global_norm(unclipped, clip_norm)
        finite = jnp.isfinite(sums["loss"][0]) & jnp.isfinite(norm)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params, opt_state = updated(state.params, opt_state, place.updates(updates))
        exact_params = exact(params, opt_state)
        ema = None if ema_decay is None else ema_update(state.ema, exact_params, ema_decay, state.step - state.skipped)

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
