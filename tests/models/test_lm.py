"""Causal decoders against published parameter counts, a decoder in NumPy, and transformers' Llama."""

import functools
import pathlib

import gin
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from mistake import Mistake
from models.layers.moe import MoE
from models.lm import DecoderLM
from parallel.annotate import Randomness
from parallel.parameters import bind, declared
from tests.models.numpy_lm import numpy_lm

# Parameter counts, built in no memory.


@pytest.mark.parametrize(
    ("config", "published"),
    [("lamda_137b", 137_702_416_384), ("lingvo_1t", 1_100_041_175_040), ("lingvo_175b", 174_366_928_896)],
)
def test_a_published_decoder_has_the_published_number_of_parameters(config, published):
    gin.parse_config_file(f"configs/models/{config}.gin")
    assert sum(record.size for record in declared(DecoderLM()).values()) == published


def test_a_mixture_has_its_experts_and_router_in_every_other_layer():
    gin.parse_config_file("configs/models/moe_tiny.gin")
    found = {path: record.shape for path, record in declared(DecoderLM()).items() if "mlp" in path.split(".")}
    assert found == {
        "blocks.dense.0.mlp.up.kernel": (2, 128, 384),
        "blocks.dense.0.mlp.gate.kernel": (2, 128, 384),
        "blocks.dense.0.mlp.down.kernel": (2, 384, 128),
        "blocks.mixture.mlp.router": (2, 128, 8),
        "blocks.mixture.mlp.up": (2, 8, 128, 384),
        "blocks.mixture.mlp.gate": (2, 8, 128, 384),
        "blocks.mixture.mlp.down": (2, 8, 384, 128),
    }


# Logits.

SMALL = {"num_layers": 2, "width": 8, "num_heads": 4, "mlp_width": 12, "vocab_size": 20, "max_length": 16}
SWITCHES = {
    "as they are made today": {"num_kv_heads": 2},
    "learned": {"positions": "learned", "gated_mlp": False, "activation": "gelu", "tied": False},
    "sinusoidal": {"positions": "sinusoidal", "per_dim_scale": True, "logit_cap": 2.0, "num_kv_heads": 1},
    "relative": {"positions": "relative", "head_dim": 3},
    "biases": {
        "norm": "layer",
        "norm_epsilon": 1e-12,
        "attention_bias": True,
        "mlp_bias": True,
        "norm_bias": True,
        "activation": "relu",
    },
    "padded heads": {"num_heads": 3, "head_dim": 6, "padded_heads": 4, "positions": "relative", "attention_bias": True},
    "padded query heads": {"num_heads": 2, "num_kv_heads": 1, "padded_heads": 8},
    "mixture": {"moe": {"num_experts": 4, "eval_capacity_factor": 0.5}, "num_layers": 4},
    "mixture by first choice": {"moe": {"num_experts": 4, "eval_capacity_factor": 0.5, "routing": "top1"}},
    "mixture in every layer": {
        "moe": {"num_experts": 3, "eval_capacity_factor": 3.0},
        "moe_every": 1,
        "mlp_bias": True,
    },
    "mixture in every third": {"moe": {"num_experts": 4}, "moe_every": 3, "num_layers": 6, "gated_mlp": False},
}
# (choices of a token, seats of an expert) in rows of 14: ceil(.5 * k * 14 / 4) rounded up; all; 14, rounded up to no
# more than all.
ROUTED = {
    "mixture": (2, 4),
    "mixture by first choice": (1, 4),
    "mixture in every layer": (2, 14),
    "mixture in every third": (2, 14),
}


def built(switches):
    """The model, and values large enough that every part of it matters."""
    moe = {"moe": MoE(**switches["moe"])} if "moe" in switches else {}
    model = DecoderLM(**SMALL | switches | moe)
    rng = np.random.default_rng(0)
    values = {path: rng.normal(0, 0.5, d.shape).astype("f4") for path, d in declared(model).items()}
    return model, {path: v + 1 if path.endswith("norm.scale") else v for path, v in values.items()}


def packed_rows():
    """tokens, segment ids and positions of two rows: documents of 5, 4 and 3 with padding, and one of 10."""
    rng = np.random.default_rng(1)
    segments = np.array([[1] * 5 + [2] * 4 + [3] * 3 + [0] * 2, [1] * 10 + [0] * 4], "i4")
    positions = np.array([[*range(5), *range(4), *range(3), 0, 0], [*range(10), 0, 0, 0, 0]], "i4")
    return np.where(segments, rng.integers(1, 20, segments.shape), 0).astype("i4"), segments, positions


REAL = packed_rows()[1] != 0


@functools.cache
def compiled(name):
    """A jitted (values, inputs) -> (logits, gradients of a random projection of the states), and the values."""
    model, values = built(SWITCHES[name])
    direction = np.random.default_rng(2).normal(size=(2, 14, 8)).astype("f4")

    def loss(values, inputs):
        bound = bind(model, values)
        x_BSD, _ = bound(*inputs)
        logits = bound.logits(x_BSD)
        return jnp.sum(jnp.where(REAL[..., None], x_BSD * direction, 0.0)) + 0.1 * jnp.sum(logits[REAL][:, 3]), logits

    step = jax.jit(jax.grad(loss, has_aux=True), compiler_options={"xla_backend_optimization_level": 0})
    return step, values


def logits(name, inputs):
    step, values = compiled(name)
    return np.asarray(step(values, inputs)[1])


@pytest.mark.parametrize("name", SWITCHES)
def test_logits_are_those_of_a_decoder_in_numpy(name):
    inputs, settings = packed_rows(), SMALL | SWITCHES[name]
    if "moe" in settings:
        settings = settings | {"moe": settings["moe"] | dict(zip(("choices", "seats"), ROUTED[name], strict=True))}
    expected = numpy_lm(compiled(name)[1], *inputs, settings)
    np.testing.assert_allclose(logits(name, inputs)[REAL], expected[REAL], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", SWITCHES)
def test_gradients_are_finite_and_reach_every_parameter_but_those_of_heads_that_only_pad(name):
    step, values = compiled(name)
    gradients, _ = step(values, packed_rows())
    settings, reached = SMALL | SWITCHES[name], 0
    for path, gradient in gradients.items():
        assert np.isfinite(gradient).all(), path
        if settings.get("padded_heads") and ".attention." in path and "out.bias" not in path:
            heads = {"query.kernel": 2, "key.kernel": 2, "value.kernel": 2, "out.kernel": 1, "table": 2}
            axis = next((axis for end, axis in heads.items() if path.endswith(end)), 1)
            if gradient.shape[axis] == settings["padded_heads"]:
                real, padding = np.split(np.asarray(gradient), [settings["num_heads"]], axis)
                assert not padding.any(), path
                gradient, reached = real, reached + 1
        # A key bias adds the same to every score of a query, which softmax does not see.
        if not path.endswith("key.bias"):
            layers = gradient if path.startswith("blocks.") else np.asarray(gradient)[None]
            assert all(np.abs(layer).max() > 1e-5 for layer in layers), path
    assert (reached > 0) == bool(settings.get("padded_heads"))


def test_padded_heads_are_weights_that_change_nothing():
    model, values = built(SWITCHES["padded heads"])
    assert values["blocks.attention.query.kernel"].shape == (2, 8, 4, 6)
    changed = {path: v.copy() for path, v in values.items()}
    changed["blocks.attention.query.kernel"][:, :, 3] = 7.0
    changed["blocks.attention.value.kernel"][:, :, 3] = -5.0
    changed["blocks.attention.out.kernel"][:, 3] = 3.0
    states = [jax.jit(lambda v: bind(model, v)(*packed_rows())[0])(v) for v in (values, changed)]
    np.testing.assert_array_equal(*states)


def test_the_head_dimension_is_that_of_the_heads_without_padding():
    model = DecoderLM(**SMALL | {"padded_heads": 6})
    assert declared(model)["blocks.attention.query.kernel"].shape == (2, 8, 6, 2)


@pytest.mark.parametrize("name", [name for name in SWITCHES if name != "mixture"])
def test_no_logit_depends_on_a_token_that_comes_later(name):
    # Where seats are few, a later token's first choice may take that of an earlier token's second one: GShard's order.
    tokens, segments, positions = packed_rows()
    expected = logits(name, (tokens, segments, positions))
    for at in (3, 7):
        changed = tokens.copy()
        changed[:, at:] = np.where(segments[:, at:], (changed[:, at:] + 5) % 19 + 1, 0)
        found = logits(name, (changed, segments, positions))
        np.testing.assert_allclose(found[:, :at], expected[:, :at], rtol=1e-5, atol=1e-5)
        assert np.abs(found[:, at] - expected[:, at]).max() > 1e-2


@pytest.mark.parametrize("name", [name for name in SWITCHES if ROUTED.get(name, (0, 14))[1] == 14])
def test_packed_documents_get_the_logits_they_get_in_rows_of_their_own(name):
    # Documents of a row share its experts' seats, so where these are few it does not hold.
    inputs = packed_rows()
    packed = logits(name, inputs)
    starts = [(0, 0, 5), (0, 5, 4), (0, 9, 3), (1, 0, 10)]
    for pair in (starts[:2], starts[2:]):
        alone = [np.zeros_like(array) for array in inputs]
        for row, (source, start, length) in enumerate(pair):
            for mine, theirs in zip(alone, inputs, strict=True):
                mine[row, :length] = theirs[source, start : start + length]
            alone[1][row, :length] = 1
        out = logits(name, tuple(alone))
        for row, (source, start, length) in enumerate(pair):
            np.testing.assert_allclose(out[row, :length], packed[source, start : start + length], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", SWITCHES)
def test_what_padding_holds_changes_nothing(name):
    inputs = packed_rows()
    tokens, segments, positions = (array.copy() for array in inputs)
    tokens[~REAL], positions[~REAL] = 7, 11
    np.testing.assert_array_equal(logits(name, (tokens, segments, positions))[REAL], logits(name, inputs)[REAL])


def test_llama_of_transformers_has_the_same_logits():
    saved = safetensors.numpy.load_file(pathlib.Path(__file__).parent / "fixtures" / "llama.safetensors")
    model = DecoderLM(2, 16, 4, 24, 40, num_kv_heads=2, head_dim=6, norm_epsilon=1e-3, rotary_base=500.0, tied=False)
    shapes = {path: record.shape for path, record in declared(model).items()}
    layers = {
        "attention_norm.scale": "input_layernorm",
        "mlp_norm.scale": "post_attention_layernorm",
        "attention.query.kernel": "self_attn.q_proj",
        "attention.key.kernel": "self_attn.k_proj",
        "attention.value.kernel": "self_attn.v_proj",
        "attention.out.kernel": "self_attn.o_proj",
        "mlp.gate.kernel": "mlp.gate_proj",
        "mlp.up.kernel": "mlp.up_proj",
        "mlp.down.kernel": "mlp.down_proj",
    }
    values = {
        "token.table": saved["model.embed_tokens.weight"],
        "final_norm.scale": saved["model.norm.weight"],
        "output.kernel": saved["lm_head.weight"].T,
    }
    for ours, theirs in layers.items():
        each = [saved[f"model.layers.{layer}.{theirs}.weight"].T for layer in range(2)]
        values[f"blocks.{ours}"] = np.stack(each).reshape(shapes[f"blocks.{ours}"])
    tokens = saved["tokens"].astype("i4")
    positions = np.broadcast_to(np.arange(11, dtype="i4"), tokens.shape)
    bound = bind(model, values)
    found = bound.logits(bound(tokens, np.ones_like(tokens), positions)[0])
    np.testing.assert_allclose(found, saved["expected"], rtol=1e-5, atol=1e-5)


def test_bfloat16_computes_in_bfloat16_near_the_float32_result_with_float32_logits():
    model, values = built({"num_kv_heads": 2, "dtype": "bfloat16"})
    bound = bind(model, values)
    x_BSD, _ = bound(*packed_rows())
    found = bound.logits(x_BSD)
    assert x_BSD.dtype == jnp.bfloat16 and found.dtype == jnp.float32
    error = np.asarray(found)[REAL] - logits("as they are made today", packed_rows())[REAL]
    assert np.sqrt((error**2).mean()) < 0.1


@pytest.mark.parametrize("switches", [{}, {"moe": {"num_experts": 4}}], ids=["dense", "mixture"])
def test_dropout_is_an_examples_own_and_different_at_each_layer_and_step(switches):
    model, values = built({"dropout": 0.3, "attention_dropout": 0.3} | switches)
    inputs = packed_rows()
    step = jax.jit(lambda inputs, randomness: bind(model, values)(*inputs, randomness)[0])
    whole = Randomness.for_step(0, 5, 2)
    together = np.asarray(step(inputs, whole))
    swapped = step(tuple(a[::-1] for a in inputs), Randomness(whole.key, whole.example_B[::-1]))
    np.testing.assert_allclose(swapped[::-1][REAL], together[REAL], rtol=1e-4, atol=1e-4)
    assert not np.allclose(step(inputs, Randomness.for_step(0, 6, 2))[REAL], together[REAL])


# Mistakes.


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        ({"num_heads": 5}, "lm.num_heads: 5 does not divide lm.width 8. Near ones that do: [1, 2, 4, 8]."),
        ({"num_layers": 0}, "lm.num_layers: 0. It must be at least 1."),
        ({"head_dim": 5}, "lm.positions: 'rotary' turns pairs of dimensions, so an odd head dimension (5)"),
        ({"norm_bias": True}, "lm.norm_bias: an 'rms' norm has none. Leave it out, or take lm.norm = 'layer'."),
        ({"activation": "sillu"}, "lm.activation: 'sillu' is not an activation. Nearest: 'silu'."),
        ({"rotary_base": 0.0}, "lm.rotary_base: 0.0. It must be above 0."),
        ({"padded_heads": 4}, "lm.padded_heads: 4 pads nothing, since there are 4 heads. Leave it out."),
        ({"padded_heads": 6, "num_kv_heads": 2}, "lm.padded_heads: 6 would give the 2 key/value heads other groups"),
        ({"moe_every": 1}, "lm.moe_every: 1 has no effect without a mixture of experts. Set lm.moe = @moe()."),
        ({"moe": {}, "moe_every": 4}, "lm.moe_every: 4 of 2 layers leaves no mixture of experts, or some layers over."),
        (
            {"moe": {}, "num_layers": 3},
            "lm.moe_every: 2 of 3 layers leaves no mixture of experts, or some layers over.",
        ),
        ({"moe": {}, "moe_every": 0}, "lm.moe_every: 0 of 2 layers"),
        ({"moe": {"routing": "expert_choice"}}, "moe.routing: 'expert_choice' looks at tokens that come later, so a"),
        ({"moe": MoE}, "lm.moe: <class 'models.layers.moe.MoE'> is not a mixture of experts. Write @moe(), with its"),
    ],
    ids=str,
)
def test_settings_that_do_not_go_together_are_a_mistake_that_says_which_do(switches, message):
    if isinstance(switches.get("moe"), dict):
        switches = switches | {"moe": MoE(**{"num_experts": 4} | switches["moe"])}
    with pytest.raises(Mistake) as caught:
        DecoderLM(**SMALL | switches)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_sequence_longer_than_max_length_is_a_mistake_and_not_nan(positions):
    model, values = built({"positions": positions, "max_length": 13})
    with pytest.raises(Mistake, match=r"^lm.max_length: 13, and the batch has sequences of 14\. Set it to that\."):
        jax.eval_shape(bind(model, values), *packed_rows())
