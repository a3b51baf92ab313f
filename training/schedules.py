"""Learning rates as functions of the update's number.

A schedule maps the number i of an update, counted from 0, to the rate used FOR that update (float32; any shape of i).

    warm-up     With a warm-up of W updates, update i < W has the rate peak * (i + 1) / W: update W - 1 has the
                peak, and none has rate 0. A warm-up of 0 and of 1 are the same: update 0 has the peak.
    decay       It starts at the first update that has the peak, max(W - 1, 0), and is over when all `steps`
                updates are done: at i = steps the rate is `end`, and it stays there. The last update, steps - 1,
                is one step short of `end`, so with end = 0 none is wasted. With W = steps the last has the peak.

A resumed run continues where its rate was, because i is the count in the optimizer's state.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import gin
import jax
import jax.numpy as jnp
import optax

from mistake import Mistake

Schedule = Callable[[jax.Array | int], jax.Array]


@gin.configurable("constant")
def constant(value: float = gin.REQUIRED, warmup: int = 0) -> Schedule:
    """`value`, after a warm-up of `warmup` updates. Raises Mistake for a negative one of either."""
    require_rate("constant.value", value)
    _require_updates("constant.warmup", warmup)
    return lambda step: _warm(step, warmup) * value


@gin.configurable("linear")
def linear(peak: float = gin.REQUIRED, steps: int = gin.REQUIRED, warmup: int = 0, end: float = 0.0) -> Schedule:
    """A straight line from `peak` to `end`, reached when `steps` updates, those of the warm-up among them, are done.

    Raises Mistake for a warm-up longer than `steps`, an `end` above the peak, and negative values.
    """
    _require_decay("linear", peak, steps, warmup, end)

    def schedule(step: jax.Array | int) -> jax.Array:
        return _warm(step, warmup) * _between(end, peak, _remaining(step, steps, warmup))

    return schedule


@gin.configurable("cosine")
def cosine(peak: float = gin.REQUIRED, steps: int = gin.REQUIRED, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Half a cosine from `peak` to `end` (Loshchilov and Hutter, arXiv 1608.03983, without restarts).

    `end` is reached when `steps` updates, those of the warm-up among them, are done.
    Raises Mistake for a warm-up longer than `steps`, an `end` above the peak, and negative values.
    """
    _require_decay("cosine", peak, steps, warmup, end)

    def schedule(step: jax.Array | int) -> jax.Array:
        # (1 + cos(pi (1 - r))) / 2 = sin^2(pi r / 2): the sine keeps its digits in float32 where 1 + cos is almost 0.
        share = jnp.sin(0.5 * math.pi * _remaining(step, steps, warmup)) ** 2
        return _warm(step, warmup) * _between(end, peak, share)

    return schedule


@gin.configurable("inverse_sqrt")
def inverse_sqrt(peak: float = gin.REQUIRED, warmup: int = gin.REQUIRED) -> Schedule:
    """`peak` * sqrt(W / (i + 1)) after a warm-up of W = max(`warmup`, 1) updates. It has no last step.

    From Vaswani et al., arXiv 1706.03762, section 5.3; with peak = W ** -0.5 the decay is T5's 1 / sqrt(updates done).
    Raises Mistake for negative values.
    """
    require_rate("inverse_sqrt.peak", peak)
    _require_updates("inverse_sqrt.warmup", warmup)
    first = max(warmup, 1)

    def schedule(step: jax.Array | int) -> jax.Array:
        return _warm(step, warmup) * peak * jnp.sqrt(_share(first, jnp.asarray(step) + 1))

    return schedule


@gin.configurable("stages")
def stages(schedules: Sequence[Schedule] = gin.REQUIRED, boundaries: Sequence[int] = gin.REQUIRED) -> Schedule:
    """One schedule after another, each counting its own updates from 0 and so with its own warm-up.

    Stage s + 1 begins with update boundaries[s]. BERT in two phases, of 7,038 updates and the rest:

        stages.schedules = [@short/linear(), @long/linear()]
        stages.boundaries = [7038]

    Raises Mistake when the boundaries are not one fewer than the schedules, or do not grow from 1 on.
    """
    if len(schedules) != len(boundaries) + 1:
        raise Mistake(
            f"stages.boundaries: {len(boundaries)} for {len(schedules)} schedules. "
            "Give the first update of every stage but the first: one fewer than stages.schedules."
        )
    for before, boundary in itertools.pairwise([0, *boundaries]):
        _require_updates("stages.boundaries", boundary)
        if boundary <= before:
            raise Mistake(f"stages.boundaries: {boundary} follows {before}. Each must be above the one before, from 1.")
    return optax.join_schedules(schedules, boundaries)


def _warm(step: jax.Array | int, warmup: int) -> jax.Array:
    """The share of the peak that the warm-up allows update `step`: float32, 1 from update warmup - 1 on."""
    return _share(jnp.asarray(step) + 1, max(warmup, 1))


def _remaining(step: jax.Array | int, steps: int, warmup: int) -> jax.Array:
    """The share of the decay still ahead: float32, 1 up to the first update with the peak, 0 from `steps` on."""
    first = max(warmup - 1, 0)
    return _share(steps - jnp.asarray(step), steps - first)


def _share(part: jax.Array | int, whole: jax.Array | int) -> jax.Array:
    """part / whole in [0, 1], float32. All of it is 1 exactly: XLA may divide by multiplying with 1 / whole."""
    return jnp.where(part >= whole, 1.0, jnp.maximum(part, 0) / whole)


def _between(low: float, high: float, share: jax.Array) -> jax.Array:
    """`low` at share 0 and `high` at share 1, both exactly."""
    return low * (1.0 - share) + high * share


def _require_decay(name: str, peak: float, steps: int, warmup: int, end: float) -> None:
    require_rate(f"{name}.peak", peak)
    require_rate(f"{name}.end", end)
    _require_updates(f"{name}.steps", steps)
    _require_updates(f"{name}.warmup", warmup)
    if steps == 0:
        raise Mistake(f"{name}.steps: 0 leaves no update. Use at least 1.")
    if warmup > steps:
        raise Mistake(f"{name}.warmup: {warmup} is longer than {name}.steps {steps}. Use at most {steps}.")
    if end > peak:
        raise Mistake(f"{name}.end: {end} is above {name}.peak {peak}. Use at most the peak.")


def require_rate(binding: str, value: float) -> None:
    """Raises Mistake, beginning with `binding`, unless `value` is a number that can be a rate."""
    if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise Mistake(f"{binding}: {value!r} is not a rate. Use a finite number, 0 or more.")


def _require_updates(binding: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Mistake(f"{binding}: {value!r} is not a number of updates. Use 0, 1, 2, ..., without point or exponent.")
