"""Context parallelism: attention over a sequence that devices share.

Which mesh axis shares it is what rules.activations gives to 'length'. Queries, keys and values come and go in the order of
the sequence, each device with its share; within, one of three algorithms sees to it that every query meets every key.
"""

import dataclasses
from typing import Any, Literal

import gin
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from mistake import Mistake, nearest
from parallel.context.blockwise import Options
from parallel.context.ring import Beside, Ring, balanced, in_order, ring_attention
from parallel.randomness import Randomness

ALGORITHMS = ("ring", "allgather", "ulysses")
Axes = tuple[str, ...]


@gin.configurable("context")
@dataclasses.dataclass(frozen=True)
class ContextParallel:
    """How attention goes over a sequence that is split along its length.

    Args:
      algorithm: None leaves it to the partitioner. 'ring': keys and values go round (Liu et al. 2023), memory falls with
        the square of the axis. 'allgather': keys and values are gathered whole on every device (Dubey et al. 2024, section
        3.3.2). 'ulysses': heads are split in place of the sequence, and back (Jacobs et al. 2023).
      balance: 'ring' with causal attention only: each device takes a piece of the beginning and one of the end, so that all
        have the same to do, and half as much.
    """

    algorithm: Literal["ring", "allgather", "ulysses"] | None = None
    balance: bool = True

    def __post_init__(self):
        if self.algorithm is not None and self.algorithm not in ALGORITHMS:
            hint = nearest(str(self.algorithm), ALGORITHMS)
            raise Mistake(f"context.algorithm: {self.algorithm!r} is not one. {hint} All: {', '.join(ALGORITHMS)}.")
        if not self.balance and self.algorithm != "ring":
            raise Mistake("context.balance: False has an effect only where context.algorithm = 'ring'. Leave it out.")

    def attend(
        self,
        mesh: Mesh | None,
        sizes: dict[str, int],
        query: tuple[Axes, ...],
        key: tuple[Axes, ...],
        q_BSNH: jax.Array,
        k_BTKH: jax.Array,
        v_BTKH: jax.Array,
        *,
        segments_BS: jax.Array,
        segments_BT: jax.Array,
        causal: bool = False,
        bias_NST: jax.Array | None = None,
        logit_cap: float | None = None,
        dropout_rate: float = 0.0,
        randomness: Randomness | None = None,
    ) -> jax.Array:
        """parallel.attention.attention over `mesh` (None: only checked).

        query, key: the mesh axes of each dimension of q, and of k and v: (batch, length, heads, head_dim).
        Raises Mistake when the length isn't split, or can't be in this way.
        """
        (_, S, N, _), (_, T, K, _) = q_BSNH.shape, k_BTKH.shape
        batch, length, heads, _ = query
        if not length:
            raise Mistake(
                f"context.algorithm: {self.algorithm!r}, and no mesh axis has the length of the sequence. Say which: "
                "rules.activations = {'length': 'context', ...}, or leave context.algorithm out."
            )
        ways = _ways(sizes, length)
        self._check(S, T, N // _ways(sizes, heads), ways, causal)
        options = Options((N, S, T), causal, logit_cap, dropout_rate if randomness is not None else 0.0)
        noisy = randomness is not None and dropout_rate > 0
        if mesh is None:
            return q_BSNH

        def local(q, k, v, bias, segments_q, segments_k, noise):
            first = _index(heads) * q.shape[2]
            n_N = first + jnp.arange(q.shape[2])
            # Where fewer key heads are split than query heads, these queries' own are picked.
            if k.shape[2] * (N // K) != q.shape[2]:
                picked = n_N // (N // K) - _index(key[2]) * k.shape[2]
                k, v = k[:, :, picked], v[:, :, picked]
            beside = (segments_q, segments_k, n_N, *noise)
            algorithm = {"ring": self._ring, "allgather": _allgather, "ulysses": _ulysses}[self.algorithm]
            return algorithm(options, length, ways, q, k, v, bias, beside)

        spec = lambda *axes: PartitionSpec(*(a if a else None for a in axes))
        # The stream that attention() drops weights by.
        stream = randomness.named("attention_weights") if noisy else None
        noise = (jax.random.key_data(stream.key), stream.example_B) if noisy else (None, None)
        in_specs = (
            spec(batch, length, heads, ()),
            spec(batch, length, key[2], ()),
            spec(batch, length, key[2], ()),
            None if bias_NST is None else spec(heads, (), ()),
            spec(batch, length),
            spec(batch, length),
            (spec(()), spec(batch)) if noisy else (None, None),
        )
        run = jax.shard_map(local, mesh=mesh, in_specs=in_specs, out_specs=in_specs[0], check_vma=False)
        return run(q_BSNH, k_BTKH, v_BTKH, bias_NST, segments_BS, segments_BT, noise)

    def _ring(self, options: Options, length: Axes, ways: int, q, k, v, bias, beside) -> jax.Array:
        two = self.balance and options.causal and ways > 1
        ring = Ring(options, length, ways, 2 if two else 1)
        cut = (lambda x: balanced(ring, x)) if two else (lambda x: x[None])
        segments_q, segments_k, n_N, key_data, example_B = beside
        together = Beside(cut(segments_q), cut(segments_k), n_N, key_data, example_B)
        out = ring_attention(ring, cut(_grouped(q, k)), cut(k), cut(v), bias, together)
        return (in_order(ring, out) if two else out[0]).reshape(q.shape)

    def _check(self, S: int, T: int, local_heads: int, ways: int, causal: bool) -> None:
        if S != T:
            raise Mistake(
                f"context.algorithm: {self.algorithm!r} is for self-attention, and {S} positions attend to {T}."
            )
        if self.algorithm == "ulysses" and local_heads % ways:
            fits = [n for n in range(1, local_heads + 1) if local_heads % n == 0]
            raise Mistake(
                f"context.algorithm: 'ulysses' splits {local_heads} heads {ways} ways, which does not divide them. Ways that fit: "
                f"{', '.join(map(str, fits))}. Or take 'ring'."
            )
        if self.algorithm == "ring" and self.balance and causal and S % (2 * ways):
            raise Mistake(
                f"context.balance: a length of {S} can't be cut into {2 * ways} pieces, two for each of {ways} devices. "
                f"Lengths that fit: {S // (2 * ways) * 2 * ways}, {(S // (2 * ways) + 1) * 2 * ways}. Or context.balance = False."
            )


def _allgather(options: Options, length: Axes, ways: int, q, k, v, bias, beside) -> jax.Array:
    """Keys and values whole on every device; their gradients are scattered back, summed."""
    segments_q, segments_k, n_N, key_data, example_B = beside
    whole = lambda x: jax.lax.all_gather(x, length, axis=1, tiled=True)
    s = q.shape[1]
    first = _index(length) * s
    # Alone on its ring, with queries that begin later than the keys: rows of the bias and of the mask from there on.
    ring = Ring(options, (), 1, 1)
    return _rows(ring, q, whole(k), whole(v), bias, segments_q, whole(segments_k), n_N, key_data, example_B, first)


def _ulysses(options: Options, length: Axes, ways: int, q, k, v, bias, beside) -> jax.Array:
    """Each device gets the whole sequence of 1/ways of the heads, and gives it back."""
    segments_q, segments_k, n_N, key_data, example_B = beside
    if k.shape[2] % ways:
        # Fewer key heads than ways: each goes to every device whose query heads share it.
        group = q.shape[2] // k.shape[2]
        k, v = jnp.repeat(k, group, axis=2), jnp.repeat(v, group, axis=2)
    heads = lambda x: jax.lax.all_to_all(x, length, split_axis=2, concat_axis=1, tiled=True)
    whole = lambda x: jax.lax.all_gather(x, length, axis=1, tiled=True)
    mine = q.shape[2] // ways
    chosen = _index(length) * mine
    n_N = jax.lax.dynamic_slice_in_dim(n_N, chosen, mine)
    bias = None if bias is None else jax.lax.dynamic_slice_in_dim(bias, chosen, mine, axis=0)
    ring = Ring(options, (), 1, 1)
    segments_q, segments_k = whole(segments_q), whole(segments_k)
    out = _rows(ring, heads(q), heads(k), heads(v), bias, segments_q, segments_k, n_N, key_data, example_B, 0)
    return jax.lax.all_to_all(out, length, split_axis=1, concat_axis=2, tiled=True)


def _rows(ring: Ring, q, k, v, bias, segments_q, segments_k, n_N, key_data, example_B, first: Any) -> jax.Array:
    """Attention of the queries [B, s, N, H] that begin at position `first` to all keys."""
    beside = Beside(segments_q[None], segments_k[None], n_N, key_data, example_B, jnp.asarray(first, jnp.int32))
    return ring_attention(ring, _grouped(q, k)[None], k[None], v[None], bias, beside)[0].reshape(q.shape)


def _grouped(q_BSNH: jax.Array, k_BTKH: jax.Array) -> jax.Array:
    """[B, S, K, G, H]: query heads by the key head that they share."""
    B, S, N, H = q_BSNH.shape
    K = k_BTKH.shape[2]
    return q_BSNH.reshape(B, S, K, N // K, H)


def _ways(sizes: dict[str, int], axes: Axes) -> int:
    ways = 1
    for axis in axes:
        ways *= sizes[axis]
    return ways


def _index(axes: Axes) -> Any:
    """This device's place along `axes`."""
    return jax.lax.axis_index(axes) if axes else 0
