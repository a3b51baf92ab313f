"""Three updates of each optimizer against the equations of its paper, written out in NumPy for one tensor at a time."""

from pathlib import Path

import gin
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mistake import Mistake
from parallel.parameters import Declared
from training import experiment  # noqa: F401  The configurations bind it.
from training.optimizers import adafactor, adamw, clip_by_global_norm, ema_update, lamb, sgd
from training.schedules import linear

CONFIGS = Path(__file__).parents[2] / "configs/optimizers"

DECLARED = {
    path: Declared(shape, names, init=jax.nn.initializers.normal())
    for path, shape, names in [
        ("embeddings.table", (6, 4), ("vocab", "embed")),
        ("blocks.query.kernel", (2, 6, 2, 4), ("layers", "embed", "heads", "head_dim")),
        ("blocks.up.kernel", (2, 4, 6), ("layers", "embed", "mlp")),
        ("blocks.up.bias", (2, 6), ("layers", "mlp")),
        ("norm.scale", (4,), ("embed",)),
    ]
}
UPDATES = 3
RATES = [0.1, 0.2 / 3, 0.1 / 3]
SCHEDULE = linear(0.1, steps=UPDATES)


def draw(seed):
    random = np.random.default_rng(seed)
    return {path: random.normal(size=record.shape).astype(np.float32) for path, record in DECLARED.items()}


PARAMS = draw(0)
GRADS = [draw(seed) for seed in range(1, UPDATES + 1)]


def train(optimizer):
    transform = optimizer.build(DECLARED)

    @jax.jit
    def update(params, state, grads):
        updates, state = transform.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params, state = PARAMS, jax.jit(transform.init)(PARAMS)
    for grads in GRADS:
        params, state = update(params, state, grads)
    return params


def by_tensor(reference, path):
    """`reference(w, [g of each update])` in float64, on each layer of a stacked parameter by itself."""
    w, gs = PARAMS[path].astype(np.float64), [grads[path].astype(np.float64) for grads in GRADS]
    if DECLARED[path].names[0] != "layers":
        return reference(w, gs)
    return np.stack([reference(w[layer], [g[layer] for g in gs]) for layer in range(len(w))])


def assert_follows(optimizer, reference):
    """`reference(spared)` is the loop for one tensor, which is spared decay (biases, norms) or not."""
    params = train(optimizer)
    for path in DECLARED:
        expected = by_tensor(reference(path.endswith((".bias", ".scale"))), path)
        np.testing.assert_allclose(params[path], expected, rtol=2e-5, atol=2e-6, err_msg=path)


def adam_directions(gs, b1, b2, eps):
    """Kingma and Ba, arXiv 1412.6980, algorithm 1, without the rate."""
    m = v = 0
    for t, g in enumerate(gs, start=1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        yield (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_heavy_ball_or_nesterov_with_decay_beside_the_momentum(nesterov):
    def reference(spared):
        def loop(w, gs):
            m = 0
            for rate, g in zip(RATES, gs):
                m = 0.9 * m + g
                w = w - rate * ((g + 0.9 * m if nesterov else m) + (0 if spared else 0.3) * w)
            return w

        return loop

    assert_follows(sgd(SCHEDULE, momentum=0.9, nesterov=nesterov, weight_decay=0.3), reference)


def test_adamw_is_algorithm_2_of_its_paper():
    def reference(spared):
        def loop(w, gs):
            for rate, d in zip(RATES, adam_directions(gs, 0.8, 0.95, 1e-3)):
                w = w - rate * (d + (0 if spared else 0.3) * w)
            return w

        return loop

    assert_follows(adamw(SCHEDULE, b1=0.8, b2=0.95, eps=1e-3, weight_decay=0.3), reference)


@pytest.mark.parametrize("trust_exempt", [None, (), ("mlp",)])
def test_lamb_scales_each_layer_by_its_own_norms_but_for_the_exempt(trust_exempt):
    def reference(path):
        spared = path.endswith((".bias", ".scale"))
        exempt = {None: spared, (): False, ("mlp",): ".up." in path}[trust_exempt]

        def loop(w, gs):
            for rate, r in zip(RATES, adam_directions(gs, 0.8, 0.95, 1e-3)):
                d = r + (0 if spared else 0.3) * w
                w = w - rate * d * (1 if exempt else np.sqrt((w**2).sum()) / np.sqrt((d**2).sum()))
            return w

        return loop

    params = train(lamb(SCHEDULE, b1=0.8, b2=0.95, eps=1e-3, weight_decay=0.3, trust_exempt=trust_exempt))
    for path in DECLARED:
        np.testing.assert_allclose(params[path], by_tensor(reference(path), path), rtol=2e-5, atol=2e-6, err_msg=path)


def test_lamb_moves_a_parameter_that_is_zero():
    transform = lamb(0.1, weight_decay=0.0).build({"w": Declared((3,), ("embed",), init=None)})
    w = {"w": jnp.zeros(3)}
    updates, _ = transform.update({"w": jnp.ones(3)}, transform.init(w), w)
    np.testing.assert_allclose(updates["w"], -0.1, rtol=1e-4)


def second_moments(g2s, b2s):
    """Averages of a tensor's squared gradients, a matrix's by its factors (arXiv 1804.04235, algorithm 4)."""
    r = c = v = 0
    for g2, b2 in zip(g2s, b2s):
        if g2.ndim == 2:
            r = b2 * r + (1 - b2) * g2.sum(axis=1)
            c = b2 * c + (1 - b2) * g2.sum(axis=0)
            yield np.outer(r, c) / r.sum()
        else:
            v = b2 * v + (1 - b2) * g2
            yield v


@pytest.mark.parametrize(
    "given, decay",
    [
        ({}, lambda t: 1 - t**-0.8),
        ({"decay_rate": 0.5}, lambda t: 1 - t**-0.5),
        ({"b2": 0.9}, lambda t: 0.9 * (1 - 0.9 ** (t - 1)) / (1 - 0.9**t)),
        ({"b1": 0.7, "clipping_threshold": None, "multiply_by_parameter_scale": False}, lambda t: 1 - t**-0.8),
    ],
)
def test_adafactor_is_algorithm_4_or_5_of_its_paper_on_each_layer(given, decay):
    b1, b2s = given.get("b1", 0.0), [decay(t) for t in (1, 2, 3)]

    def reference(spared):
        def loop(w, gs):
            m = 0
            g2s = [g**2 + 1e-30 for g in gs]
            if w.ndim == 3:  # a matrix [embed, head_dim] of each head
                heads = [second_moments([g2[:, n] for g2 in g2s], b2s) for n in range(w.shape[1])]
                vs = [np.stack(of_heads, axis=1) for of_heads in zip(*heads)]
            else:
                vs = second_moments(g2s, b2s)
            for rate, g, v in zip(RATES, gs, vs):
                u = g / np.sqrt(v)
                if "clipping_threshold" not in given:
                    u = u / max(1, np.sqrt((u**2).mean()) / 1.0)
                if "multiply_by_parameter_scale" not in given:
                    u = u * max(1e-3, np.sqrt((w**2).mean()))
                m = b1 * m + (1 - b1) * u
                w = w - rate * (m + (0 if spared else 0.3) * w)
            return w

        return loop

    assert_follows(adafactor(SCHEDULE, min_dim_size_to_factor=4, weight_decay=0.3, **given), reference)


def test_the_first_moment_is_kept_in_the_dtype_asked_for_and_the_second_in_the_parameters():
    for optimizer in (adamw(0.1, moment_dtype="bfloat16"), lamb(0.1, moment_dtype="bfloat16")):
        adam = jax.eval_shape(optimizer.build(DECLARED).init, PARAMS)["adam"]
        assert {slot.dtype for slot in adam.mu.values()} == {jnp.dtype("bfloat16")}
        assert {slot.dtype for slot in adam.nu.values()} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    "no_decay, spared",
    [
        ((), set()),
        (("*.bias", "*.scale"), {"blocks.up.bias", "norm.scale"}),
        (("vocab",), {"embeddings.table"}),
        (("embed", "blocks.up.*"), set(DECLARED)),
        (["blocks.*.kernel"], {"blocks.query.kernel", "blocks.up.kernel"}),
    ],
)
def test_no_decay_spares_parameters_by_logical_axis_or_path(no_decay, spared):
    zeros = jax.tree.map(np.zeros_like, PARAMS)
    for make in (sgd, adamw, lambda *args, **given: adafactor(*args, multiply_by_parameter_scale=False, **given)):
        transform = make(0.5, weight_decay=0.1, no_decay=no_decay).build(DECLARED)
        updates, _ = jax.jit(transform.update)(zeros, transform.init(PARAMS), PARAMS)
        for path, w in PARAMS.items():
            np.testing.assert_allclose(updates[path], 0 * w if path in spared else -0.05 * w, rtol=1e-6, err_msg=path)


def test_the_rate_for_the_log_is_the_rate_used_and_continues_from_the_count_in_the_state():
    optimizer = sgd(linear(1.0, steps=4), momentum=0.0)
    transform, w = optimizer.build({"w": DECLARED["norm.scale"]}), {"w": jnp.zeros(4)}
    state = transform.init(w)
    for i in range(6):
        assert state["rate"].count == i
        updates, state = transform.update({"w": jnp.ones(4)}, state, w)
        np.testing.assert_array_equal(updates["w"], -optimizer.rate(i))
    assert float(adamw(0.25).rate(7)) == 0.25


def test_the_default_patterns_may_match_nothing_and_a_users_may_not():
    only = {"w": Declared((4,), ("embed",), init=None)}
    adamw(0.1).build(only)
    with pytest.raises(Mistake, match=r"^adamw.no_decay: 'embd' matches no parameter.*Nearest: 'embed'"):
        adamw(0.1, no_decay=("embd",)).build(DECLARED)
    with pytest.raises(Mistake, match=r"^lamb.trust_exempt: 'norm.scal' matches no parameter.*Nearest: 'norm.scale'"):
        lamb(0.1, trust_exempt=("norm.scal",)).build(DECLARED)
    with pytest.raises(Mistake, match=r"^sgd.no_decay: 'xyz' matches no parameter.*Axes: embed, head_dim"):
        sgd(0.1, weight_decay=0.1, no_decay=("xyz",)).build(DECLARED)
    with pytest.raises(Mistake, match=r"^adamw.no_decay: 'vocab' is one pattern.*Write \('vocab',\)"):
        adamw(0.1, no_decay="vocab").build(DECLARED)


@pytest.mark.parametrize(
    "build, binding",
    [
        (lambda: sgd(-0.1), "sgd.learning_rate: -0.1"),
        (lambda: sgd(0.1, momentum=1.0), "sgd.momentum: 1.0"),
        (lambda: sgd(0.1, momentum=0.0, nesterov=True), "sgd.nesterov: has no effect"),
        (lambda: adamw("fast"), "adamw.learning_rate: 'fast'"),
        (lambda: adamw(0.1, b1=1.0), "adamw.b1: 1.0"),
        (lambda: adamw(0.1, eps=0.0), "adamw.eps: 0.0"),
        (lambda: adamw(0.1, weight_decay=-1.0), "adamw.weight_decay: -1.0"),
        (lambda: adamw(0.1, weight_decay=0.0, no_decay=("vocab",)), "adamw.no_decay: has no effect"),
        (lambda: adamw(0.1, moment_dtype="bf16"), "adamw.moment_dtype: 'bf16'"),
        (lambda: lamb(0.1, b2=-0.1), "lamb.b2: -0.1"),
        (lambda: lamb(0.1, weight_decay=0.0, no_decay=("vocab",), trust_exempt=()), "lamb.no_decay: has no effect"),
        (lambda: adafactor(0.1, b2=1.0), "adafactor.b2: 1.0"),
        (lambda: adafactor(0.1, b2=0.99, decay_rate=0.8), "adafactor.b2: adafactor.decay_rate is given too"),
        (lambda: adafactor(0.1, decay_rate=0.0), "adafactor.decay_rate: 0.0"),
        (lambda: adafactor(0.1, clipping_threshold=0.0), "adafactor.clipping_threshold: 0.0"),
    ],
)
def test_an_optimizer_that_cannot_be_meant_names_its_binding(build, binding):
    with pytest.raises(Mistake) as caught:
        build()
    assert str(caught.value).startswith(binding)


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.gin")))
def test_every_config_gives_an_optimizer_with_a_rate_above_zero(name):
    gin.parse_config_file(str(CONFIGS / f"{name}.gin"))
    try:
        macros = {"adafactor": "", "sgd": "STEPS = 20000\ncosine.peak = 0.1"}.get(name, "STEPS = 20000")
        gin.parse_config(f"{macros}\nchosen/macro.value = @{name}()")
        optimizer = gin.query_parameter("chosen/macro.value").scoped_configurable_fn()
        jax.eval_shape(optimizer.build(DECLARED).init, PARAMS)
        assert float(optimizer.rate(0)) > 0
    finally:
        gin.clear_config()


def test_clipping_uses_the_norm_of_the_whole_gradient_and_leaves_a_smaller_one_alone():
    grads = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]], jnp.bfloat16)}
    clipped, norm = clip_by_global_norm(grads, 1.0)
    assert float(norm) == 5.0 and norm.dtype == jnp.float32 and clipped["b"].dtype == jnp.bfloat16
    np.testing.assert_allclose(clipped["a"], [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(clipped["b"].astype(jnp.float32), [[0.8]], rtol=4e-3)
    for max_norm in (5.0, 10.0, None):
        same, norm = clip_by_global_norm(grads, max_norm)
        assert float(norm) == 5.0
        jax.tree.map(np.testing.assert_array_equal, same, grads)


def test_clipping_a_gradient_of_zeros_gives_zeros():
    clipped, norm = clip_by_global_norm({"a": jnp.zeros(3)}, 1.0)
    assert float(norm) == 0 and not clipped["a"].any()


def test_clipping_does_not_depend_on_the_sharding():
    mesh = jax.make_mesh((len(jax.devices()),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    grads = {"a": np.arange(16.0 * len(jax.devices()), dtype=np.float32).reshape(-1, 16), "b": np.ones(3, np.float32)}
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    sharded = grads | {"a": jax.device_put(grads["a"], sharding)}
    clipped, norm = jax.jit(clip_by_global_norm, static_argnums=1)(sharded, 2.0)
    expected = np.sqrt((grads["a"].astype(np.float64) ** 2).sum() + 3)
    np.testing.assert_allclose(norm, expected, rtol=1e-6)
    np.testing.assert_allclose(clipped["a"], grads["a"] * 2 / expected, rtol=1e-6)


def test_the_debiased_average_weighs_every_update_by_its_age_and_the_start_not_at_all():
    values = [np.float32(v) for v in (5.0, -1.0, 2.0, 7.0)]
    ema = {"w": jnp.full(2, 100.0)}
    for step, value in enumerate(values):
        ema = jax.jit(ema_update, static_argnums=2)(ema, {"w": jnp.full(2, value)}, 0.9, step)
        ages = 0.9 ** np.arange(step, -1, -1)
        np.testing.assert_allclose(ema["w"], (ages * values[: step + 1]).sum() / ages.sum(), rtol=1e-5)


def test_the_plain_average_starts_from_what_it_is_given():
    ema = ema_update({"w": jnp.float32(10.0)}, {"w": jnp.float32(20.0)}, 0.9, step=0, debias=False)
    np.testing.assert_allclose(ema["w"], 0.9 * 10 + 0.1 * 20, rtol=1e-6)


def test_the_debiased_average_of_a_long_run_is_the_plain_one():
    ema, params = {"w": jnp.float32(1.0)}, {"w": jnp.float32(2.0)}
    np.testing.assert_allclose(ema_update(ema, params, 0.9999, step=1_000_000)["w"], 1.0001, rtol=1e-7)
