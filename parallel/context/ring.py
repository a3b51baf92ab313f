"""Ring attention (Liu et al. 2023): each device keeps its queries, and keys and values go round, one neighbour at a time.

Scores exist for one pair of blocks at a time, and the backward pass goes round once more from the saved sums of the softmax,
with the gradients of keys and values travelling beside them. All of it runs within a shard_map.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from parallel.context.blockwise import Options, Places, Running, accumulate, gradients
from parallel.randomness import Randomness


@dataclasses.dataclass(frozen=True)
class Ring:
    """A ring of `size` devices on the mesh axes `axis`; 1 is no ring, but attention a block at a time.

    parts: pieces that each device's share of the sequence comes in: 1, or 2 where causal work is balanced, when device d
    holds the pieces d and 2 size - 1 - d of the sequence's 2 size.
    """

    options: Options
    axis: tuple[str, ...]
    size: int
    parts: int

    @property
    def device(self) -> jax.Array:
        """This device's place in the ring."""
        return jax.lax.axis_index(self.axis) if self.size > 1 else jnp.int32(0)

    def piece(self, device: jax.Array, part: jax.Array | int) -> jax.Array:
        """Which piece of the sequence part `part` of `device` is."""
        return device if self.parts == 1 else jnp.where(part == 0, device, 2 * self.size - 1 - device)

    def pairs(self, device: jax.Array, other: jax.Array, home: bool) -> list[tuple[Any, Any]]:
        """(part of the queries, part of the keys of `other`) that must meet; home: other is the device itself.

        Balanced: of four pairs with another device two have nothing to see of each other, whichever two, so every device
        does the same: three at home, and two with each other one.
        """
        if self.parts == 1:
            return [(0, 0)]
        if home:
            return [(0, 0), (1, 0), (1, 1)]
        earlier = jnp.where(other < device, 0, 1)
        return [(1, 0), (earlier, earlier)]

    def onward(self, tree: Any) -> Any:
        """Everything to the next device."""
        to_next = [(i, (i + 1) % self.size) for i in range(self.size)]
        return jax.tree.map(lambda x: jax.lax.ppermute(x, self.axis, to_next), tree)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Beside:
    """What goes with queries and keys and has no gradient. segments [parts, B, s] of queries and of keys; n_N: which heads
    these are in the whole; key_data, example_B: of the noise, or None; first: where the queries begin, for a ring of one.
    """

    segments_q: jax.Array
    segments_k: jax.Array
    n_N: jax.Array
    key_data: jax.Array | None
    example_B: jax.Array | None
    first: jax.Array | int = 0


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def ring_attention(ring: Ring, q, k, v, bias_NST, beside: Beside) -> jax.Array:
    """Attention like q [parts, B, s, K, G, H]; k, v [parts, B, t, K, H]; bias_NST of these heads and the whole sequence, or
    None.
    """
    return _forward(ring, q, k, v, bias_NST, beside)[0]


def _forward(ring: Ring, q, k, v, bias_NST, beside: Beside):
    device = ring.device

    def meet(running, held, other, home):
        k, v, segments_k = held
        for i, j in ring.pairs(device, other, home):
            places, bias = _places(ring, beside, segments_k, bias_NST, q, k, device, i, other, j)
            seen = accumulate(ring.options, _at(running, i), q[i], k[j], v[j], bias, places)
            running = jax.tree.map(lambda all_, one, i=i: all_.at[i].set(one), running, seen)
        return running

    running = meet(jax.vmap(Running.start)(q), (k, v, beside.segments_k), device, True)

    def hop(carry, r):
        running, held = carry
        held = ring.onward(held)
        return (meet(running, held, (device - r) % ring.size, False), held), None

    if ring.size > 1:
        start = (running, (k, v, beside.segments_k))
        (running, _), _ = jax.lax.scan(hop, start, jnp.arange(1, ring.size))
    out, log_total = jax.vmap(Running.finish)(running)
    out = out.astype(q.dtype)
    return out, (q, k, v, bias_NST, beside, out, log_total)


def _backward(ring: Ring, kept, out_gradient):
    q, k, v, bias_NST, beside, out, log_total = kept
    device = ring.device
    out_gradient = out_gradient.astype(jnp.float32)
    delta = jnp.einsum("pbskgh,pbskgh->pbkgs", out_gradient, out.astype(jnp.float32))

    def meet(found, held, other, home):
        dq, dbias = found
        k, v, segments_k, dk, dv = held
        for i, j in ring.pairs(device, other, home):
            places, bias = _places(ring, beside, segments_k, bias_NST, q, k, device, i, other, j)
            dq_i, dk_j, dv_j, db = gradients(
                ring.options, q[i], k[j], v[j], bias, places, log_total[i], out_gradient[i], delta[i]
            )
            dq, dk, dv = dq.at[i].add(dq_i), dk.at[j].add(dk_j), dv.at[j].add(dv_j)
            if bias_NST is not None:
                start = (0, places.s_S[0], places.t_T[0])
                before = jax.lax.dynamic_slice(dbias, start, db.shape)
                dbias = jax.lax.dynamic_update_slice(dbias, before + db, start)
        return (dq, dbias), (k, v, segments_k, dk, dv)

    zero = lambda x: None if x is None else jnp.zeros(x.shape, jnp.float32)
    found, held = meet((zero(q), zero(bias_NST)), (k, v, beside.segments_k, zero(k), zero(v)), device, True)

    def hop(carry, r):
        found, held = carry
        return meet(found, ring.onward(held), (device - r) % ring.size, False), None

    if ring.size > 1:
        (found, held), _ = jax.lax.scan(hop, (found, held), jnp.arange(1, ring.size))
        held = (*held[:3], *ring.onward(held[3:]))  # The last hop brings the gradients home.
    dq, dbias = found
    back = lambda g, x: None if x is None else g.astype(x.dtype)
    return back(dq, q), back(held[3], k), back(held[4], v), back(dbias, bias_NST), None


ring_attention.defvjp(_forward, _backward)


def _at(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def _places(ring: Ring, beside: Beside, segments_k, bias_NST, q, k, device, i, other, j) -> tuple[Places, Any]:
    """Where part i of the queries and part j of the keys of `other` lie, and the bias between them."""
    s, t = q.shape[2], k.shape[2]
    first_s, first_t = beside.first + ring.piece(device, i) * s, ring.piece(other, j) * t
    noise = None
    if beside.key_data is not None:
        noise = Randomness(jax.random.wrap_key_data(beside.key_data), beside.example_B)
    places = Places(
        beside.segments_q[i], segments_k[j], first_s + jnp.arange(s), first_t + jnp.arange(t), beside.n_N, noise
    )
    if bias_NST is None:
        return places, None
    return places, jax.lax.dynamic_slice(bias_NST, (0, first_s, first_t), (bias_NST.shape[0], s, t))


def balanced(ring: Ring, x: jax.Array) -> jax.Array:
    """[B, S/size, ...] in the order of the sequence -> [2, B, S/(2 size), ...]: the pieces that a balanced ring has here.

    Piece j of 2 size is on device j div 2, and belongs on device j, or 2 size - 1 - j from the middle on. Even pieces and
    odd ones each are a permutation of devices.
    """
    pieces = _halves(x)
    even, odd = (jax.lax.ppermute(pieces[n], ring.axis, _moves(ring, n)) for n in (0, 1))
    is_even = ring.device % 2 == 0
    return jnp.where(is_even, jnp.stack([even, odd]), jnp.stack([odd, even]))


def in_order(ring: Ring, pieces: jax.Array) -> jax.Array:
    """The inverse of `balanced`."""
    is_even = ring.device % 2 == 0
    mine = jnp.where(is_even, pieces, pieces[::-1])
    back: Callable = lambda n: [(to, source) for source, to in _moves(ring, n)]
    even, odd = (jax.lax.ppermute(mine[n], ring.axis, back(n)) for n in (0, 1))
    return jnp.concatenate([even, odd], axis=1)


def _halves(x: jax.Array) -> jax.Array:
    return jnp.stack(jnp.split(x, 2, axis=1))


def _moves(ring: Ring, parity: int) -> list[tuple[int, int]]:
    """(from, to) of the pieces 2 i + parity."""
    target = lambda j: j if j < ring.size else 2 * ring.size - 1 - j
    return [(i, target(2 * i + parity)) for i in range(ring.size)]
