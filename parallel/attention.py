"""Attention by the best kernel the backend has. XLA's own is the reference that every other one is tested against."""

import math

import jax
import jax.numpy as jnp

from parallel.randomness import Randomness, dropout

# Shape letters: B batch, S query positions, T key positions, N query heads, K key/value heads, G = N/K query heads that
# share one, H head dim.


def attention(
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
    """Softmax attention [B, S, N, H] within documents; scores and softmax in float32.

    Position s sees position t when both have the same segment id (0 is padding) and, if `causal`, t <= s.
    What a padding position gets means nothing, and no real position sees it. K must divide N: 1 is multi-query (Shazeer
      2019), fewer than N grouped-query
    (Ainslie et al. 2023). `bias_NST` is added to the scaled scores; `logit_cap` c bounds them as c * tanh(scores / c).
    q must not be scaled beforehand: scores are divided by sqrt(H) here.
    """
    B, S, N, H = q_BSNH.shape
    T, K = k_BTKH.shape[1:3]
    assert N % K == 0, (N, K)
    q_BSKGH = (q_BSNH * jnp.asarray(1.0 / math.sqrt(H), q_BSNH.dtype)).reshape(B, S, K, N // K, H)
    scores_BKGST = jnp.einsum("bskgh,btkh->bkgst", q_BSKGH, k_BTKH, preferred_element_type=jnp.float32)
    if bias_NST is not None:
        scores_BKGST += bias_NST.reshape(K, N // K, *bias_NST.shape[1:]).astype(jnp.float32)
    if logit_cap is not None:
        scores_BKGST = logit_cap * jnp.tanh(scores_BKGST / logit_cap)
    # Padding, too, sees its like alone: no row is without a key, which softmax could not normalize.
    seen_BST = segments_BS[:, :, None] == segments_BT[:, None, :]
    if causal:
        seen_BST &= jnp.arange(T)[None, None, :] <= jnp.arange(S)[None, :, None]
    lowest = jnp.finfo(jnp.float32).min
    scores_BKGST = jnp.where(seen_BST[:, None, None], scores_BKGST, lowest)
    weights_BKGST = jax.nn.softmax(scores_BKGST, axis=-1).astype(v_BTKH.dtype)
    weights_BKGST = dropout(weights_BKGST, dropout_rate, randomness, "attention_weights")
    out_BSKGH = jnp.einsum("bkgst,btkh->bskgh", weights_BKGST, v_BTKH)
    return out_BSKGH.reshape(B, S, N, H)
