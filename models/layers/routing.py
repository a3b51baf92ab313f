"""Which tokens go to which experts: GShard's routing (Lepikhin et al. 2020, algorithm 1), Switch's and expert choice.

Letters: G groups, S tokens of a group, E experts, C capacity. Everything is float32, and a function of the group alone.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp


def capacity(factor: float, choices: int, tokens: int, num_experts: int) -> int:
    """Tokens that an expert takes of a group: factor * choices * tokens / experts, rounded up, and up to a multiple
    of 4 (which the dimension of a matrix product likes), but no more than there are.
    """
    # Less what floats add to a product that is whole: 1.1 * 2 * 400 / 4 is 220.00000000000003.
    wanted = math.ceil(factor * choices * tokens / num_experts - 1e-9)
    return min(tokens, -(-wanted // 4) * 4)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Routed:
    """What a router decided. experts, gates, wanted [G, S, k]: each token's choices, the weight that an expert's
    answer gets, and 1.0 where the choice counts (0.0 for padding, and for a second choice that was not drawn).
    probabilities [G, S, E].
    """

    experts: jax.Array
    gates: jax.Array
    wanted: jax.Array
    probabilities: jax.Array


def choose(logits_GSE: jax.Array, real_GS: jax.Array, choices: int, uniform_GS: jax.Array | None) -> Routed:
    """Each token's best expert, or its two best.

    One choice has the router's probability as its gate (Fedus et al. 2021). Of two the gates sum to 1, and the
    second is taken with probability 2 * gate where uniform_GS [0, 1) is given (algorithm 1), always where not.
    """
    probabilities = jax.nn.softmax(logits_GSE, axis=-1) * real_GS[..., None]
    best, experts = jax.lax.top_k(probabilities, choices)
    wanted = jnp.broadcast_to(real_GS[..., None], best.shape)
    gates = best
    if choices == 2:
        gates = best / jnp.maximum(best.sum(-1, keepdims=True), 1e-9)
        if uniform_GS is not None:
            drawn = (2.0 * gates[..., 1] > uniform_GS).astype(jnp.float32)
            wanted = wanted * jnp.stack([jnp.ones_like(drawn), drawn], axis=-1)
    return Routed(experts, gates, wanted, probabilities)


def seats(routed: Routed, num_experts: int, size: int) -> tuple[jax.Array, jax.Array]:
    """(place [G, S, k] of each choice among its expert's `size` seats, kept [G, S, k]: 1.0 where it has one).

    Seats are given in the order of tokens, to all first choices before any second one (algorithm 1). A second choice
    that was not drawn takes none, as in Google's code.
    """
    choice_GSkE = jax.nn.one_hot(routed.experts, num_experts, dtype=jnp.float32) * routed.wanted[..., None]
    before = jnp.zeros((choice_GSkE.shape[0], 1, num_experts), jnp.float32)
    places, kept = [], []
    for k in range(choice_GSkE.shape[2]):
        own = choice_GSkE[:, :, k]
        ahead = jnp.cumsum(own, axis=1) - own + before
        place = jnp.sum(ahead * own, axis=-1)
        places.append(place)
        kept.append(routed.wanted[..., k] * (place < size))
        before = before + own.sum(1, keepdims=True)
    return jnp.stack(places, -1).astype(jnp.int32), jnp.stack(kept, -1)


def combine(
    routed: Routed, place: jax.Array, kept: jax.Array, num_experts: int, size: int
) -> tuple[jax.Array, jax.Array]:
    """(dispatch, combine), both [G, S, E, C]: 1.0, and the gate, where a token sits. One-hot products, no scatter."""
    seat_GSkC = jax.nn.one_hot(place, size, dtype=jnp.float32) * kept[..., None]
    expert_GSkE = jax.nn.one_hot(routed.experts, num_experts, dtype=jnp.float32)
    dispatch = jnp.einsum("gske,gskc->gsec", expert_GSkE, seat_GSkC)
    return dispatch, jnp.einsum("gske,gskc->gsec", expert_GSkE * routed.gates[..., None], seat_GSkC)


def expert_choice(logits_GSE: jax.Array, real_GS: jax.Array, size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(dispatch, combine, probabilities): each expert takes its `size` best tokens of a group (Zhou et al. 2022).

    The gate is the router's probability of that expert for the token. Padding is taken last, with gate zero.
    """
    probabilities = jax.nn.softmax(logits_GSE, axis=-1) * real_GS[..., None]
    best_GEC, token_GEC = jax.lax.top_k(jnp.swapaxes(probabilities, 1, 2), size)
    taken = jax.nn.one_hot(token_GEC, logits_GSE.shape[1], dtype=jnp.float32)
    taken = taken * jnp.einsum("gecs,gs->gec", taken, real_GS)[..., None]
    dispatch = jnp.moveaxis(taken, 3, 1)
    return dispatch, dispatch * best_GEC[:, None], probabilities


def balance(routed: Routed, real_GS: jax.Array, form: str) -> tuple[jax.Array, jax.Array]:
    """(sum, weight) of the balance loss over groups that have a real token.

    A group's is sum_e (c_e / S) * m_e, with the share of first choices c_e / S and the mean probability m_e of its real
    tokens, over E ('paper': algorithm 1), or times E ('code': Google's, 1 where all experts are equal).
    """
    E = routed.probabilities.shape[-1]
    first = jax.nn.one_hot(routed.experts[..., 0], E, dtype=jnp.float32) * real_GS[..., None]
    count_G = jnp.maximum(real_GS.sum(1), 1.0)[:, None]
    share, mean = first.sum(1) / count_G, routed.probabilities.sum(1) / count_G
    scale = 1.0 / E if form == "paper" else E
    return scale * jnp.sum(share * mean), jnp.sum((real_GS.sum(1) > 0).astype(jnp.float32))
