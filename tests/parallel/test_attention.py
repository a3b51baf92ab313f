"""Attention against loops over Vaswani et al. 2017, equation 1, with what later papers added."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parallel.attention import attention
from parallel.randomness import Randomness

B, S, N, H = 3, 7, 4, 6


def loops(q, k, v, segments_q, segments_k, causal=False, bias=None, cap=None):
    """One score, one position, one head at a time, in float64. NaN where a position sees nothing."""
    b_, s_, n_, h_ = q.shape
    group = n_ // k.shape[2]
    out = np.full(q.shape, np.nan)
    for b, n, s in itertools.product(range(b_), range(n_), range(s_)):
        scores = {}
        for t in range(k.shape[1]):
            if segments_k[b, t] == 0 or segments_k[b, t] != segments_q[b, s] or (causal and t > s):
                continue
            score = sum(float(q[b, s, n, h]) * float(k[b, t, n // group, h]) for h in range(h_)) / math.sqrt(h_)
            score += 0.0 if bias is None else float(bias[n, s, t])
            scores[t] = score if cap is None else cap * math.tanh(score / cap)
        if scores:
            total = sum(math.exp(score) for score in scores.values())
            out[b, s, n] = sum(math.exp(scores[t]) / total * v[b, t, n // group].astype("f8") for t in scores)
    return out


def arrays(kv_heads, seed=0):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.normal(size=(B, S, n, H)).astype("f4") for n in (N, kv_heads, kv_heads))
    segments = np.array([[1] * 7, [1, 1, 1, 2, 2, 3, 0], [1, 1, 0, 0, 0, 0, 0]], "i4")
    return q, k, v, segments


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "bias": {"bias": 2.0},
    "cap": {"cap": 0.7},
    "all": {"causal": True, "bias": 2.0, "cap": 0.7},
}


@pytest.mark.parametrize("kv_heads", [4, 2, 1], ids=["multi_head", "grouped_query", "multi_query"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_it_is_the_papers_equation_within_documents(kv_heads, options):
    q, k, v, segments = arrays(kv_heads)
    bias = options.get("bias") and (options["bias"] * np.random.default_rng(1).normal(size=(N, S, S))).astype("f4")
    causal, cap = options.get("causal", False), options.get("cap")
    run = jax.jit(functools.partial(attention, causal=causal, logit_cap=cap))
    out = run(q, k, v, segments_BS=segments, segments_BT=segments, bias_NST=bias)
    expected = loops(q, k, v, segments, segments, causal, bias, cap)
    real = segments != 0
    assert not np.isnan(expected[real]).any()
    np.testing.assert_allclose(np.asarray(out)[real], expected[real], rtol=2e-5, atol=2e-6)


def test_queries_and_keys_may_differ_in_length():
    q, k, v, segments = arrays(2)
    keys = np.array([[1, 1, 1], [2, 3, 1], [1, 0, 0]], "i4")
    out = attention(q, k[:, :3], v[:, :3], segments_BS=segments, segments_BT=keys)
    real = segments != 0
    expected = loops(q, k[:, :3], v[:, :3], segments, keys)
    np.testing.assert_allclose(np.asarray(out)[real], expected[real], rtol=2e-5, atol=2e-6)


def test_what_padding_and_other_documents_hold_reaches_no_real_position():
    q, k, v, segments = arrays(4)
    run = functools.partial(attention, segments_BS=segments, segments_BT=segments)
    clean = np.asarray(run(q, k, v))
    unseen = (segments != 2)[..., None, None]
    dirty = np.asarray(run(np.where(unseen, 1e4, q), np.where(unseen, 1e4, k), np.where(unseen, 1e4, v)))
    np.testing.assert_array_equal(dirty[segments == 2], clean[segments == 2])


@pytest.mark.parametrize("cap", [None, 5.0])
def test_gradients_are_finite_with_rows_that_are_all_padding_and_padding_gets_none(cap):
    q, k, v, segments = arrays(2)
    segments[2] = 0

    def loss(q, k, v):
        out = attention(q, k, v, segments_BS=segments, segments_BT=segments, causal=True, logit_cap=cap)
        return jnp.sum(jnp.where((segments != 0)[..., None, None], out, 0.0) ** 2)

    value, gradients = jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(q, k, v)
    assert np.isfinite(value)
    for gradient in gradients:
        assert np.isfinite(gradient).all()
        assert (np.asarray(gradient)[segments == 0] == 0).all()
        assert (np.abs(np.asarray(gradient)[:2]).max((1, 2, 3)) > 0).all()


def test_scores_are_float32_when_the_rest_is_bfloat16():
    # Two keys whose scores, 256.0 and 256.5, are one number in bfloat16, whose step there is 2; e^.5 tells them apart.
    q = jnp.full((1, 1, 1, 2), 16.0 * 2**0.5, jnp.bfloat16)
    k = jnp.array([[[[16.0, 0.0]], [[16.0, 2.0**-5]]]], jnp.bfloat16)
    v = jnp.array([[[[0.0, 0.0]], [[1.0, 1.0]]]], jnp.bfloat16)
    ones = jnp.ones((1, 2), jnp.int32)
    out = attention(q, k, v, segments_BS=ones[:, :1], segments_BT=ones)
    assert out.dtype == jnp.bfloat16
    assert abs(float(out[0, 0, 0, 0]) - 1 / (1 + math.exp(-0.5))) < 0.01


def test_dropout_acts_on_the_weights_and_scales_what_is_left():
    # One key a query: its weight is 1 before dropout, so an output is v / (1 - rate) or 0, as a whole for each head.
    stream = Randomness.for_step(0, 0, 2)
    q = k = v = np.ones((2, 512, 2, 3), "f4")
    segments = np.tile(np.arange(1, 513, dtype="i4"), (2, 1))
    run = jax.jit(functools.partial(attention, dropout_rate=0.25))
    out = np.asarray(run(q, k, v, segments_BS=segments, segments_BT=segments, randomness=stream))
    assert (out == out[..., :1]).all()
    np.testing.assert_allclose(np.unique(out), [0, 4 / 3], rtol=1e-6)
    assert abs((out[..., 0] == 0).mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 2048)
    np.testing.assert_allclose(run(q, k, v, segments_BS=segments, segments_BT=segments), 1.0)


def test_an_example_keeps_its_dropout_when_the_batch_is_split():
    q, k, v, segments = arrays(2)
    whole = Randomness.for_step(0, 0, B)

    def run(rows):
        stream = Randomness(whole.key, jnp.asarray(rows))
        here = segments[rows]
        run = jax.jit(functools.partial(attention, dropout_rate=0.5))
        return run(q[rows], k[rows], v[rows], segments_BS=here, segments_BT=here, randomness=stream)

    together = run(np.array([0, 1, 2]))
    np.testing.assert_allclose(np.concatenate([run(np.array([0])), run(np.array([1, 2]))]), together, rtol=1e-6)
