"""Mixture of experts (GShard, Lepikhin et al. 2020): a feed-forward layer of which each token uses one or two of many.

Letters: B, S, D as everywhere; G groups, s tokens of a group, E experts, C seats an expert has for a group, F hidden.

Groups live where their examples do. The exchange is declared: before it [E, G, C, D] is split by group, after it by
expert, which the partitioner turns into an all-to-all, and another one back.
"""

from collections.abc import Callable
from typing import Literal

import gin
import jax
import jax.numpy as jnp
from flax import nnx

from mistake import Mistake
from models.layers import routing
from models.layers.initializers import ZEROS, Each, FanIn
from parallel.annotate import Randomness, Sums, apart, param, shard


@gin.configurable("moe")
class MoE:
    """What a mixture is like; `layer` makes one.

    Args:
      num_experts: of each mixture.
      hidden: of each expert; None is the model's mlp_width.
      routing: 'top1' (Switch), 'top2' (GShard), 'expert_choice' (each expert takes its best tokens; not for causal
        models). Of 'top2', where seats are few, a second choice may lose its seat to the first choice of a later
        token of its group.
      dispatch: 'einsum', where an expert has so many seats and a token without one goes through the residual alone;
        'sorted', where every token is taken: each device orders its own by expert and has one ragged product, with all
        experts there (no layout may split 'expert', or pipeline it). That pays on TPU; elsewhere XLA multiplies by
        every expert and masks.
      group_size: tokens that compete for seats; divides the length of a sequence, which is what None takes.
      capacity_factor, eval_capacity_factor: seats, as a multiple of an even share, in training and in evaluation.
        None is 1.25, and 2.0 in evaluation. Their number is rounded up to a multiple of 4; the metric
        effective_capacity is what came of it.
      jitter: the router's input is multiplied by noise in [1 - jitter, 1 + jitter] in training.
      balance: 'paper' or 'code' (see routing.balance).
    """

    def __init__(
        self,
        num_experts: int = gin.REQUIRED,
        hidden: int | None = None,
        routing: Literal["top1", "top2", "expert_choice"] = "top2",
        dispatch: Literal["einsum", "sorted"] = "einsum",
        group_size: int | None = None,
        capacity_factor: float | None = None,
        eval_capacity_factor: float | None = None,
        jitter: float = 0.0,
        balance: Literal["paper", "code"] = "code",
    ):
        least = 2 if routing == "top2" else 1
        if num_experts < least:
            raise Mistake(f"moe.num_experts: {num_experts}, and routing {routing!r} needs at least {least}.")
        for name, value in {"hidden": hidden, "group_size": group_size}.items():
            if value is not None and value < 1:
                raise Mistake(f"moe.{name}: {value}. It must be at least 1.")
        for name, value in {"capacity_factor": capacity_factor, "eval_capacity_factor": eval_capacity_factor}.items():
            if value is not None and not value > 0:
                raise Mistake(f"moe.{name}: {value} gives experts no seat. It must be above 0.")
            if value is not None and dispatch == "sorted":
                raise Mistake(
                    f"moe.{name}: {value} has no effect where moe.dispatch is 'sorted', without seats. Set it to None."
                )
        if not 0 <= jitter < 1:
            raise Mistake(f"moe.jitter: {jitter} is outside [0, 1).")
        if routing == "expert_choice" and dispatch == "sorted":
            raise Mistake("moe.dispatch: with routing 'expert_choice' experts have seats, so it is 'einsum'.")
        self.num_experts, self.hidden, self.routing, self.dispatch = num_experts, hidden, routing, dispatch
        self.group_size, self.jitter, self.balance = group_size, jitter, balance
        self.factors = (capacity_factor or 1.25, eval_capacity_factor or 2.0)

    def layer(self, width: int, mlp_width: int, *, act: Callable, gated: bool, bias: bool, init=None) -> "ExpertLayer":
        """A mixture in place of a feed-forward layer of hidden `mlp_width`."""
        return ExpertLayer(self, width, self.hidden or mlp_width, act=act, gated=gated, bias=bias, init=init)

    def num_groups(self, segments_BS: jax.Array) -> jax.Array:
        """float32: groups that have a real token (segment 0 is padding), which the balance loss is a mean over."""
        return _real_groups(self.groups((segments_BS > 0).astype(jnp.float32)))

    def groups(self, x_BS: jax.Array) -> jax.Array:
        """[B, S, ...] -> [G, s, ...]: a group is part of one example, so neither microbatches nor devices change it."""
        B, S = x_BS.shape[:2]
        size = self.group_size or S
        if S % size:
            fits = [n for n in range(1, S + 1) if S % n == 0]
            raise Mistake(
                f"moe.group_size: {size} does not divide sequences of {S}. These do: {', '.join(map(str, fits))}."
            )
        return x_BS.reshape(B * (S // size), size, *x_BS.shape[2:])


class ExpertLayer(nnx.Module):
    """[B, S, D] -> ([B, S, D], sums): a token's experts' answers, weighted by their gates.

    sums: balance_loss, router_z_loss (to be minimized), and for the eye dropped (share of choices without a seat),
    expert_load (share of choices by expert, [E]), router_entropy (nats), seats_used (share of seats) and
    effective_capacity (the capacity factor after rounding); the last two only where there are seats.
    """

    def __init__(self, moe: MoE, width: int, hidden: int, *, act: Callable, gated: bool, bias: bool, init=None):
        self.moe, self.act = moe, act
        E, kernel = moe.num_experts, init or FanIn()
        # Cut by expert only where the exchange between experts is written down.
        expert = "expert" if moe.dispatch == "einsum" else "whole_expert"
        self.router = param((width, E), ("embed", "whole_expert"), kernel)
        up, down = (expert, "expert_embed", "expert_mlp"), (expert, "expert_mlp", "expert_embed")
        per_expert = Each(kernel)
        self.up = param((E, width, hidden), up, per_expert)
        self.gate = param((E, width, hidden), up, per_expert) if gated else None
        self.down = param((E, hidden, width), down, per_expert)
        self.up_bias = param((E, hidden), (expert, "expert_mlp"), ZEROS) if bias else None
        self.down_bias = param((E, width), (expert, "expert_embed"), ZEROS) if bias else None

    def __call__(
        self, x_BSD: jax.Array, segments_BS: jax.Array, randomness: Randomness | None = None
    ) -> tuple[jax.Array, Sums]:
        moe = self.moe
        real_Gs = moe.groups((segments_BS > 0).astype(jnp.float32))
        x_GsD = shard(moe.groups(x_BSD), "group", None, "embed", name="expert_tokens")
        logits_GsE = self._logits(x_BSD, randomness)
        z = jax.nn.logsumexp(logits_GsE, axis=-1) * real_Gs
        sums: Sums = {"router_z_loss": (jnp.sum(z**2), real_Gs.sum())}
        if moe.routing == "expert_choice":
            y_GsD, more = self._by_expert_choice(x_GsD, logits_GsE, real_Gs, training=randomness is not None)
        else:
            y_GsD, more = self._by_token_choice(x_GsD, logits_GsE, real_Gs, randomness, segments_BS.shape)
        y_GsD = shard(y_GsD, "group", None, "embed", name="expert_answers")
        return y_GsD.reshape(x_BSD.shape), sums | more

    def _logits(self, x_BSD: jax.Array, randomness: Randomness | None) -> jax.Array:
        """float32 [G, s, E], whatever x is."""
        x32 = x_BSD.astype(jnp.float32)
        if randomness is not None and self.moe.jitter:
            noise = randomness.named("router_jitter").uniform(x_BSD.shape)
            x32 *= 1.0 + self.moe.jitter * (2.0 * noise - 1.0)
        logits = jnp.einsum("gsd,de->gse", self.moe.groups(x32), self.router[...].astype(jnp.float32))
        return shard(logits, "group", None, None, name="router_logits")

    def _by_token_choice(
        self, x_GsD, logits_GsE, real_Gs, randomness: Randomness | None, shape
    ) -> tuple[jax.Array, Sums]:
        moe, E = self.moe, self.moe.num_experts
        choices = 2 if moe.routing == "top2" else 1
        drawn = None
        if randomness is not None and choices == 2:
            drawn = moe.groups(randomness.named("second_expert").uniform(tuple(shape)))
        routed = routing.choose(logits_GsE, real_Gs, choices, drawn)
        chosen_E = jnp.einsum("gske,gsk->e", jax.nn.one_hot(routed.experts, E, dtype=jnp.float32), routed.wanted)
        wanted = routed.wanted.sum()
        sums: Sums = {
            "balance_loss": routing.balance(routed, real_Gs, moe.balance),
            "router_entropy": _entropy(routed.probabilities, real_Gs),
            "expert_load": (jax.lax.stop_gradient(chosen_E), jax.lax.stop_gradient(wanted)),
        }
        if moe.dispatch == "sorted":
            return self._sorted(x_GsD, routed), sums | {"dropped": (jnp.zeros((), jnp.float32), wanted)}
        size = self._seats(x_GsD.shape[1], choices, randomness is not None)
        place, kept = routing.seats(routed, E, size)
        dispatch, combine = routing.combine(routed, place, kept, E, size)
        sums |= {"dropped": (wanted - kept.sum(), wanted)} | self._seating(real_Gs, kept.sum(), choices, size)
        return self._exchanged(x_GsD, dispatch, combine), sums

    def _by_expert_choice(self, x_GsD, logits_GsE, real_Gs, *, training: bool) -> tuple[jax.Array, Sums]:
        size = self._seats(x_GsD.shape[1], 1, training)
        dispatch, combine, probabilities = routing.expert_choice(logits_GsE, real_Gs, size)
        untaken = real_Gs * (dispatch.sum((2, 3)) == 0)
        return self._exchanged(x_GsD, dispatch, combine), {
            # Experts are equally busy by construction.
            "balance_loss": (jnp.zeros((), jnp.float32), _real_groups(real_Gs)),
            "router_entropy": _entropy(probabilities, real_Gs),
            "expert_load": (dispatch.sum((0, 1, 3)), dispatch.sum()),
            "dropped": (untaken.sum(), real_Gs.sum()),
        } | self._seating(real_Gs, dispatch.sum(), 1, size)

    def _seating(self, real_Gs: jax.Array, taken: jax.Array, choices: int, size: int) -> Sums:
        """Of the groups that have a real token: the share of seats taken, and their number over that of even shares,
        which is the capacity factor after rounding.
        """
        groups, seats = _real_groups(real_Gs), self.moe.num_experts * size
        return {
            "seats_used": (taken, groups * seats),
            "effective_capacity": (groups * (seats / (choices * real_Gs.shape[1])), groups),
        }

    def _seats(self, tokens: int, choices: int, training: bool) -> int:
        return routing.capacity(self.moe.factors[0 if training else 1], choices, tokens, self.moe.num_experts)

    def _exchanged(self, x_GsD: jax.Array, dispatch_GsEC: jax.Array, combine_GsEC: jax.Array) -> jax.Array:
        """Tokens to their experts' devices, through the experts, and back."""
        there = shard(dispatch_GsEC.astype(x_GsD.dtype), "group", None, None, None, name="dispatch")
        back = shard(combine_GsEC.astype(x_GsD.dtype), "group", None, None, None, name="combine")
        x_EGCD = jnp.einsum("gsec,gsd->egcd", there, x_GsD)
        x_EGCD = shard(x_EGCD, None, "group", None, "embed", name="sent_tokens")
        x_EGCD = shard(x_EGCD, "expert", "expert_group", None, "embed", name="expert_inputs")
        up = self._hidden(x_EGCD, self.up)
        if self.up_bias is not None:
            up += self.up_bias[...].astype(up.dtype)[:, None, None]
        hidden = self.act(up) if self.gate is None else self.act(self._hidden(x_EGCD, self.gate)) * up
        y_EGCD = jnp.einsum("egcf,efd->egcd", hidden, self.down[...].astype(hidden.dtype))
        if self.down_bias is not None:
            y_EGCD += self.down_bias[...].astype(y_EGCD.dtype)[:, None, None]
        y_EGCD = shard(y_EGCD, "expert", "expert_group", None, "embed", name="expert_outputs")
        y_EGCD = shard(y_EGCD, None, "group", None, "embed", name="sent_answers")
        return jnp.einsum("gsec,egcd->gsd", back, y_EGCD)

    def _hidden(self, x_EGCD: jax.Array, kernel) -> jax.Array:
        h = jnp.einsum("egcd,edf->egcf", x_EGCD, kernel[...].astype(x_EGCD.dtype))
        return shard(h, "expert", "expert_group", None, "expert_mlp", name="expert_hidden")

    def _sorted(self, x_GsD: jax.Array, routed: routing.Routed) -> jax.Array:
        """No seats: choices in order of their expert, one product of ragged groups, and back in order."""
        weights = {"up": self.up, "gate": self.gate, "down": self.down}
        weights |= {"up_bias": self.up_bias, "down_bias": self.down_bias}
        shared = {name: w[...].astype(x_GsD.dtype) for name, w in weights.items() if w is not None}
        return apart(
            self._in_order,
            shared,
            x_GsD,
            routed.experts,
            routed.wanted,
            routed.gates,
            axis="group",
            name="expert_answers",
            what="moe.dispatch: 'sorted'",
            whole=("expert",),
        )

    def _in_order(self, w: dict[str, jax.Array], x_GsD: jax.Array, experts, wanted, gates) -> jax.Array:
        """The experts' answers to some groups. experts, wanted, gates: [G, s, k]. Padding, and choices not drawn,
        come last, in no expert's share.
        """
        E, k = self.moe.num_experts, experts.shape[-1]
        expert = jnp.where(wanted > 0, experts, E).reshape(-1)
        order = jnp.argsort(expert, stable=True)
        sizes = jnp.bincount(expert, length=E + 1)[:E].astype(jnp.int32)
        x = x_GsD.reshape(-1, x_GsD.shape[-1])[order // k]
        own = jnp.minimum(expert[order], E - 1)

        def dense(x, name):
            y = jax.lax.ragged_dot(x, w[name], sizes)
            return y + w[f"{name}_bias"][own] if f"{name}_bias" in w else y

        up = dense(x, "up")
        hidden = self.act(up) if self.gate is None else self.act(dense(x, "gate")) * up
        y = dense(hidden, "down")[jnp.argsort(order)].reshape(*experts.shape, -1)
        return jnp.einsum("gskd,gsk->gsd", y, (gates * wanted).astype(y.dtype))


def _real_groups(real_Gs: jax.Array) -> jax.Array:
    """float32: groups that have a real token."""
    return jnp.sum((real_Gs.sum(1) > 0).astype(jnp.float32))


def _entropy(probabilities_GsE: jax.Array, real_Gs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(sum over real tokens of the entropy of their routing, in nats; their number)."""
    entropy_Gs = -jnp.sum(jax.scipy.special.xlogy(probabilities_GsE, probabilities_GsE), -1)
    return jax.lax.stop_gradient(jnp.sum(entropy_Gs * real_Gs)), real_Gs.sum()
