"""Attention over a shared sequence is attention on one device: outputs and every gradient, masks, biases and noise included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistake import Mistake
from parallel.annotate import Randomness, activate, attend
from parallel.attention import attention
from parallel.context import ContextParallel
from parallel.context.blockwise import Options
from parallel.context.ring import Ring
from parallel.layout import Layout
from parallel.modes import Modes
from parallel.rules import Rules

B, S, N, H = 4, 32, 8, 4
MESHES = {"context": {"context": 8}, "data": {"data": 2, "context": 4}, "tensor": {"context": 4, "tensor": 2}}


def inputs(kv_heads=N, length=S, batch=B):
    rng = np.random.default_rng(0)
    draw = lambda heads: jnp.asarray(rng.normal(size=(batch, length, heads, H)).astype("f4"))
    # Two documents and padding, unequal in each example.
    cuts = np.sort(rng.integers(1, length, (batch, 2)), axis=1)
    place = np.arange(length)
    segments = np.where(place < cuts[:, :1], 1, np.where(place < cuts[:, 1:], 2, 0)).astype("i4")
    bias = jnp.asarray(rng.normal(size=(N, length, length)).astype("f4"))
    return draw(N), draw(kv_heads), draw(kv_heads), bias, jnp.asarray(segments)


def layout(context, sizes, kv_heads=N):
    mesh = jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))
    rules = {"length": "context"}
    if "data" in sizes:
        rules["batch"] = "data"
    if "tensor" in sizes:
        rules |= {"heads": "tensor"} | ({"kv_heads": "tensor"} if kv_heads % 2 == 0 else {})
    return Layout(sizes, {"": Modes(Rules({}, rules), context=context)}, mesh=mesh)


def run(q, k, v, bias, segments, *, how, causal, with_bias, noisy):
    random = Randomness.for_step(1, 2, len(q)) if noisy else None

    def loss(q, k, v, bias):
        out = how(
            q,
            k,
            v,
            segments_BS=segments,
            segments_BT=segments,
            causal=causal,
            bias_NST=bias if with_bias else None,
            logit_cap=5.0 if with_bias else None,
            dropout_rate=0.3,
            randomness=random,
        )
        return jnp.sum(jnp.where(segments[..., None, None] > 0, out * jnp.cos(jnp.arange(H)), 0)), out

    return jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True))(q, k, v, bias)


def agree(found, expected, segments):
    (_, out), grads = found
    (_, out_expected), grads_expected = expected
    real = np.asarray(segments) > 0
    np.testing.assert_allclose(np.asarray(out)[real], np.asarray(out_expected)[real], rtol=1e-5, atol=1e-5)
    for a, b in zip(grads, grads_expected, strict=True):
        assert np.linalg.norm(a - b) <= 1e-5 * max(np.linalg.norm(b), 1e-6), np.abs(a - b).max()


CASES = [
    (algorithm, mesh, kv_heads, causal, with_bias, noisy)
    for algorithm in ("ring", "allgather", "ulysses")
    for mesh, kv_heads, causal, with_bias, noisy in (
        ("context", N, True, False, True),
        ("context", N, False, True, True),
        ("context", 2, True, True, False),
        ("data", 2, True, False, True),
        ("data", N, False, False, False),
        ("tensor", N, True, True, True),
        ("tensor", 1, True, False, True),
        ("tensor", 2, False, True, False),
    )
]


@pytest.mark.parametrize(("algorithm", "mesh", "kv_heads", "causal", "with_bias", "noisy"), CASES)
def test_it_is_attention_on_one_device(algorithm, mesh, kv_heads, causal, with_bias, noisy):
    arrays = inputs(kv_heads)
    options = {"causal": causal, "with_bias": with_bias, "noisy": noisy}
    expected = run(*arrays, how=attention, **options)
    with activate(layout(ContextParallel(algorithm), MESHES[mesh], kv_heads)):
        agree(run(*arrays, how=attend, **options), expected, arrays[-1])


def test_without_balance_the_ring_is_the_same():
    arrays, options = inputs(), {"causal": True, "with_bias": False, "noisy": True}
    expected = run(*arrays, how=attention, **options)
    with activate(layout(ContextParallel("ring", balance=False), MESHES["context"])):
        agree(run(*arrays, how=attend, **options), expected, arrays[-1])


@pytest.mark.parametrize("algorithm", ["ring", "allgather"])
def test_blocks_that_are_gone_through_in_pieces_are_the_same(algorithm, monkeypatch):
    monkeypatch.setattr("parallel.context.blockwise.LARGEST", 2)
    arrays, options = inputs(2), {"causal": True, "with_bias": True, "noisy": True}
    expected = run(*arrays, how=attention, **options)
    with activate(layout(ContextParallel(algorithm), MESHES["data"], 2)):
        agree(run(*arrays, how=attend, **options), expected, arrays[-1])


def test_every_device_of_a_balanced_ring_does_the_same_and_half_of_all():
    """Of the (2 P)^2 pairs of pieces P (2 P + 1) have something to see of each other; each device does 2 P + 1 of them."""
    ring = Ring(Options((1, 1, 1), True, None, 0.0), ("context",), 8, 2)
    met = set()
    for device in range(8):
        own = set()
        for other in range(8):
            for i, j in ring.pairs(jnp.int32(device), jnp.int32(other), device == other):
                pair = int(ring.piece(device, int(i))), int(ring.piece(other, int(j)))
                assert pair[1] <= pair[0]
                own.add(pair)
        assert len(own) == 2 * 8 + 1
        met |= own
    assert met == {(q, k) for q in range(16) for k in range(q + 1)}


@pytest.mark.parametrize("algorithm", ["ring", "allgather", "ulysses"])
def test_it_works_within_a_stage_of_a_pipeline(algorithm):
    sizes = {"stage": 2, "context": 4}
    found = layout(ContextParallel(algorithm), sizes)
    q, k, v, _, segments = inputs()
    stages = lambda x: jnp.stack([x, x[::-1]])
    options = {"causal": True}
    one = lambda how: lambda q, k, v, s: how(q, k, v, segments_BS=s, segments_BT=s, **options)
    expected = jax.vmap(one(attention))(stages(q), stages(k), stages(v), stages(segments))
    with activate(found):
        got = jax.jit(jax.vmap(one(attend), spmd_axis_name="stage"))(stages(q), stages(k), stages(v), stages(segments))
    real = np.asarray(stages(segments)) > 0
    np.testing.assert_allclose(np.asarray(got)[real], np.asarray(expected)[real], rtol=1e-5, atol=1e-5)


def compiled(algorithm, length, heads=2):
    """The gradient of attention over 8 devices, or of plain attention on one where there is no algorithm."""
    shape = jax.ShapeDtypeStruct((1, length, heads, 8), jnp.float32)
    segments = jax.ShapeDtypeStruct((1, length), jnp.int32)
    how = attend if algorithm else attention

    def loss(q, k, v, segments):
        return jnp.sum(how(q, k, v, segments_BS=segments, segments_BT=segments, causal=True) ** 2)

    step = jax.grad(loss, (0, 1, 2))
    if not algorithm:
        return jax.jit(step).lower(shape, shape, shape, segments).compile()
    found = layout(ContextParallel(algorithm), MESHES["context"])
    split = jax.sharding.NamedSharding(found.mesh, jax.sharding.PartitionSpec(None, "context"))
    with activate(found):
        return jax.jit(step, in_shardings=split, out_shardings=split).lower(shape, shape, shape, segments).compile()


def test_a_ring_of_eight_takes_at_most_a_sixth_of_the_memory_at_8k_tokens():
    temporary = lambda algorithm: compiled(algorithm, 8192).memory_analysis().temp_size_in_bytes
    assert temporary("ring") <= temporary(None) / 6


@pytest.mark.parametrize(
    ("algorithm", "there", "not_there"),
    [
        ("ring", "collective-permute", "all-gather"),
        ("allgather", "all-gather", "all-to-all"),
        ("ulysses", "all-to-all", None),
    ],
)
def test_each_sends_as_its_name_says(algorithm, there, not_there):
    text = compiled(algorithm, 64, heads=8).as_text()
    assert f" {there}" in text
    assert not_there is None or f" {not_there}" not in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ContextParallel("rng"), "context.algorithm: 'rng' is not one. Nearest: 'ring'"),
        (lambda: ContextParallel("ulysses", balance=False), "context.balance: False has an effect only"),
    ],
)
def test_what_can_not_be_is_refused(make, message):
    with pytest.raises(Mistake) as caught:
        make()
    assert message in str(caught.value)


def attend_under(context, sizes, rules, length=S, heads=N, mesh=True):
    made = jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))
    found = Layout(sizes, {"": Modes(Rules({}, rules), context=context)}, mesh=made if mesh else None)
    x = jax.ShapeDtypeStruct((B, length, heads, H), jnp.float32)
    segments = jax.ShapeDtypeStruct((B, length), jnp.int32)
    with activate(found):
        jax.eval_shape(lambda x, s: attend(x, x, x, segments_BS=s, segments_BT=s, causal=True), x, segments)


@pytest.mark.parametrize("mesh", [True, False])
def test_a_length_that_no_axis_has_a_head_count_and_a_length_that_do_not_fit_are_refused(mesh):
    context = {"context": 8}
    with pytest.raises(Mistake, match="no mesh axis has the length"):
        attend_under(ContextParallel("ring"), context, {"batch": None}, mesh=mesh)
    with pytest.raises(Mistake, match="splits 6 heads 8 ways.*Ways that fit: 1, 2, 3, 6"):
        attend_under(ContextParallel("ulysses"), context, {"length": "context"}, heads=6, mesh=mesh)
    with pytest.raises(Mistake, match="Lengths that fit: 32, 48"):
        attend_under(ContextParallel("ring"), context, {"length": "context"}, length=40, mesh=mesh)
