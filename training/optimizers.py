"""The optimizers: optax chains over the flat dict of parameters, with decay by logical name and layers kept apart.

In all four the decay is decoupled from the gradient (Loshchilov and Hutter, arXiv 1711.05101): the step of a parameter
w is -rate * (direction + weight_decay * w), without the decay for the parameters of `no_decay`. A pattern there is the
name of a logical axis, for every parameter that has it, or a glob over parameter paths.
"""

import dataclasses
import math
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import gin
import jax
import jax.numpy as jnp
import optax

from mistake import Mistake, nearest
from training.schedules import Schedule, require_rate
from training.slots import layerwise

if TYPE_CHECKING:
    from parallel.parameters import Declared, Params

    Declarations = dict[str, Declared]

NO_DECAY = ("*.bias", "*.scale")
Link = tuple[str, optax.GradientTransformation]


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """What a run asks of an optimizer.

    rate:       the learning rate of an update, by the update's number, for the log
    direction:  the named links of its chain before the rate, for the parameters declared
    """

    rate: Schedule
    direction: "Callable[[Declarations], list[Link]]"

    def build(self, declared: "Declarations") -> optax.GradientTransformation:
        """The transformation from gradients to steps, both dicts from path to array.

        The number of the next update, which its rate follows from, is opt_state['rate'].count.
        Raises Mistake for a pattern that matches no parameter.
        """
        return optax.named_chain(*self.direction(declared), ("rate", optax.scale_by_learning_rate(self.rate)))


@gin.configurable("sgd")
def sgd(
    learning_rate: float | Schedule = gin.REQUIRED,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    no_decay: tuple[str, ...] = NO_DECAY,
) -> Optimizer:
    """Gradient descent with momentum, m = momentum * m + g: the direction is m, or, Nesterov's, g + momentum * m.

    The gradient is not scaled by 1 - momentum (as in torch). Unlike torch's, the decay does not pass through m.
    With momentum 0 there are no slots.
    """
    _require_share("sgd.momentum", momentum)
    _require_decay("sgd", weight_decay, no_decay)
    if nesterov and not momentum:
        raise Mistake("sgd.nesterov: has no effect while sgd.momentum is 0. Give a momentum, or drop nesterov.")

    def direction(declared: "Declarations") -> list[Link]:
        trace = [("momentum", optax.trace(momentum, nesterov))] if momentum else []
        return [*trace, _decay("sgd", weight_decay, no_decay, declared)]

    return Optimizer(_schedule("sgd", learning_rate), direction)


@gin.configurable("adamw")
def adamw(
    learning_rate: float | Schedule = gin.REQUIRED,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    no_decay: tuple[str, ...] = NO_DECAY,
    moment_dtype: str | None = None,
) -> Optimizer:
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101), with Adam's bias correction; `eps` is added outside the root.

    `moment_dtype` ('bfloat16') is that in which the first moment is kept; the second stays in the parameter's.
    """
    adam = _adam("adamw", b1, b2, eps, moment_dtype)
    _require_decay("adamw", weight_decay, no_decay)

    def direction(declared: "Declarations") -> list[Link]:
        return [adam, _decay("adamw", weight_decay, no_decay, declared)]

    return Optimizer(_schedule("adamw", learning_rate), direction)


@gin.configurable("lamb")
def lamb(
    learning_rate: float | Schedule = gin.REQUIRED,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.01,
    no_decay: tuple[str, ...] = NO_DECAY,
    trust_exempt: tuple[str, ...] | None = None,
    moment_dtype: str | None = None,
) -> Optimizer:
    """LAMB (You et al., arXiv 1904.00962, algorithm 2): AdamW's direction d, decay included, times |w| / |d|.

    The norms are those of each layer of each parameter. The ratio is 1 where either is 0, and for the parameters of
    `trust_exempt`, patterns like those of `no_decay`: None, the default, exempts those of `no_decay`, as the LAMB that
    BERT is trained with does for biases and norms, and () exempts none, as the paper's algorithm.
    As in the paper the moments are bias-corrected; its phi is the identity here. DeepSpeed's FusedLamb differs in that
    it clamps the ratio, to [0.01, 10] unless told otherwise, and exempts no parameter. NVIDIA's divides large gradients
    by their global norm first: that is the trainer's clipping here.
    """
    adam = _adam("lamb", b1, b2, eps, moment_dtype)
    _require_decay("lamb", weight_decay, no_decay, used_elsewhere=trust_exempt is None)
    exempt = no_decay if trust_exempt is None else trust_exempt

    def direction(declared: "Declarations") -> list[Link]:
        decay = _decay("lamb", weight_decay, no_decay, declared)
        untrusted = _matching("lamb.trust_exempt", exempt, declared)
        trusted = {path: record for path, record in declared.items() if path not in untrusted}
        return [adam, decay, ("trust", layerwise(optax.scale_by_trust_ratio(), trusted))]

    return Optimizer(_schedule("lamb", learning_rate), direction)


@gin.configurable("adafactor")
def adafactor(
    learning_rate: float | Schedule = gin.REQUIRED,
    b1: float = 0.0,
    decay_rate: float | None = None,
    b2: float | None = None,
    clipping_threshold: float | None = 1.0,
    multiply_by_parameter_scale: bool = True,
    min_dim_size_to_factor: int = 128,
    eps: float = 1e-30,
    min_parameter_scale: float = 1e-3,
    weight_decay: float = 0.0,
    no_decay: tuple[str, ...] = NO_DECAY,
) -> Optimizer:
    """Adafactor (Shazeer and Stern, arXiv 1804.04235, algorithms 4 and 5), on each layer of each parameter.

    The second moment is an average over updates whose decay is 1 - t ** -decay_rate at update t = 1, 2, ... (0.8 when
    neither is given), or `b2` with Adam's bias correction folded in, b2 (1 - b2^(t-1)) / (1 - b2^t). It is kept as a
    row and a column over the two largest dimensions when both reach `min_dim_size_to_factor`, else in full: of an
    attention kernel [embed, heads, head_dim] in full, unless heads or head_dim is that large.
    A direction whose root mean square is above `clipping_threshold` is scaled down to it (None: never). With
    `multiply_by_parameter_scale` it is then multiplied by the parameter's own, at least `min_parameter_scale`.
    `b1` > 0 averages the directions, before the rate, so that a change of it acts at once; it costs a full slot.
    Unlike optax's, the weight decay is scaled by the rate, as in the other optimizers here.
    """
    _require_share("adafactor.b1", b1)
    _require_decay("adafactor", weight_decay, no_decay)
    moment = optax.scale_by_factored_rms(
        min_dim_size_to_factor=min_dim_size_to_factor,
        epsilon=eps,
        decay_rate_fn=_second_moment_decay(decay_rate, b2),
    )
    if clipping_threshold is not None and not clipping_threshold > 0:
        raise Mistake(f"adafactor.clipping_threshold: {clipping_threshold} is not above 0. Use None for no clipping.")

    def direction(declared: "Declarations") -> list[Link]:
        links = [("moment", layerwise(moment, declared))]
        if clipping_threshold is not None:
            links.append(("clip", layerwise(optax.clip_by_block_rms(clipping_threshold), declared)))
        if multiply_by_parameter_scale:
            links.append(("scale", layerwise(optax.scale_by_param_block_rms(min_parameter_scale), declared)))
        if b1:
            links.append(("momentum", optax.ema(b1, debias=False)))
        return [*links, _decay("adafactor", weight_decay, no_decay, declared)]

    return Optimizer(_schedule("adafactor", learning_rate), direction)


def clip_by_global_norm(grads: "Params", max_norm: float | None) -> "tuple[Params, jax.Array]":
    """`grads` scaled down to a global norm of at most `max_norm` (None: never), and the norm they had, in float32.

    The arrays are global ones, so the norm is that of the whole gradient whatever the sharding. A gradient that is not
    finite makes the norm so: skip the update then.
    """
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(grad.astype(jnp.float32))) for grad in grads.values()))
    if max_norm is None:
        return grads, norm
    scale = jnp.minimum(1.0, max_norm / norm)  # a norm of 0 gives min(1, inf)
    return {path: (grad * scale).astype(grad.dtype) for path, grad in grads.items()}, norm


def ema_update(ema: "Params", params: "Params", decay: float, step: jax.Array | int, debias: bool = True) -> "Params":
    """The moving average of the weights, 0 < decay < 1, after update `step` (counted from 0) has given `params`.

    Without `debias` the new one is decay * ema + (1 - decay) * params, and the first `ema`, mostly the initial weights,
    weighs decay ** (step + 1) in it. With `debias` the weights of updates 0 to `step` weigh decay ** age over the sum
    of these and the first `ema` nothing: the decay warms up from 0 at update 0. The average keeps the dtype of `ema`.
    """
    assert 0 < decay < 1, decay
    newest = _newest_weight(decay, step) if debias else 1 - decay
    return {path: mean + (newest * (params[path] - mean)).astype(mean.dtype) for path, mean in ema.items()}


def _newest_weight(decay: float, step: jax.Array | int) -> jax.Array:
    """The weight of the newest of values 0 to `step` in their unbiased moving average: float32, 1 at step 0.

    It is (1 - decay) / (1 - decay^(step+1)), by expm1 so that a decay near 1 keeps its digits in float32.
    """
    return jnp.minimum(1.0, (1 - decay) / -jnp.expm1((jnp.asarray(step) + 1) * math.log(decay)))


def _second_moment_decay(decay_rate: float | None, b2: float | None) -> Callable[[jax.Array, float], jax.Array]:
    """Adafactor's decay by the update's number from 0, in the form optax asks for (whose own exponent is not used)."""
    if decay_rate is not None and b2 is not None:
        raise Mistake("adafactor.b2: adafactor.decay_rate is given too. Give b2 for a fixed decay, else decay_rate.")
    if b2 is not None:
        if not 0 < b2 < 1:
            raise Mistake(f"adafactor.b2: {b2} is not between 0 and 1.")
        return lambda step, _: 1.0 - _newest_weight(b2, step)
    exponent = 0.8 if decay_rate is None else decay_rate
    if not 0 < exponent <= 1:
        raise Mistake(f"adafactor.decay_rate: {exponent} is not above 0 and at most 1. The paper's is 0.8.")
    return lambda step, _: 1.0 - (jnp.asarray(step) + 1.0) ** -exponent


def _adam(name: str, b1: float, b2: float, eps: float, moment_dtype: str | None) -> Link:
    _require_share(f"{name}.b1", b1)
    _require_share(f"{name}.b2", b2)
    if not eps > 0:
        raise Mistake(f"{name}.eps: {eps} is not above 0.")
    if moment_dtype not in (None, "float32", "bfloat16"):
        raise Mistake(f"{name}.moment_dtype: {moment_dtype!r} is not 'float32', 'bfloat16' or None (the parameter's).")
    return "adam", optax.scale_by_adam(b1, b2, eps, mu_dtype=moment_dtype)


def _decay(name: str, weight_decay: float, no_decay: tuple[str, ...], declared: "Declarations") -> Link:
    spared = _matching(f"{name}.no_decay", no_decay, declared)
    return "decay", optax.add_decayed_weights(weight_decay, mask={path: path not in spared for path in declared})


def _matching(binding: str, patterns: tuple[str, ...], declared: "Declarations") -> set[str]:
    """Paths of the parameters that `patterns` match. Raises Mistake for one, unless a default, that matches none."""
    if isinstance(patterns, str):
        raise Mistake(f"{binding}: {patterns!r} is one pattern, not a tuple of them. Write ({patterns!r},).")
    matched = set()
    for pattern in patterns:
        paths = {path for path, record in declared.items() if pattern in record.names or fnmatchcase(path, pattern)}
        if not paths and tuple(patterns) != NO_DECAY:
            axes = {axis for record in declared.values() for axis in record.names}
            mend = nearest(pattern, [*axes, *declared]) or f"Axes: {', '.join(sorted(axes))}. Or a glob: '*.bias'."
            raise Mistake(f"{binding}: {pattern!r} matches no parameter, as a logical axis or as a path. {mend}")
        matched |= paths
    return matched


def _schedule(name: str, learning_rate: float | Schedule) -> Schedule:
    if callable(learning_rate):
        return learning_rate
    require_rate(f"{name}.learning_rate", learning_rate)
    return lambda step: jnp.full(jnp.shape(step), learning_rate, jnp.float32)


def _require_share(binding: str, value: float) -> None:
    if not 0 <= value < 1:
        raise Mistake(f"{binding}: {value} is outside [0, 1).")


def _require_decay(name: str, weight_decay: float, no_decay: tuple[str, ...], used_elsewhere: bool = False) -> None:
    if not 0 <= weight_decay < math.inf:
        raise Mistake(f"{name}.weight_decay: {weight_decay} is not a decay. Use a finite number, 0 or more.")
    if weight_decay == 0 and tuple(no_decay) != NO_DECAY and not used_elsewhere:
        raise Mistake(f"{name}.no_decay: has no effect while {name}.weight_decay is 0. Give a decay, or drop no_decay.")
