"""Routing against the papers' algorithms run one token at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers import routing
from tests.models.layers.numpy_routing import by_expert, by_token

G, S, E = 3, 12, 4


def some(seed, spread=1.5):
    """Logits [G, S, E], which tokens are real [G, S] (of the first group not the ends, nor one inside), and draws."""
    rng = np.random.default_rng(seed)
    real = np.ones((G, S))
    real[0, [0, 5, 10, 11]] = 0
    real[1, 9:] = 0
    return rng.normal(0, spread, (G, S, E)).astype("f4"), real.astype("f4"), rng.random((G, S)).astype("f4")


def routed(logits, real, choices, drawn, size):
    """(dispatch, combine, kept, wanted)."""
    found = routing.choose(jnp.asarray(logits), jnp.asarray(real), choices, drawn)
    place, kept = routing.seats(found, E, size)
    return *routing.combine(found, place, kept, E, size), kept, found.wanted


@pytest.mark.parametrize("size", [1, 2, 4, 12])
@pytest.mark.parametrize("choices, random", [(1, False), (2, False), (2, True)])
def test_tokens_get_the_seats_and_gates_of_algorithm_1(choices, random, size):
    dropped = 0
    for seed in range(8):
        logits, real, drawn = some(seed)
        draws = drawn if random else None
        dispatch, combine, kept, wants = map(np.asarray, routed(logits, real, choices, draws, size))
        for g in range(G):
            expected = by_token(logits[g], real[g], choices, size, draws if draws is None else draws[g])
            np.testing.assert_allclose(combine[g].sum(-1), expected.gate, rtol=1e-5, atol=1e-7)
            where = np.full((S, E), -1)
            for s, e, c in np.argwhere(dispatch[g] == 1):
                where[s, e] = c
            np.testing.assert_array_equal(where, expected.seat)
            assert set(np.unique(dispatch[g])) <= {0, 1}
            assert (wants[g].sum(), wants[g].sum() - kept[g].sum()) == (expected.wanted, expected.dropped)
            dropped += expected.dropped
    assert (dropped > 0) == (size < 12)


@pytest.mark.parametrize("form, scale", [("paper", 1 / E), ("code", E)])
def test_the_balance_loss_is_the_mean_over_groups_with_a_real_token(form, scale):
    logits, real, _ = some(1)
    real[2] = 0
    total, weight = routing.balance(routing.choose(jnp.asarray(logits), jnp.asarray(real), 2, None), real, form)
    expected = sum(by_token(logits[g], real[g], 2, S).balance for g in range(2))
    np.testing.assert_allclose(total, scale * expected, rtol=1e-5)
    assert weight == 2


@pytest.mark.parametrize("form, uniform", [("paper", 1 / E**2), ("code", 1.0)])
def test_the_balance_loss_of_equal_shares_and_probabilities_is_one_in_googles_form(form, uniform):
    # Each expert is first for a quarter of the tokens, by a hair.
    logits = 1e-6 * np.eye(E)[np.arange(S) % E][None]
    found = routing.choose(jnp.asarray(logits, jnp.float32), jnp.ones((1, S)), 2, None)
    total, weight = routing.balance(found, jnp.ones((1, S)), form)
    np.testing.assert_allclose(total / weight, uniform, rtol=1e-5)


def test_the_balance_loss_pushes_probability_away_from_the_busiest_expert():
    logits, real, _ = some(0, spread=0.1)
    logits[..., 0] += 1.0

    def loss(logits):
        return routing.balance(routing.choose(logits, real, 2, None), real, "code")[0]

    gradient = jax.grad(loss)(jnp.asarray(logits))
    assert (np.asarray(gradient)[real > 0][:, 0] > 0).all()
    assert not np.asarray(gradient)[real == 0].any()


@pytest.mark.parametrize("size", [1, 3, 12])
def test_each_expert_takes_its_best_tokens_and_no_padding(size):
    for seed in range(4):
        logits, real, _ = some(seed)
        dispatch, combine, _ = (np.asarray(x) for x in routing.expert_choice(logits, jnp.asarray(real), size))
        for g in range(G):
            expected = by_expert(logits[g], real[g], size)
            np.testing.assert_allclose(combine[g].sum(-1), expected, rtol=1e-5, atol=1e-7)
            np.testing.assert_array_equal(dispatch[g].sum(-1), expected > 0)
        assert dispatch.sum((1, 3)).max() <= size and dispatch.sum(1).max() <= 1


def test_seats_are_a_multiple_of_four_unless_that_is_more_than_there_are_tokens():
    assert routing.capacity(1.25, 2, 128, 8) == 40
    assert routing.capacity(1.0, 1, 100, 8) == 16  # 12.5
    assert routing.capacity(1.0, 1, 128, 128) == 4  # 1
    assert routing.capacity(2.0, 2, 16, 2) == 16  # 32
    assert routing.capacity(100.0, 1, 10, 4) == 10  # 250
    assert routing.capacity(1.1, 2, 400, 4) == 220  # 220.00000000000003 in floats


def test_a_second_choice_is_drawn_with_twice_its_share():
    n = 20_000
    logits = np.log(np.array([0.6, 0.2, 0.1, 0.1], "f4")) * np.ones((1, n, 1), "f4")
    drawn = np.random.default_rng(0).random((1, n)).astype("f4")
    found = routing.choose(jnp.asarray(logits), jnp.ones((1, n)), 2, drawn)
    # Of the two best, .6 and .2, the second has a quarter.
    assert abs(np.asarray(found.wanted)[..., 1].mean() - 0.5) < 4 * np.sqrt(0.25 / n)
    assert np.asarray(found.wanted)[..., 0].all()
