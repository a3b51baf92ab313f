"""Attention a block at a time with a running softmax (Milakov and Gimelshein 2018; Dao et al. 2022), in plain XLA.

Blocks of queries and keys may lie anywhere in the sequence: each says where by the indices of its positions, so what a
device holds can be any part of the whole, and masks, biases and noise are those of the whole.

Letters as in parallel.attention: B, S queries, T keys, K key/value heads, G query heads that share one, H.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from parallel.randomness import Randomness

# Blocks of more queries or keys than this are gone through in pieces.
LARGEST = 1024
_LOWEST = float(jnp.finfo(jnp.float32).min)


@dataclasses.dataclass(frozen=True)
class Options:
    """What is the same for every block. whole: (N, S, T) of the whole attention; kernel options as in attention()."""

    whole: tuple[int, int, int]
    causal: bool
    logit_cap: float | None
    dropout_rate: float


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Places:
    """Where a block lies. s_S, t_T, n_N: index in the whole of each query position, key position and query head; noise: the
    stream of attention dropout, or None.
    """

    segments_BS: jax.Array
    segments_BT: jax.Array
    s_S: jax.Array
    t_T: jax.Array
    n_N: jax.Array
    noise: Randomness | None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Running:
    """Softmax so far, float32: the largest score and the sum of exponentials [B, K, G, S], the weighted values [B, S, K, G, H]."""

    largest: jax.Array
    total: jax.Array
    values: jax.Array

    @staticmethod
    def start(q_BSKGH: jax.Array) -> "Running":
        """Before any key was seen."""
        B, S, K, G, H = q_BSKGH.shape
        zero = jnp.zeros((B, K, G, S), jnp.float32)
        return Running(zero + _LOWEST, zero, jnp.zeros((B, S, K, G, H), jnp.float32))

    def finish(self) -> tuple[jax.Array, jax.Array]:
        """(attention [B, S, K, G, H], log of the sum of exponentials [B, K, G, S])."""
        total = jnp.maximum(self.total, 1e-37)
        return self.values / jnp.moveaxis(total, 3, 1)[..., None], self.largest + jnp.log(total)


def accumulate(options: Options, running: Running, q_BSKGH, k_BTKH, v_BTKH, bias_NST, places: Places) -> Running:
    """`running` after the queries have seen these keys."""

    def one(running, q, k, v, bias, places):
        scores, seen = _scores(options, q, k, bias, places)
        largest = jnp.maximum(running.largest, scores.max(-1))
        weights = jnp.where(seen, jnp.exp(scores - largest[..., None]), 0.0)
        shrink = jnp.exp(running.largest - largest)
        values = running.values * jnp.moveaxis(shrink, 3, 1)[..., None] + _weighted(options, weights, v, places)
        return Running(largest, running.total * shrink + weights.sum(-1), values)

    queries, keys = _pieces(q_BSKGH.shape[1]), _pieces(k_BTKH.shape[1])
    if queries == keys == 1:
        return one(running, q_BSKGH, k_BTKH, v_BTKH, bias_NST, places)

    def of_queries(i):
        r = Running(
            _cut(running.largest, 3, queries, i),
            _cut(running.total, 3, queries, i),
            _cut(running.values, 1, queries, i),
        )
        q, mine = _cut(q_BSKGH, 1, queries, i), _cut_queries(places, queries, i)
        bias = None if bias_NST is None else _cut(bias_NST, 1, queries, i)

        def of_keys(r, j):
            own = _cut_keys(mine, keys, j)
            b = None if bias is None else _cut(bias, 2, keys, j)
            return one(r, q, _cut(k_BTKH, 1, keys, j), _cut(v_BTKH, 1, keys, j), b, own), None

        return jax.lax.scan(of_keys, r, jnp.arange(keys))[0]

    many = jax.lax.map(of_queries, jnp.arange(queries))
    return Running(_join(many.largest, 3), _join(many.total, 3), _join(many.values, 1))


def gradients(options: Options, q_BSKGH, k_BTKH, v_BTKH, bias_NST, places: Places, log_total, out_gradient, delta):
    """Gradients (q, k, v, bias), float32, of these queries' attention to these keys, computed again from log_total.

    log_total [B, K, G, S]: of the whole softmax. out_gradient [B, S, K, G, H]; delta [B, K, G, S]: its product with the
    output, summed over H, by which the normalization pulls every score.
    """

    def one(q, k, v, bias, places, log_total, out_gradient, delta):
        def partial(q, k, v, bias):
            scores, seen = _scores(options, q, k, bias, places)
            weights = jnp.where(seen, jnp.exp(scores - log_total[..., None]), 0.0)
            return _weighted(options, weights, v, places), weights.sum(-1)

        _, pull = jax.vjp(partial, q, k, v, bias)
        return jax.tree.map(lambda g: g.astype(jnp.float32), pull((out_gradient, -delta)))

    queries, keys = _pieces(q_BSKGH.shape[1]), _pieces(k_BTKH.shape[1])
    if queries == keys == 1:
        return one(q_BSKGH, k_BTKH, v_BTKH, bias_NST, places, log_total, out_gradient, delta)

    def of_keys(dq, j):
        k, v, theirs = _cut(k_BTKH, 1, keys, j), _cut(v_BTKH, 1, keys, j), _cut_keys(places, keys, j)
        bias = None if bias_NST is None else _cut(bias_NST, 2, keys, j)

        def of_queries(dkv, i):
            b = None if bias is None else _cut(bias, 1, queries, i)
            dq_i, dk, dv, db = one(
                _cut(q_BSKGH, 1, queries, i),
                k,
                v,
                b,
                _cut_queries(theirs, queries, i),
                _cut(log_total, 3, queries, i),
                _cut(out_gradient, 1, queries, i),
                _cut(delta, 3, queries, i),
            )
            return (dkv[0] + dk, dkv[1] + dv), (dq_i, db)

        zero = (jnp.zeros(k.shape, jnp.float32), jnp.zeros(v.shape, jnp.float32))
        (dk, dv), (dq_many, db_many) = jax.lax.scan(of_queries, zero, jnp.arange(queries))
        return dq + _join(dq_many, 1), (dk, dv, None if bias is None else _join(db_many, 1))

    dq, (dk_many, dv_many, db_many) = jax.lax.scan(of_keys, jnp.zeros(q_BSKGH.shape, jnp.float32), jnp.arange(keys))
    return dq, _join(dk_many, 1), _join(dv_many, 1), None if bias_NST is None else _join(db_many, 2)


def _scores(options: Options, q_BSKGH, k_BTKH, bias_NST, places: Places) -> tuple[jax.Array, jax.Array]:
    """(scores [B, K, G, S, T], which of them count)."""
    K, G = q_BSKGH.shape[2:4]
    scale = jnp.asarray(1.0 / math.sqrt(q_BSKGH.shape[-1]), q_BSKGH.dtype)
    scores = jnp.einsum("bskgh,btkh->bkgst", q_BSKGH * scale, k_BTKH, preferred_element_type=jnp.float32)
    if bias_NST is not None:
        scores += bias_NST.reshape(K, G, *bias_NST.shape[1:]).astype(jnp.float32)
    if options.logit_cap is not None:
        scores = options.logit_cap * jnp.tanh(scores / options.logit_cap)
    seen_BST = places.segments_BS[:, :, None] == places.segments_BT[:, None, :]
    if options.causal:
        seen_BST &= places.t_T[None, None, :] <= places.s_S[None, :, None]
    seen = seen_BST[:, None, None]
    return jnp.where(seen, scores, _LOWEST), jnp.broadcast_to(seen, scores.shape)


def _weighted(options: Options, weights_BKGST, v_BTKH, places: Places) -> jax.Array:
    """[B, S, K, G, H], float32: dropped-out weights times values."""
    if places.noise is not None and options.dropout_rate:
        B, K, G, S, T = weights_BKGST.shape
        keep = places.noise.keep(
            options.dropout_rate, (B, *options.whole), places=(places.n_N, places.s_S, places.t_T)
        ).reshape(B, K, G, S, T)
        weights_BKGST = jnp.where(keep, weights_BKGST / (1.0 - options.dropout_rate), 0.0)
    return jnp.einsum(
        "bkgst,btkh->bskgh", weights_BKGST.astype(v_BTKH.dtype), v_BTKH, preferred_element_type=jnp.float32
    )


def _pieces(length: int) -> int:
    """Into how many equal pieces a block of `length` is cut."""
    return next(n for n in range(-(-length // LARGEST), length + 1) if length % n == 0)


def _cut(x: jax.Array, dim: int, pieces: int, index: jax.Array) -> jax.Array:
    size = x.shape[dim] // pieces
    return jax.lax.dynamic_slice_in_dim(x, index * size, size, dim)


def _join(x_many: Any, dim: int) -> Any:
    """[pieces, ..., n, ...] -> [..., pieces * n, ...] at `dim`."""
    x = jnp.moveaxis(x_many, 0, dim)
    return x.reshape(*x.shape[:dim], -1, *x.shape[dim + 2 :])


def _cut_queries(places: Places, pieces: int, index: jax.Array) -> Places:
    return dataclasses.replace(
        places, segments_BS=_cut(places.segments_BS, 1, pieces, index), s_S=_cut(places.s_S, 0, pieces, index)
    )


def _cut_keys(places: Places, pieces: int, index: jax.Array) -> Places:
    return dataclasses.replace(
        places, segments_BT=_cut(places.segments_BT, 1, pieces, index), t_T=_cut(places.t_T, 0, pieces, index)
    )
