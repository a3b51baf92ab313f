"""Stacked layers are optimized as if they were apart, and every slot has the names of the dimensions that it keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from parallel.parameters import Declared
from training.optimizers import adafactor, adamw, lamb, sgd
from training.slots import layerwise, slot_names, slot_path


def declare(**records):
    return {path.replace("_", "."): Declared(shape, names, init=None) for path, (shape, names) in records.items()}


DECLARED = declare(
    table=((6, 4), ("vocab", "embed")),
    image_kernel=((3, 4, 6), ("layers", "embed", "mlp")),
    image_bias=((3, 6), ("layers", "mlp")),
    text_kernel=((2, 6, 2, 4), ("layers", "embed", "heads", "head_dim")),
)
OPTIMIZERS = {
    "sgd": sgd(0.1),
    "adamw": adamw(0.1),
    "lamb": lamb(0.1),
    "adafactor": adafactor(0.1, b1=0.9, min_dim_size_to_factor=4, weight_decay=0.1),
}
TRANSFORMS = {
    "trust ratio": optax.scale_by_trust_ratio(),
    "factored second moments": optax.scale_by_factored_rms(min_dim_size_to_factor=2),
    "RMS clipping": optax.clip_by_block_rms(0.5),
    "parameter scale": optax.scale_by_param_block_rms(),
}


def draw(seed, declared=DECLARED):
    random = np.random.default_rng(seed)
    return {path: jnp.asarray(random.normal(size=record.shape), jnp.float32) for path, record in declared.items()}


def apart(tree):
    """Every layer of a stack as a parameter of its own."""
    single = {path: x for path, x in tree.items() if DECLARED[path].names[0] != "layers"}
    layers = {f"{path}.{n}": x[n] for path, x in tree.items() if path not in single for n in range(len(x))}
    return single | layers


def text(opt_state, names):
    """The names of each slot by its readable path."""
    flat, _ = jax.tree_util.tree_flatten_with_path(opt_state)
    by_slot = jax.tree.leaves(jax.tree.map(lambda _, of_slot: ",".join(map(str, of_slot)), opt_state, names))
    return {slot_path(keypath): of_slot for (keypath, _), of_slot in zip(flat, by_slot, strict=True)}


def names_of(name, declared=DECLARED):
    params = {path: jax.ShapeDtypeStruct(record.shape, record.dtype) for path, record in declared.items()}
    state = jax.eval_shape(OPTIMIZERS[name].build(declared).init, params)
    return text(state, slot_names(state, declared))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_stacked_layers_are_transformed_as_if_they_were_apart(name):
    transform, params = TRANSFORMS[name], draw(0)
    stacked = layerwise(transform, DECLARED)
    update, update_apart = jax.jit(stacked.update), jax.jit(transform.update)
    state, state_apart = jax.jit(stacked.init)(params), jax.jit(transform.init)(apart(params))
    for seed in (1, 2):
        updates, state = update(draw(seed), state, params)
        updates_apart, state_apart = update_apart(apart(draw(seed)), state_apart, apart(params))
        for path, expected in updates_apart.items():
            np.testing.assert_allclose(apart(updates)[path], expected, rtol=5e-7, err_msg=path)


def test_adafactor_keeps_rows_and_columns_of_every_layer_and_never_factors_over_layers():
    stacks = declare(kernel=((8, 4, 4), ("layers", "embed", "mlp")), bias=((8, 8), ("layers", "mlp")))
    state = layerwise(TRANSFORMS["factored second moments"], stacks).init(draw(0, stacks)).stacked["8"]
    assert state.v_row["kernel"].shape == (8, 4) and state.v_col["kernel"].shape == (8, 4)
    assert state.v["bias"].shape == (8, 8) and state.v_row["bias"].shape == (8, 1)


def test_layerwise_leaves_what_is_not_declared_alone():
    transform = layerwise(optax.trace(0.5), {"table": DECLARED["table"]})
    updates, state = transform.update(draw(1), transform.init(draw(0)), draw(0))
    assert set(state.single.trace) == {"table"} and not state.stacked
    assert set(updates) == set(DECLARED)
    np.testing.assert_array_equal(updates["image.bias"], draw(1)["image.bias"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_slot_has_a_name_for_each_dimension_concrete_or_abstract(name):
    state = jax.jit(OPTIMIZERS[name].build(DECLARED).init)(draw(0))
    names = slot_names(state, DECLARED)
    assert all(jax.tree.leaves(jax.tree.map(lambda slot, of_slot: len(of_slot) == slot.ndim, state, names)))
    assert text(state, names) == names_of(name)


def test_slots_shaped_like_their_parameter_take_its_names():
    parameters = {path: ",".join(record.names) for path, record in DECLARED.items()}
    momentum = {f"momentum.trace:{path}": names for path, names in parameters.items()}
    moments = {f"adam.{slot}:{path}": names for slot in ("mu", "nu") for path, names in parameters.items()}
    assert names_of("sgd") == momentum | {"rate.count": ""}
    assert names_of("adamw") == names_of("lamb") == moments | {"adam.count": "", "rate.count": ""}


def test_factored_slots_lose_the_dimension_they_average_and_placeholders_have_none():
    assert {slot: names for slot, names in names_of("adafactor").items() if slot.startswith("moment.")} == {
        "moment.single.count": "",
        "moment.single.v_row:table": "embed",  # the largest, vocab, is averaged
        "moment.single.v_col:table": "vocab",
        "moment.single.v:table": "None",
        "moment.stacked.2.count": "layers",
        "moment.stacked.2.v_row:text.kernel": "layers,heads,head_dim",
        "moment.stacked.2.v_col:text.kernel": "layers,embed,heads",
        "moment.stacked.2.v:text.kernel": "layers,None",
        "moment.stacked.3.count": "layers",
        "moment.stacked.3.v_row:image.kernel": "layers,embed",
        "moment.stacked.3.v_col:image.kernel": "layers,mlp",
        "moment.stacked.3.v:image.kernel": "layers,None",
        "moment.stacked.3.v_row:image.bias": "layers,None",
        "moment.stacked.3.v_col:image.bias": "layers,None",
        "moment.stacked.3.v:image.bias": "layers,mlp",
    }


@pytest.mark.parametrize("shape", [(4, 4, 4), (4, 4, 2), (2, 4, 4), (4, 2, 4), (5, 4, 4), (4, 5, 4), (4, 4, 5)])
@pytest.mark.parametrize("stacked", [False, True])
def test_a_factored_slot_varies_along_a_dimension_exactly_if_it_has_its_name(shape, stacked):
    axes = ("embed", "heads", "head_dim")
    record = Declared((3, *shape), ("layers", *axes), init=None) if stacked else Declared(shape, axes, init=None)
    declared = {"w": record}
    transform = adafactor(0.1, min_dim_size_to_factor=2).build(declared)
    params = draw(0, declared)
    first = jax.jit(lambda grads: transform.update(grads, transform.init(params), params)[1])
    for dim, axis in enumerate(record.names):
        state = first({"w": (1 + np.indices(record.shape)[dim]).astype(np.float32)})
        names = slot_names(state, declared)
        inner, of_inner = (part["moment"].stacked["3"] if stacked else part["moment"].single for part in (state, names))
        for slot, of_slot in [(inner.v_row["w"], of_inner.v_row["w"]), (inner.v_col["w"], of_inner.v_col["w"])]:
            assert len(of_slot) == slot.ndim == len(record.shape) - 1
            varies = {of_slot[d] for d in range(slot.ndim) if np.ptp(np.asarray(slot), axis=d).max() > 0.1}
            assert varies == {axis} & set(of_slot)


def test_a_slot_whose_names_do_not_follow_is_named():
    state = {"odd": optax.TraceState({"table": jnp.zeros((5, 5))})}
    with pytest.raises(AssertionError, match=r"odd.trace:table \[5, 5\]"):
        slot_names(state, DECLARED)
    with pytest.raises(AssertionError, match=r"odd.trace:tabel: no such parameter"):
        slot_names({"odd": optax.TraceState({"tabel": jnp.zeros((6, 4))})}, DECLARED)
    with pytest.raises(AssertionError, match=r"rate.count \[2\]"):
        slot_names({"rate": optax.ScaleByScheduleState(jnp.zeros(2))}, DECLARED)
