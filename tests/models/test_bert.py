"""BERT against published parameter counts and against a BERT in NumPy."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistake import Mistake
from models.bert import Bert
from models.layers.initializers import ONES, ZEROS, TruncatedNormal
from models.objectives.masked_lm import MaskedLM
from parallel.annotate import activate
from parallel.parameters import abstract, bind, declared, initialize
from parallel.randomness import Randomness
from tests.models.numpy_bert import numpy_bert

# Parameter counts, built in no memory.

MLPERF_480B = {
    "num_layers": 64,
    "width": 16384,
    "num_heads": 256,
    "head_dim": 128,
    "num_kv_heads": 1,
    "mlp_width": 131072,
    "vocab_size": 30522,
    "token_types": 0,
    "pre_norm": True,
    "gated_mlp": True,
    "activation": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
}
MLPERF_200B = {
    "num_layers": 66,
    "width": 12288,
    "num_heads": 128,
    "head_dim": 96,
    "mlp_width": 98304,
    "vocab_size": 32000,
    "token_types": 0,
    "positions": "sinusoidal",
    "pre_norm": True,
    "activation": "relu",
    "attention_bias": False,
    "per_dim_scale": True,
}


def count(model) -> int:
    return sum(record.size for record in declared(model).values())


@pytest.mark.parametrize(
    ("layers", "width", "heads", "published"),
    [
        (2, 128, 2, 4_385_920),
        (4, 256, 4, 11_170_560),
        (4, 512, 8, 28_763_648),
        (8, 512, 8, 41_373_184),
        (12, 768, 12, 109_482_240),
        (24, 1024, 16, 335_141_888),
    ],
    ids=["tiny", "mini", "small", "medium", "base", "large"],
)
def test_a_published_bert_with_its_pooler_has_the_published_number_of_parameters(layers, width, heads, published):
    assert count(Bert(layers, width, heads, 4 * width, 30522, pooler=True)) == published


def test_bert_base_with_its_masked_lm_head_has_the_published_number_of_parameters():
    assert count(MaskedLM(Bert(12, 768, 12, 3072, 30522))) == 109_514_298


def test_the_encoders_of_mlperf_1_1_have_the_published_numbers_of_parameters():
    assert count(MaskedLM(Bert(**MLPERF_480B), transform=False, bias=False)) == 481_815_347_200
    assert count(MaskedLM(Bert(**MLPERF_200B), transform=False, bias=True)) == 199_717_148_096


# Hidden states and gradients.

SMALL = {"num_layers": 2, "width": 8, "num_heads": 4, "mlp_width": 12, "vocab_size": 20, "max_length": 16}
SWITCHES = {
    "as published": {},
    "pre-LN": {"pre_norm": True},
    "sinusoidal": {
        "positions": "sinusoidal",
        "per_dim_scale": True,
        "pre_norm": True,
        "activation": "relu",
        "logit_cap": 2.0,
    },
    "rotary": {"positions": "rotary", "head_dim": 6, "num_kv_heads": 2},
    "relative": {"positions": "relative", "token_types": 0},
    "no biases": {"attention_bias": False, "mlp_bias": False, "norm_bias": False},
    "multi-query gated": {
        "num_kv_heads": 1,
        "head_dim": 3,
        "gated_mlp": True,
        "activation": "silu",
        "pre_norm": True,
        "token_types": 0,
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
    },
}


def settings(switches):
    return SMALL | switches


def built(switches):
    """The model, and values large enough that every part of it matters."""
    model = Bert(**settings(switches))
    rng = np.random.default_rng(0)
    values = {path: rng.normal(0, 0.5, d.shape).astype("f4") for path, d in declared(model).items()}
    return model, {path: v + 1 if path.endswith("norm.scale") else v for path, v in values.items()}


def packed_rows():
    """tokens, segment ids, positions and token types of two rows: documents of 5, 4 and 3 with padding, and one of 10."""
    rng = np.random.default_rng(1)
    segments = np.array([[1] * 5 + [2] * 4 + [3] * 3 + [0] * 2, [1] * 10 + [0] * 4], "i4")
    positions = np.array([[*range(5), *range(4), *range(3), 0, 0], [*range(10), 0, 0, 0, 0]], "i4")
    tokens = np.where(segments, rng.integers(1, 20, segments.shape), 0).astype("i4")
    token_types = np.where(segments, rng.integers(0, 2, segments.shape), 0).astype("i4")
    return tokens, segments, positions, token_types


@functools.cache
def run(name):
    """A jitted (values, inputs) -> ((projection, hidden states), gradients), compiled once for each entry of SWITCHES."""
    model, values = built(SWITCHES[name])
    # A random projection: the plain sum of a normalized vector is constant, and would have no gradient.
    direction = np.random.default_rng(2).normal(size=(2, 14, 8)).astype("f4")

    def loss(values, inputs):
        x_BSD = bind(model, values)(*inputs)
        return jnp.sum(jnp.where((inputs[1] != 0)[..., None], x_BSD * direction, 0.0)), x_BSD

    quickly = {"xla_backend_optimization_level": 0}  # Compiling these takes most of the time of this file.
    return jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=quickly), values


def hidden(name, inputs):
    step, values = run(name)
    return np.asarray(step(values, inputs)[0][1])


@pytest.mark.parametrize("name", SWITCHES)
def test_hidden_states_are_those_of_a_bert_in_numpy(name):
    inputs = packed_rows()
    expected = numpy_bert(run(name)[1], *inputs, settings(SWITCHES[name]))
    real = inputs[1] != 0
    np.testing.assert_allclose(hidden(name, inputs)[real], expected[real], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", SWITCHES)
def test_gradients_are_finite_and_reach_every_parameter(name):
    step, values = run(name)
    _, gradients = step(values, packed_rows())
    for path, gradient in gradients.items():
        assert np.isfinite(gradient).all(), path
        layers = gradient if path.startswith("blocks.") else gradient[None]
        # A key bias adds the same to every score of a query, which softmax does not see.
        if not path.endswith("key.bias"):
            assert all(np.abs(layer).max() > 1e-5 for layer in layers), path


@pytest.mark.parametrize("name", SWITCHES)
def test_packed_documents_get_the_hidden_states_they_get_in_rows_of_their_own(name):
    inputs = packed_rows()
    packed = hidden(name, inputs)
    starts = [(0, 0, 5), (0, 5, 4), (0, 9, 3), (1, 0, 10)]
    for first, second in (starts[:2], starts[2:]):
        alone = [np.zeros_like(array) for array in inputs]
        for row, (source, start, length) in enumerate((first, second)):
            for mine, theirs in zip(alone, inputs, strict=True):
                mine[row, :length] = theirs[source, start : start + length]
            alone[1][row, :length] = 1
        out = hidden(name, tuple(alone))
        for row, (source, start, length) in enumerate((first, second)):
            np.testing.assert_allclose(out[row, :length], packed[source, start : start + length], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", SWITCHES)
def test_what_padding_holds_changes_nothing(name):
    inputs = packed_rows()
    padding = inputs[1] == 0
    tokens, segments, positions, token_types = (array.copy() for array in inputs)
    tokens[padding], positions[padding], token_types[padding] = 7, 11, 1
    dirty = hidden(name, (tokens, segments, positions, token_types))
    np.testing.assert_array_equal(dirty[~padding], hidden(name, inputs)[~padding])


def test_a_row_that_is_all_padding_is_finite():
    inputs = tuple(np.where(np.arange(2)[:, None] == 1, 0, array) for array in packed_rows())
    step, values = run("as published")
    (loss, x_BSD), gradients = step(values, inputs)
    assert np.isfinite(loss) and np.isfinite(x_BSD).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())


def test_bfloat16_computes_in_bfloat16_near_the_float32_result_with_float32_parameters():
    model, values = built({"dtype": "bfloat16"})
    inputs = packed_rows()
    out = bind(model, values)(*inputs)
    assert out.dtype == jnp.bfloat16
    assert {record.dtype for record in declared(model).values()} == {jnp.float32}
    real = inputs[1] != 0
    error = np.asarray(out, "f4")[real] - hidden("as published", inputs)[real]
    assert np.sqrt((error**2).mean()) < 0.05


def test_the_pooler_is_tanh_of_a_dense_layer_over_the_first_token():
    model, values = built({"pooler": True})
    x = np.random.default_rng(3).normal(size=(3, 5, 8)).astype("f4")
    expected = np.tanh(x[:, 0] @ values["pooler.kernel"] + values["pooler.bias"])
    np.testing.assert_allclose(bind(model, values).pool(x), expected, rtol=1e-4, atol=1e-5)


def test_dropout_is_an_examples_own_and_different_at_each_step():
    model, values = built({"dropout": 0.3, "attention_dropout": 0.3})
    inputs = packed_rows()
    step = jax.jit(lambda inputs, randomness: bind(model, values)(*inputs, randomness))
    whole = Randomness.for_step(0, 5, 2)
    together = np.asarray(step(inputs, whole))
    swapped = step(tuple(a[::-1] for a in inputs), Randomness(whole.key, whole.example_B[::-1]))
    np.testing.assert_allclose(swapped[::-1], together, rtol=1e-5, atol=1e-5)
    assert not np.allclose(step(inputs, Randomness.for_step(0, 6, 2)), together)
    assert not np.allclose(together, hidden("as published", inputs))


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout"])
def test_each_rate_has_an_effect_of_its_own(rate):
    model, values = built({"dropout": 0.0, "attention_dropout": 0.0} | {rate: 0.3})
    noisy = jax.jit(lambda randomness: bind(model, values)(*packed_rows(), randomness))(Randomness.for_step(0, 0, 2))
    assert not np.allclose(noisy, hidden("as published", packed_rows()))


def test_the_embeddings_are_dropped_out_after_their_norm():
    seen = {}

    class Noting:
        def constrain(self, x, names, name, part):
            seen[f"{part}.{name}"] = x
            return x

        def attend(self, q, k, v, **options):
            return q

        def run_blocks(self, body, x, per_example, layers, num_layers, part):
            return x, {}

    model, values = built({"dropout": 0.3})
    with activate(Noting()):
        bind(model, values)(*packed_rows(), Randomness.for_step(0, 0, 2))
    dropped = np.asarray(seen["encoder.embeddings"]) == 0
    assert abs(dropped.mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7 / dropped.size)


def test_kernels_and_tables_are_drawn_with_the_spread_asked_for_and_the_rest_begins_as_nothing():
    # That the drawing has that spread is tests/models/layers/test_initializers.py's.
    for path, record in declared(Bert(**SMALL, initializer_stddev=0.03, pooler=True)).items():
        kind = path.rpartition(".")[2]
        expected = {"bias": ZEROS, "scale": ONES, "kernel": TruncatedNormal(0.03), "table": TruncatedNormal(0.03)}[kind]
        assert record.init == expected, path


def test_without_a_standard_deviation_kernels_have_variance_one_over_fan_in():
    model = Bert(num_layers=1, width=64, num_heads=4, head_dim=8, mlp_width=256, vocab_size=50, initializer_stddev=None)
    kernels = {path: record for path, record in declared(model).items() if path.endswith("kernel")}
    some = ("blocks.attention.query.kernel", "blocks.attention.out.kernel", "blocks.mlp.down.kernel")
    drawn = jax.jit(lambda: initialize({path: kernels[path] for path in some}, 0))()
    for path, fan_in in zip(some, (64, 4 * 8, 256), strict=True):
        assert abs(np.std(drawn[path]) * math.sqrt(fan_in) - 1) < 0.06, path


# The size of the program.


def num_equations(jaxpr) -> int:
    """Equations of a jaxpr, those of inner jaxprs too."""
    inner = [
        value for eqn in jaxpr.eqns for value in jax.tree.leaves(list(eqn.params.values())) if hasattr(value, "eqns")
    ]
    return len(jaxpr.eqns) + sum(num_equations(getattr(value, "jaxpr", value)) for value in inner)


def test_the_program_of_48_layers_is_that_of_12():
    def size(num_layers):
        model = MaskedLM(Bert(**SMALL | {"num_layers": num_layers}))
        at = jax.ShapeDtypeStruct((2, 3), jnp.int32)
        batch = dict(zip(("tokens", "segment_ids", "positions", "token_types"), packed_rows(), strict=True))
        batch |= {
            "masked_positions": at,
            "masked_labels": at,
            "masked_weights": jax.ShapeDtypeStruct((2, 3), jnp.float32),
        }

        def loss(params, batch):
            return bind(model, params).losses(batch, Randomness.for_step(0, 0, 2))["loss"][0]

        return num_equations(jax.make_jaxpr(jax.grad(loss))(abstract(declared(model)), batch).jaxpr)

    assert size(12) == size(48) > 300


# Mistakes.


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        (
            {"num_heads": 5},
            "bert.num_heads: 5 does not divide bert.width 8. Near ones that do: [1, 2, 4, 8]. Or set bert.head_dim.",
        ),
        ({"num_kv_heads": 3}, "bert.num_kv_heads: 3 does not divide bert.num_heads 4. Those that do: [1, 2, 4]."),
        ({"num_kv_heads": 0}, "bert.num_kv_heads: 0. It must be at least 1."),
        ({"num_heads": 0}, "bert.num_heads: 0. It must be at least 1."),
        ({"num_layers": 0}, "bert.num_layers: 0. It must be at least 1."),
        ({"max_length": -1}, "bert.max_length: -1. It must be at least 1."),
        (
            {"positions": "rotary", "head_dim": 5},
            "bert.positions: 'rotary' turns pairs of dimensions, so an odd head dimension (5)",
        ),
        (
            {"positions": "sinusoidal", "width": 9, "head_dim": 2},
            "bert.positions: 'sinusoidal' pairs sines with cosines, so an odd",
        ),
        ({"activation": "gelo"}, "bert.activation: 'gelo' is not an activation. Nearest: 'gelu'"),
    ],
    ids=str,
)
def test_sizes_that_do_not_go_together_are_a_mistake_that_says_which_do(switches, message):
    with pytest.raises(Mistake) as caught:
        Bert(**settings(switches))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_sequence_longer_than_max_length_is_a_mistake_and_not_nan(positions):
    model, values = built({"positions": positions, "max_length": 13})
    with pytest.raises(Mistake, match=r"^bert.max_length: 13, and the batch has sequences of 14\. Set it to that\."):
        jax.eval_shape(bind(model, values), *packed_rows())
