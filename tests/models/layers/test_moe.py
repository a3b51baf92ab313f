"""A mixture of experts: its answers by a loop over tokens, the same for both dispatches, and its health."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistake import Mistake
from models.layers.moe import MoE
from parallel.annotate import Randomness
from parallel.parameters import bind
from tests.models.layers.mixture import REAL, SEGMENTS, B, D, E, S, X, built
from tests.models.layers.numpy_routing import by_expert, by_token

ENOUGH = {"capacity_factor": 4.0, "eval_capacity_factor": 4.0}
# By dispatch: seats for all tokens, and for few.
ALL = {"einsum": {"dispatch": "einsum"} | ENOUGH, "sorted": {"dispatch": "sorted"}}
FEW = {"einsum": {"dispatch": "einsum", "eval_capacity_factor": 0.5}, "sorted": {"dispatch": "sorted"}}


def silu(x):
    return x / (1 + np.exp(-x))


def run(x=X, segments=SEGMENTS, randomness=None, **options):
    layer, values = built(**options)
    y, sums = jax.jit(lambda v, x, s, r: bind(layer, v)(x, s, r))(values, x, segments, randomness)
    return np.asarray(y), {name: (np.asarray(total), np.asarray(weight)) for name, (total, weight) in sums.items()}


def expert(values, e, x):
    """One expert's answer to one token."""
    up = x @ values["up"][e] + (values["up_bias"][e] if "up_bias" in values else 0)
    hidden = silu(x @ values["gate"][e]) * up if "gate" in values else silu(up)
    return hidden @ values["down"][e] + (values["down_bias"][e] if "down_bias" in values else 0)


def by_hand(groups, choices, seats, **options):
    """(answers [B, S, D], the Group of each group), one token and one expert at a time, without draws."""
    values = {name: v.astype("f8") for name, v in built(**options)[1].items()}
    y, found = np.zeros((B, S, D)), []
    for b in range(B):
        for part in np.split(np.arange(S), groups):
            logits = X[b, part].astype("f8") @ values["router"]
            found.append(by_token(logits, REAL[b, part], choices, seats))
            for s, gates in zip(part, found[-1].gate, strict=True):
                y[b, s] = sum(g * expert(values, e, X[b, s].astype("f8")) for e, g in enumerate(gates) if g)
    return y, found


# Answers.


@pytest.mark.parametrize("dispatch", ["einsum", "sorted"])
@pytest.mark.parametrize("gated, bias", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("choices", [1, 2])
def test_with_seats_for_all_it_is_a_loop_over_experts_whatever_the_dispatch(dispatch, gated, bias, choices):
    options = {"gated": gated, "bias": bias, "routing": f"top{choices}", **ALL[dispatch]}
    y, sums = run(**options)
    expected, found = by_hand(1, choices, S, **options)
    np.testing.assert_allclose(y[REAL], expected[REAL], rtol=1e-4, atol=1e-5)
    assert sums["dropped"] == (0, sum(group.wanted for group in found))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("choices", [1, 2])
def test_where_seats_are_few_tokens_without_one_get_no_answer(choices, groups):
    # 4 tokens in a group have 4 seats at least, by rounding: enough for them. 8 have 4 of 8.
    options = {"routing": f"top{choices}", "group_size": S // groups, "eval_capacity_factor": 0.5}
    y, _ = run(**options)
    expected, found = by_hand(groups, choices, 4, **options)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    dropped = sum(group.dropped for group in found)
    assert (dropped > 0) == (groups == 1)


def test_experts_that_choose_take_their_best_tokens():
    options = {"routing": "expert_choice", "eval_capacity_factor": 2.0}
    values = {name: v.astype("f8") for name, v in built(**options)[1].items()}
    y, sums = run(**options)
    for b in range(B):
        gate = by_expert(X[b] @ values["router"], REAL[b], 4)
        expected = [sum(gate[s, e] * expert(values, e, X[b, s]) for e in range(E)) for s in range(S)]
        np.testing.assert_allclose(y[b], expected, rtol=1e-4, atol=1e-5)
    assert sums["balance_loss"][0] == 0 and sums["expert_load"][0].sum() == sums["expert_load"][1]


@pytest.mark.parametrize("routing", ["top1", "top2"])
def test_both_dispatches_have_the_same_gradients(routing):
    direction = np.random.default_rng(2).normal(size=X.shape).astype("f4")

    def gradients(dispatch):
        layer, values = built(routing=routing, **ALL[dispatch])
        stream = Randomness.for_step(0, 0, B)

        def loss(values, x):
            y, sums = bind(layer, values)(x, SEGMENTS, stream)
            return jnp.sum(y * direction) + sums["balance_loss"][0] + 0.1 * sums["router_z_loss"][0]

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(values, X)

    one, other = gradients("einsum"), gradients("sorted")
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.abs(a).max() > 1e-3
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dispatch", ["einsum", "sorted"])
def test_with_seats_for_all_tokens_in_another_order_get_the_same_answers(dispatch):
    order = np.random.default_rng(3).permutation(S)
    y, _ = run(**ALL[dispatch])
    moved, _ = run(X[:, order], SEGMENTS[:, order], **ALL[dispatch])
    np.testing.assert_allclose(moved[REAL[:, order]], y[:, order][REAL[:, order]], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dispatch", ["einsum", "sorted"])
@pytest.mark.parametrize("routing", ["top1", "top2"])
def test_padding_takes_no_seat_and_changes_neither_answers_nor_sums(routing, dispatch):
    dirty = np.where(REAL[..., None], X, 50.0).astype("f4")
    options = {"routing": routing, **FEW[dispatch]}
    (y, sums), (other, others) = run(**options), run(dirty, **options)
    np.testing.assert_array_equal(y[REAL], other[REAL])
    for name in sums:
        for i in range(2):
            np.testing.assert_array_equal(sums[name][i], others[name][i], err_msg=name)


def test_an_example_is_routed_alone_so_sums_of_parts_of_a_batch_add_up():
    options = {"group_size": 4, "capacity_factor": 0.5, "jitter": 0.1}
    whole = Randomness.for_step(0, 3, B)
    y, sums = run(randomness=whole, **options)
    parts = []
    for rows in (np.arange(0, B, 2), np.arange(1, B, 2)):
        stream = Randomness(whole.key, jnp.asarray(rows, jnp.int32))
        part, own = run(X[rows], SEGMENTS[rows], stream, **options)
        np.testing.assert_allclose(part[REAL[rows]], y[rows][REAL[rows]], rtol=1e-5, atol=1e-6)
        parts.append(own)
    for name, pair in sums.items():
        for i in range(2):
            np.testing.assert_allclose(parts[0][name][i] + parts[1][name][i], pair[i], rtol=1e-5, err_msg=name)


def test_bfloat16_leaves_the_router_in_float32():
    layer, values = built()
    y, sums = bind(layer, values)(jnp.asarray(X, jnp.bfloat16), SEGMENTS)
    assert y.dtype == jnp.bfloat16 and all(pair[0].dtype == jnp.float32 for pair in sums.values())
    logits = np.asarray(jnp.asarray(X, jnp.bfloat16), "f8") @ values["router"]
    z = np.log(np.exp(logits).sum(-1))[REAL]
    np.testing.assert_allclose(sums["router_z_loss"][0], (z**2).sum(), rtol=1e-5)


# Sums.


@pytest.mark.parametrize("balance, scale", [("paper", 1 / E), ("code", E)])
def test_sums_are_those_counted_by_hand(balance, scale):
    options = {"group_size": 4, "eval_capacity_factor": 0.5, "balance": balance}
    _, sums = run(**options)
    _, found = by_hand(2, 2, 4, **options)
    logits = (X.astype("f8") @ built(**options)[1]["router"])[REAL]
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    real_groups = sum(group.wanted > 0 for group in found)
    wanted = sum(group.wanted for group in found)
    kept = wanted - sum(group.dropped for group in found)
    expected = {
        "balance_loss": (scale * sum(group.balance for group in found), real_groups),
        "router_z_loss": ((np.log(np.exp(logits).sum(-1)) ** 2).sum(), REAL.sum()),
        "router_entropy": (-(p * np.log(p)).sum(), REAL.sum()),
        "dropped": (wanted - kept, wanted),
        "expert_load": (sum(group.chosen for group in found), wanted),
        "seats_used": (kept, real_groups * E * 4),
        # 4 experts of 4 seats for 2 choices of 4 tokens: 2, where .5 was asked for.
        "effective_capacity": (2.0 * real_groups, real_groups),
    }
    assert sums.keys() == expected.keys()
    for name, (total, weight) in expected.items():
        np.testing.assert_allclose(sums[name][0], total, rtol=1e-4, err_msg=name)
        np.testing.assert_allclose(sums[name][1], weight, err_msg=name)


def test_training_and_evaluation_have_capacities_of_their_own():
    options = {"capacity_factor": 1.0, "eval_capacity_factor": 3.0, "routing": "top1"}
    # 2 seats are rounded up to 4, 6 to 8.
    for randomness, seats in ((Randomness.for_step(0, 0, B), 4), (None, 8)):
        total, weight = run(randomness=randomness, **options)[1]["effective_capacity"]
        assert total / weight == seats * E / S


def test_only_training_jitters_and_draws_the_second_expert():
    stream = Randomness.for_step(0, 0, B)
    plain, noisy = ENOUGH | {"jitter": 0.0}, ENOUGH | {"jitter": 0.3}
    np.testing.assert_array_equal(run(**plain)[0], run(**noisy)[0])
    assert np.abs(run(randomness=stream, **plain)[0] - run(randomness=stream, **noisy)[0]).max() > 1e-3
    wanted = [run(randomness=r, **plain)[1]["dropped"][1] for r in (None, stream)]
    assert wanted[0] == 2 * REAL.sum() > wanted[1] > REAL.sum()
    assert (
        np.abs(run(randomness=stream, **plain)[0] - run(randomness=Randomness.for_step(0, 1, B), **plain)[0]).max()
        > 1e-3
    )


# Mistakes.


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_experts": 1}, "moe.num_experts: 1, and routing 'top2' needs at least 2."),
        ({"hidden": 0}, "moe.hidden: 0. It must be at least 1."),
        ({"group_size": -1}, "moe.group_size: -1. It must be at least 1."),
        (
            {"capacity_factor": 2.0, "dispatch": "sorted"},
            "moe.capacity_factor: 2.0 has no effect where moe.dispatch is 'sorted', without seats. Set it to None.",
        ),
        ({"capacity_factor": 0.0}, "moe.capacity_factor: 0.0 gives experts no seat. It must be above 0."),
        ({"eval_capacity_factor": -1.0}, "moe.eval_capacity_factor: -1.0 gives experts no seat. It must be above 0."),
        ({"jitter": 1.0}, "moe.jitter: 1.0 is outside [0, 1)."),
        (
            {"routing": "expert_choice", "dispatch": "sorted"},
            "moe.dispatch: with routing 'expert_choice' experts have seats, so it is 'einsum'.",
        ),
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_a_mistake(options, message):
    with pytest.raises(Mistake) as caught:
        MoE(**{"num_experts": E} | options)
    assert str(caught.value).startswith(message)


def test_a_group_that_does_not_divide_the_sequence_is_a_mistake():
    with pytest.raises(Mistake, match=r"^moe.group_size: 5 does not divide sequences of 8\. These do: 1, 2, 4, 8\."):
        run(group_size=5)
