"""MBT against a closed form and an MBT in NumPy; what its towers exchange, and what padding may not do."""

import functools
import pathlib

import gin
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from mistake import Mistake
from models.mbt import Mbt
from models.objectives.image_classification import ImageClassification
from parallel.annotate import activate
from parallel.layout import Layout
from parallel.modes import Modes
from parallel.parameters import abstract, bind, declared
from parallel.randomness import Randomness
from parallel.rules import Rules
from tests.models.numpy_vit import numpy_mbt

ROOT = pathlib.Path(__file__).resolve().parents[2]


def count(model) -> int:
    return sum(record.size for record in declared(model).values())


def test_mbt_b_is_two_vit_bs_and_four_tokens():
    gin.add_config_file_search_path(str(ROOT))
    gin.parse_config_file("configs/models/mbt_b.gin", skip_unknown=["prove"])
    layer = 4 * 769 * 768 + 769 * 3072 + 3073 * 768 + 4 * 768
    image = 12 * layer + (16 * 16 * 3 + 1) * 768 + 768 + (14 * 14 + 1) * 768 + 2 * 768
    audio = 12 * layer + (16 * 16 * 1 + 1) * 768 + 768 + (50 * 8 + 1) * 768 + 2 * 768
    assert count(Mbt()) == image + audio + 4 * 768 == 171_363_840
    assert image == 85_798_656  # ViT-B/16
    assert "171,363,840 parameters" in (ROOT / "configs/models/mbt_b.gin").read_text()


SMALL = {
    "num_layers": 5,
    "width": 8,
    "num_heads": 2,
    "mlp_width": 12,
    "fusion_layer": 2,
    "bottleneck_tokens": 3,
    "image_size": (4, 6),
    "image_channels": 1,
    "audio_size": (8, 4),
    "patch_size": 2,
    "norm_epsilon": 1e-12,
}
SWITCHES = {
    "learned": {},
    "sincos": {"positions": "sincos", "audio_patch_size": (4, 1), "activation": "relu"},
}
FRAMES = np.array([8, 5, 0, 2], "i4")


def built(switches):
    """The model, and values large enough that every part of it matters."""
    model = Mbt(**SMALL | switches)
    rng = np.random.default_rng(0)
    values = {path: rng.normal(0, 0.5, d.shape).astype("f4") for path, d in declared(model).items()}
    return model, {path: v + 1 if path.endswith("norm.scale") else v for path, v in values.items()}


def inputs():
    """Images, sound of which only the first FRAMES are real, and how many those are."""
    rng = np.random.default_rng(1)
    image, audio = rng.normal(size=(4, 4, 6, 1)), rng.normal(size=(4, 8, 4, 1))
    return image.astype("f4"), audio.astype("f4"), FRAMES


@functools.cache
def run(name):
    """A jitted (values, inputs) -> ((projection, states), gradients), compiled once for each entry of SWITCHES."""
    model, values = built(SWITCHES[name])
    # A random projection: the plain sum of a normalized vector is constant, and would have no gradient.
    direction = np.random.default_rng(2).normal(size=(4, 8)).astype("f4")

    def loss(values, inputs):
        bound = bind(model, values)
        batch = dict(zip(("image", "audio", "audio_frames"), inputs, strict=True))
        return jnp.sum(bound.pooled(batch) * direction), bound(*inputs)

    quickly = {"xla_backend_optimization_level": 0}  # Compiling these takes most of the time of this file.
    return jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=quickly), values


def states(name, inputs):
    step, values = run(name)
    return jax.tree.map(np.asarray, step(values, inputs)[0][1])


@pytest.mark.parametrize("name", SWITCHES)
def test_hidden_states_are_those_of_an_mbt_in_numpy(name):
    image_BSD, audio_BUD = states(name, inputs())
    expected = numpy_mbt(run(name)[1], *inputs(), SMALL | SWITCHES[name])
    for row, (image_SD, audio_UD) in enumerate(expected):
        np.testing.assert_allclose(image_BSD[row], image_SD, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(audio_BUD[row, : len(audio_UD)], audio_UD, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", SWITCHES)
def test_gradients_are_finite_and_reach_every_parameter(name):
    step, values = run(name)
    _, gradients = step(values, inputs())
    for path, gradient in gradients.items():
        assert np.isfinite(gradient).all(), path
        layers = gradient if ".blocks." in path or path.startswith("fusion.") else gradient[None]
        # A key bias adds the same to every score of a query, which softmax does not see.
        if not path.endswith("key.bias"):
            assert all(np.abs(layer).max() > 1e-5 for layer in layers), path


def test_the_logits_are_the_mean_of_the_logits_of_both_class_tokens():
    objective = ImageClassification(Mbt(**SMALL), num_classes=3)
    values = {f"encoder.{path}": value for path, value in run("learned")[1].items()}
    rng = np.random.default_rng(4)
    kernel, bias = rng.normal(size=(8, 3)).astype("f4"), rng.normal(size=3).astype("f4")
    values |= {"head.kernel": kernel, "head.bias": bias}
    label, weight = np.array([2, 0, 1, 1], "i4"), np.array([1, 1, 0.5, 0], "f4")
    batch = dict(zip(("image", "audio", "audio_frames"), inputs(), strict=True)) | {"label": label, "weight": weight}
    sums = jax.jit(lambda values, batch: bind(objective, values).losses(batch))(values, batch)
    encoded = numpy_mbt(run("learned")[1], *inputs(), SMALL)
    logits = [((image[0] @ kernel + bias) + (audio[0] @ kernel + bias)) / 2 for image, audio in encoded]
    losses = [np.log(np.exp(z).sum()) - z[c] for z, c in zip(logits, label, strict=True)]
    np.testing.assert_allclose(sums["loss"], (np.dot(losses, weight), 2.5), rtol=1e-5)
    right = [z.argmax() == c for z, c in zip(logits, label, strict=True)]
    np.testing.assert_allclose(sums["accuracy"], (np.dot(right, weight), 2.5), rtol=1e-6)
    assert objective.weights(batch)["loss"] == 2.5


def test_what_padding_frames_hold_changes_nothing():
    image, audio, frames = inputs()
    dirty = np.where((np.arange(8) < frames[:, None])[..., None, None], audio, np.nan).astype("f4")
    image_BSD, audio_BUD = states("learned", inputs())
    image_dirty, audio_dirty = states("learned", (image, dirty, frames))
    np.testing.assert_array_equal(image_dirty, image_BSD)
    for row, real in enumerate(frames):
        tokens = 1 + -(-int(real) // 2) * 2
        np.testing.assert_array_equal(audio_dirty[row, :tokens], audio_BUD[row, :tokens])


def test_the_towers_hear_of_each_other_in_the_second_fusion_layer_and_not_before():
    image, audio, frames = inputs()
    for layers, heard in ((3, False), (4, True)):
        model, values = built({"num_layers": layers})
        step = jax.jit(bind(model, values))
        before, after = step(image, audio, frames)[0], step(image, audio + 1, frames)[0]
        # The first layer's bottleneck tokens are the same for every example: what they learn is seen one layer later.
        assert np.allclose(before, after, atol=1e-6) != heard


def test_dropout_is_an_examples_own_different_at_each_step_and_in_each_tower():
    same = {"audio_size": (4, 6), "dropout": 0.3, "attention_dropout": 0.3}
    model, values = built(same)
    step = jax.jit(lambda inputs, randomness: bind(model, values)(*inputs, randomness))
    image = inputs()[0]
    signals = (image, image, np.full(4, 4, "i4"))
    whole = Randomness.for_step(0, 5, 4)
    together = step(signals, whole)
    swapped = step(tuple(a[::-1] for a in signals), Randomness(whole.key, whole.example_B[::-1]))
    for mine, theirs in zip(swapped, together, strict=True):
        np.testing.assert_allclose(mine[::-1], theirs, rtol=1e-5, atol=1e-5)
    assert not np.allclose(step(signals, Randomness.for_step(0, 6, 4))[0], together[0])
    # Towers with equal weights and equal inputs would be equal, were their noise.
    for path in list(values):
        values[path] = values[path.replace("audio.", "image.", 1)]
    image_BSD, audio_BUD = jax.jit(lambda r: bind(model, values)(*signals, r))(whole)
    assert not np.allclose(image_BSD, audio_BUD, atol=1e-3)
    image_BSD, audio_BUD = jax.jit(bind(model, values))(*signals)
    np.testing.assert_allclose(image_BSD, audio_BUD, atol=1e-5)


def test_every_activation_and_parameter_of_a_tower_is_in_its_part_and_the_bottleneck_in_neither():
    seen, used = [], []

    class Noting:
        def constrain(self, x, names, name, part):
            seen.append(f"{part}.{name}")
            return x

        def use(self, weight, record, path):
            used.append(path)
            return weight

        def attend(self, q, k, v, part, **options):
            return q

        def run_blocks(self, body, x, per_example, layers, num_layers, part):
            return body(jax.tree.map(lambda leaf: leaf[0], layers), x, per_example)

        def convolve(self, x, kernel, names, name, part, **options):
            seen.append(f"{part}.{name}")
            return jnp.zeros((4, x.shape[1] // 2, x.shape[2] // 2, 8))

    model, values = built({})
    with activate(Noting()):
        bind(model, values).pooled(dict(zip(("image", "audio", "audio_frames"), inputs(), strict=True)))

    def parts(paths):
        return {path for path in paths if not {"image", "audio"} & set(path.split("."))}

    assert parts(seen) == {"encoder.fusion.bottleneck", "encoder.pooled"}
    assert parts(declared(model)) == {"bottleneck"}
    assert set(used) == {f"encoder.{path}" for path, record in declared(model).items() if "layers" in record.names}
    for tower in ("image", "audio"):
        activations = {path for path in seen if tower in path.split(".")}
        assert {f"encoder.{tower}.patches", f"encoder.{tower}.blocks.residual"} <= activations
        assert f"encoder.fusion.{tower}.mlp_hidden" in activations


def test_the_program_of_24_layers_is_that_of_12():
    def size(num_layers):
        model = Mbt(**SMALL | {"num_layers": num_layers, "fusion_layer": num_layers // 2})
        program = jax.make_jaxpr(lambda p, *signals: bind(model, p)(*signals))(abstract(declared(model)), *inputs())
        return len(str(program).splitlines())

    assert size(12) == size(24) > 100


def test_towers_that_are_spread_each_in_its_own_way_compute_the_same():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "tensor"))
    heads = dict.fromkeys(("mlp", "heads", "kv_heads"), "tensor")
    modes = {
        "": Modes(Rules({}, {"batch": "data"})),
        "image": Modes(Rules(heads, {"batch": "data"} | heads)),
        "audio": Modes(Rules({"embed": "data"}, {"batch": "data"})),
    }
    layout = Layout({"data": 2, "tensor": 4}, modes, mesh=mesh)
    model, values = built({"num_heads": 4})
    spread = {
        path: jax.device_put(
            values[path], layout.sharding(layout.resolve("weights", f"encoder.{path}", d.shape, d.names, d.dtype))
        )
        for path, d in declared(model).items()
    }
    split = [spread[f"{part}.mlp.up.kernel"].sharding.spec for part in ("fusion.image", "audio.blocks")]
    assert split == [PartitionSpec(None, None, "tensor"), PartitionSpec(None, "data", None)]
    direction = np.random.default_rng(2).normal(size=(4, 8)).astype("f4")

    def loss(values, batch):
        return jnp.sum(bind(model, values).pooled(batch) * direction)

    def under_layout(values, batch):
        with activate(layout):
            return loss(values, batch)

    batch = dict(zip(("image", "audio", "audio_frames"), inputs(), strict=True))
    expected, gradients = jax.jit(jax.value_and_grad(loss))(values, batch)
    found, spread_gradients = jax.jit(jax.value_and_grad(under_layout))(spread, batch)
    layout.check_used()
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    for path, gradient in gradients.items():
        np.testing.assert_allclose(spread_gradients[path], gradient, rtol=1e-3, atol=1e-4, err_msg=path)


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        (
            {"fusion_layer": 5},
            "mbt.fusion_layer: 5 leaves none of mbt.num_layers = 5 for the fusion. It must be at most 4.",
        ),
        ({"fusion_layer": 0}, "mbt.fusion_layer: 0. It must be at least 1."),
        ({"bottleneck_tokens": 0}, "mbt.bottleneck_tokens: 0. It must be at least 1."),
        ({"num_heads": 3}, "mbt.num_heads: 3 does not divide mbt.width 8. Near ones that do: [1, 2, 4, 8]."),
        (
            {"audio_size": (9, 4)},
            "mbt.audio_size: (9, 4) has 9 rows, which patches of 2 don't divide. Numbers that fit: 8, 10.",
        ),
        (
            {"image_size": 5},
            "mbt.image_size: (5, 5) has 5 rows, which patches of 2 don't divide. Numbers that fit: 4, 6.",
        ),
        ({"audio_patch_size": (2, 0)}, "mbt.audio_patch_size: (2, 0) is not a size."),
    ],
    ids=str,
)
def test_sizes_that_do_not_go_together_are_a_mistake_that_says_which_do(switches, message):
    with pytest.raises(Mistake) as caught:
        Mbt(**SMALL | switches)
    assert str(caught.value).startswith(message)


def test_sound_that_the_model_is_not_for_is_a_mistake():
    model, values = built({})
    image, audio, frames = inputs()
    with pytest.raises(Mistake, match=r"^mbt.audio_size: \(8, 4\), and the batch has \(8, 2\)\. Set it to that\."):
        jax.eval_shape(bind(model, values), image, audio[:, :, :2], frames)
