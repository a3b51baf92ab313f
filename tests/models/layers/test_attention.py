"""Self-attention: what lies around the equation. The equation itself is tests/parallel/test_attention.py's."""

import math

import jax
import numpy as np
import pytest

from models.layers.attention import Context, SelfAttention
from parallel.parameters import bind, declared, initialize

B, S, D, N, H = 2, 5, 8, 4, 6
SEGMENTS = np.array([[1, 1, 1, 2, 2], [1, 1, 1, 0, 0]], "i4")
POSITIONS = np.array([[0, 1, 2, 0, 1], [0, 1, 2, 0, 0]], "i4")


def built(**options):
    """The layer with random values in every parameter, and those values."""
    layer = SelfAttention(D, N, head_dim=H, **options)
    rng = np.random.default_rng(0)
    values = {path: rng.normal(0, 0.5, record.shape).astype("f4") for path, record in declared(layer).items()}
    return layer, values


def numpy_attention(x, values, causal=False, scale=None):
    """Projections, equation 1 of Vaswani et al. 2017 within each document, and the output projection."""
    q, k, v = (
        np.einsum("bsd,dnh->bsnh", x, values[f"{name}.kernel"]) + values.get(f"{name}.bias", 0)
        for name in ("query", "key", "value")
    )
    q = q if scale is None else q * scale
    k, v = (np.repeat(a, N // a.shape[2], axis=2) for a in (k, v))
    out = np.zeros((B, S, N, H))
    for b, s, n in np.ndindex(B, S, N):
        if SEGMENTS[b, s] == 0:
            continue
        seen = [t for t in range(S) if SEGMENTS[b, t] == SEGMENTS[b, s] and (t <= s or not causal)]
        weights = np.exp([q[b, s, n] @ k[b, t, n] / math.sqrt(H) for t in seen])
        out[b, s, n] = (weights / weights.sum()) @ v[b, seen, n]
    return np.einsum("bsnh,nhd->bsd", out, values["out.kernel"]) + values.get("out.bias", 0)


def softplus(s):
    return np.log1p(np.exp(s))


@pytest.mark.parametrize(
    "options",
    [{}, {"num_kv_heads": 2}, {"num_kv_heads": 1, "bias": False}, {"causal": True}, {"per_dim_scale": True}],
    ids=["plain", "grouped", "multi_query", "causal", "per_dim_scale"],
)
def test_it_projects_attends_and_projects_back(options):
    layer, values = built(**options)
    x = np.random.default_rng(1).normal(size=(B, S, D)).astype("f4")
    scale = softplus(values["scale"].astype("f8")) / math.log(2) if "scale" in values else None
    expected = numpy_attention(x.astype("f8"), values, options.get("causal", False), scale)
    out = np.asarray(jax.jit(lambda v, x: bind(layer, v)(x, Context(SEGMENTS, POSITIONS)))(values, x))
    np.testing.assert_allclose(out[SEGMENTS != 0], expected[SEGMENTS != 0], rtol=1e-4, atol=1e-5)


def test_a_fresh_scale_a_dimension_is_one():
    plain, values = built()
    scaled = SelfAttention(D, N, head_dim=H, per_dim_scale=True)
    x = np.random.default_rng(1).normal(size=(B, S, D)).astype("f4")
    fresh = values | {"scale": initialize(declared(scaled), 0)["scale"]}
    context = Context(SEGMENTS, POSITIONS)
    out, expected = (jax.jit(lambda v, m=m: bind(m, v)(x, context))(v) for m, v in ((scaled, fresh), (plain, values)))
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_parameters_are_named_and_head_dim_may_differ_from_width_over_heads():
    layer, _ = built(num_kv_heads=2, per_dim_scale=True, positions="relative")
    assert {path: (d.shape, d.names) for path, d in declared(layer).items()} == {
        "query.kernel": ((D, N, H), ("embed", "heads", "head_dim")),
        "query.bias": ((N, H), ("heads", "head_dim")),
        "key.kernel": ((D, 2, H), ("embed", "kv_heads", "head_dim")),
        "key.bias": ((2, H), ("kv_heads", "head_dim")),
        "value.kernel": ((D, 2, H), ("embed", "kv_heads", "head_dim")),
        "value.bias": ((2, H), ("kv_heads", "head_dim")),
        "out.kernel": ((N, H, D), ("heads", "head_dim", "embed")),
        "out.bias": ((D,), ("embed",)),
        "scale": ((H,), ("head_dim",)),
        "relative.table": ((32, N), ("relative_buckets", "heads")),
    }
