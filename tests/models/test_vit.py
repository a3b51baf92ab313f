"""ViT against published parameter counts, a ViT in NumPy, and what transformers' computed."""

import functools
import pathlib

import gin
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from mistake import Mistake
from models.layers.initializers import ONES, ZEROS, FanIn, TruncatedNormal
from models.vit import Vit
from parallel.annotate import activate
from parallel.parameters import bind, declared
from parallel.randomness import Randomness
from tests.models.numpy_vit import numpy_vit

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Parameter counts, built in no memory.

# name: (file, layers, width, mlp, patch, published to three digits)
VARIANTS = {
    "Ti": ("vit_ti", 12, 192, 768, 16, "5.52e+06"),
    "S": ("vit_s", 12, 384, 1536, 16, "2.17e+07"),
    "B": ("vit_b", 12, 768, 3072, 16, "8.58e+07"),
    "L": ("vit_l", 24, 1024, 4096, 16, "3.03e+08"),
    "H": ("vit_h", 32, 1280, 5120, 14, "6.31e+08"),
    "g": ("vit_giant", 40, 1408, 6144, 14, "1.01e+09"),
    "G": ("vit_gigantic", 48, 1664, 8192, 14, "1.84e+09"),
    "e": ("vit_enormous", 56, 1792, 15360, 14, "3.81e+09"),
}


def count(model) -> int:
    return sum(record.size for record in declared(model).values())


def closed_form(layers, width, mlp, patch):
    """Of a ViT for 224 x 224 x 3 with a class token: embeddings, layers, final norm."""
    embeddings = (patch**2 * 3 + 1) * width + width + ((224 // patch) ** 2 + 1) * width
    layer = 4 * (width + 1) * width + (width + 1) * mlp + (mlp + 1) * width + 2 * 2 * width
    return embeddings + layers * layer + 2 * width


@pytest.mark.parametrize("name", VARIANTS)
def test_a_published_vit_has_the_published_number_of_parameters(name):
    file, *shape, published = VARIANTS[name]
    gin.add_config_file_search_path(str(ROOT))
    gin.parse_config_file(f"configs/models/{file}.gin", skip_unknown=["prove"])
    number = count(Vit())
    assert number == closed_form(*shape)
    assert f"{number:.2e}" == published
    assert f"{number:,} parameters" in (ROOT / f"configs/models/{file}.gin").read_text()


# Hidden states and gradients.

SMALL = {
    "num_layers": 2,
    "width": 8,
    "num_heads": 2,
    "mlp_width": 12,
    "image_size": (6, 8),
    "patch_size": 2,
    "norm_epsilon": 1e-12,
}
SWITCHES = {
    "as published": {},
    "mean": {"pool": "mean"},
    "sincos": {"positions": "sincos", "activation": "relu"},
    "oblong patches": {"patch_size": (3, 2), "channels": 1, "positions": "sincos", "pool": "mean"},
}


def built(switches):
    """The model, and values large enough that every part of it matters."""
    model = Vit(**SMALL | switches)
    rng = np.random.default_rng(0)
    values = {path: rng.normal(0, 0.5, d.shape).astype("f4") for path, d in declared(model).items()}
    return model, {path: v + 1 if path.endswith("norm.scale") else v for path, v in values.items()}


def images(channels=3, size=(6, 8)):
    return np.random.default_rng(1).normal(size=(3, *size, channels)).astype("f4")


@functools.cache
def run(name):
    """((hidden states, pooled), gradients, values) of an entry of SWITCHES."""
    model, values = built(SWITCHES[name])
    batch = {"image": images(SWITCHES[name].get("channels", 3))}
    # A random projection: the plain sum of a normalized vector is constant, and would have no gradient.
    direction = np.random.default_rng(2).normal(size=(3, 8)).astype("f4")

    def loss(values):
        bound = bind(model, values)
        pooled_BD = bound.pooled(batch)
        return jnp.sum(pooled_BD * direction), (bound(batch["image"]), pooled_BD)

    quickly = {"xla_backend_optimization_level": 0}  # Compiling these takes most of the time of this file.
    (_, out), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=quickly)(values)
    return jax.tree.map(np.asarray, out), gradients, values


@pytest.mark.parametrize("name", SWITCHES)
def test_hidden_states_are_those_of_a_vit_in_numpy(name):
    (hidden, pooled), _, values = run(name)
    switches = SWITCHES[name]
    expected = numpy_vit(values, images(switches.get("channels", 3)), SMALL | switches)
    np.testing.assert_allclose(hidden, expected, rtol=1e-5, atol=1e-5)
    token = switches.get("pool", "token") == "token"
    np.testing.assert_allclose(pooled, expected[:, 0] if token else expected.mean(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SWITCHES)
def test_gradients_are_finite_and_reach_every_parameter(name):
    _, gradients, _ = run(name)
    for path, gradient in gradients.items():
        assert np.isfinite(gradient).all(), path
        layers = gradient if path.startswith("blocks.") else gradient[None]
        # A key bias adds the same to every score of a query, which softmax does not see.
        if not path.endswith("key.bias"):
            assert all(np.abs(layer).max() > 1e-5 for layer in layers), path


def test_a_transformers_vit_of_the_same_weights_computes_the_same():
    saved = safetensors.numpy.load_file(pathlib.Path(__file__).parent / "fixtures" / "vit.safetensors")
    theirs = {name.removeprefix("model."): x for name, x in saved.items() if name.startswith("model.")}
    model = Vit(2, 16, 4, 24, image_size=(8, 12), patch_size=4, norm_epsilon=1e-3)
    shapes = {path: record.shape for path, record in declared(model).items()}

    def stacked(name, shape):
        layers = (theirs.pop(f"layers.{layer}.{name}") for layer in range(2))
        return np.stack([x.T.reshape(shape[1:]) for x in layers])

    ours = {
        "embeddings.patch.kernel": theirs.pop("embeddings.patch_embeddings.projection.weight").transpose(2, 3, 1, 0),
        "embeddings.patch.bias": theirs.pop("embeddings.patch_embeddings.projection.bias"),
        "embeddings.class_token": theirs.pop("embeddings.cls_token")[0, 0],
        "embeddings.position.table": theirs.pop("embeddings.position_embeddings")[0],
        "final_norm.scale": theirs.pop("layernorm.weight"),
        "final_norm.bias": theirs.pop("layernorm.bias"),
    }
    names = {
        "attention.query": "attention.q_proj",
        "attention.key": "attention.k_proj",
        "attention.value": "attention.v_proj",
        "attention.out": "attention.o_proj",
        "attention_norm": "layernorm_before",
        "mlp.up": "mlp.fc1",
        "mlp.down": "mlp.fc2",
        "mlp_norm": "layernorm_after",
    }
    for path in shapes.keys() - ours.keys():
        layer, _, leaf = path.removeprefix("blocks.").rpartition(".")
        ours[path] = stacked(f"{names[layer]}.{'bias' if leaf == 'bias' else 'weight'}", shapes[path])
    assert not theirs
    assert {path: x.shape for path, x in ours.items()} == shapes
    hidden = bind(model, ours)(saved["images"].transpose(0, 2, 3, 1))
    np.testing.assert_allclose(hidden, saved["expected"], rtol=1e-4, atol=1e-5)


def test_sincos_positions_take_images_of_another_size():
    model, values = built({"positions": "sincos"})
    other = images(size=(10, 4))
    expected = numpy_vit(values, other, SMALL | {"positions": "sincos"})
    np.testing.assert_allclose(bind(model, values)(other), expected, rtol=1e-5, atol=1e-5)


def test_bfloat16_computes_in_bfloat16_near_the_float32_result_with_float32_parameters():
    model, values = built({"dtype": "bfloat16"})
    out = bind(model, values).pooled({"image": images()})
    assert out.dtype == jnp.bfloat16
    assert {record.dtype for record in declared(model).values()} == {jnp.float32}
    error = np.asarray(out, "f4") - run("as published")[0][1]
    assert np.sqrt((error**2).mean()) < 0.05


def test_dropout_is_an_examples_own_and_different_at_each_step():
    model, values = built({"dropout": 0.3, "attention_dropout": 0.3})
    step = jax.jit(lambda images, randomness: bind(model, values)(images, randomness))
    whole = Randomness.for_step(0, 5, 3)
    together = np.asarray(step(images(), whole))
    swapped = step(images()[::-1], Randomness(whole.key, whole.example_B[::-1]))
    np.testing.assert_allclose(swapped[::-1], together, rtol=1e-5, atol=1e-5)
    assert not np.allclose(step(images(), Randomness.for_step(0, 6, 3)), together)


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout"])
def test_each_rate_has_an_effect_of_its_own(rate):
    model, values = built({rate: 0.3})
    noisy = jax.jit(lambda randomness: bind(model, values)(images(), randomness))(Randomness.for_step(0, 0, 3))
    assert not np.allclose(noisy, run("as published")[0][0])


def test_kernels_and_tables_are_drawn_with_the_spread_asked_for_and_the_rest_begins_as_nothing():
    for path, record in declared(Vit(**SMALL, initializer_stddev=0.03)).items():
        drawn = path.endswith(("kernel", "table", "class_token"))
        expected = TruncatedNormal(0.03) if drawn else ONES if path.endswith("scale") else ZEROS
        assert record.init == expected, path


def test_without_a_standard_deviation_a_patchs_kernel_has_variance_one_over_its_pixels():
    record = declared(Vit(**SMALL))["embeddings.patch.kernel"]
    assert record.init == FanIn(3) and record.shape == (2, 2, 3, 8)


def test_layers_cut_into_parts_are_the_same_layers():
    model, values = built({"parts": {"early": 1, "late": 1}})
    whole = run("as published")[2]
    for path in values:
        name, _, rest = path.partition(".")
        index = {"early": slice(0, 1), "late": slice(1, 2)}.get(name)
        values[path] = whole[path] if index is None else whole[f"blocks.{rest}"][index]
    hidden = bind(model, values)(images())
    np.testing.assert_allclose(hidden, run("as published")[0][0], rtol=1e-5, atol=1e-5)


def test_patches_are_cut_through_the_verb_that_may_split_an_image():
    seen = {}

    class Noting:
        def constrain(self, x, names, name, part):
            return x

        def attend(self, q, k, v, part, **options):
            return q

        def run_blocks(self, body, x, per_example, layers, num_layers, part):
            return x, {}

        def convolve(self, x, kernel, names, name, part, **options):
            seen[f"{part}.{name}"] = (x.shape, names, options)
            return jnp.zeros((3, 3, 4, 8))

    model, values = built({})
    with activate(Noting()):
        bind(model, values)(images())
    options = {"strides": (2, 2), "padding": "VALID"}
    assert seen == {"encoder.patches": ((3, 6, 8, 3), ("batch", "height", "width", "channels"), options)}


# Mistakes.


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        (
            {"image_size": (225, 224), "patch_size": 16},
            "vit.image_size: (225, 224) has 225 rows, which patches of 16 don't divide. Numbers that fit: 224, 240.",
        ),
        (
            {"image_size": 12, "patch_size": (2, 16)},
            "vit.image_size: (12, 12) has 12 columns, which patches of 16 don't divide. Numbers that fit: 16.",
        ),
        (
            {"image_size": (8, 8, 3)},
            "vit.image_size: (8, 8, 3) is not a size. It must be a positive number, or (rows, columns)",
        ),
        (
            {"patch_size": 0},
            "vit.patch_size: 0 is not a size. It must be a positive number, or (rows, columns) of them.",
        ),
        ({"num_heads": 3}, "vit.num_heads: 3 does not divide vit.width 8. Near ones that do: [1, 2, 4, 8]."),
        ({"channels": 0}, "vit.channels: 0. It must be at least 1."),
        ({"num_layers": 0}, "vit.num_layers: 0. It must be at least 1."),
        (
            {"positions": "sincos", "width": 6},
            "vit.width: 'sincos' positions need four equal parts of 6. Widths that fit: [4, 8].",
        ),
        ({"activation": "gelo"}, "vit.activation: 'gelo' is not an activation. Nearest: 'gelu'"),
        ({"parts": {"early": 3}}, "vit.parts: {'early': 3} has 3 blocks in all, and the model has 2."),
        ({"parts": {"final_norm": 2}}, "vit.parts: 'final_norm' can't be the name of a part."),
    ],
    ids=str,
)
def test_sizes_that_do_not_go_together_are_a_mistake_that_says_which_do(switches, message):
    with pytest.raises(Mistake) as caught:
        Vit(**SMALL | switches)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("switches", "shape", "message"),
    [
        ({}, (1, 8, 6, 3), "vit.image_size: (6, 8), and the batch has (8, 6). Set it to that."),
        ({}, (1, 6, 8, 1), "vit.channels: 3, and the batch has 1. Set it to that."),
        (
            {"positions": "sincos"},
            (1, 6, 9, 3),
            "vit.image_size: (6, 9) has 9 columns, which patches of 2 don't divide. Numbers that fit: 8, 10.",
        ),
    ],
    ids=str,
)
def test_images_that_the_model_is_not_for_are_a_mistake(switches, shape, message):
    model, values = built(switches)
    with pytest.raises(Mistake) as caught:
        jax.eval_shape(bind(model, values), jax.ShapeDtypeStruct(shape, jnp.float32))
    assert str(caught.value).startswith(message)
