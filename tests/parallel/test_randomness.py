"""Noise belongs to (seed, step, name, layer, example), and to nothing else."""

import math

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mistake import Mistake
from parallel.randomness import Randomness, dropout

SHAPE = (8, 3, 5)


def kept(randomness, rate=0.5, shape=SHAPE):
    return np.asarray(randomness.keep(rate, shape))


def finalizer(x):
    """MurmurHash3's 32-bit finalizer, in Python's integers."""
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) % 2**32
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) % 2**32
    return x ^ (x >> 16)


def test_bits_are_the_published_hash_of_each_place_under_its_examples_key():
    stream = Randomness.for_step(3, 4, 2)
    keep = kept(stream, 0.3, (2, 3, 5))
    for example in range(2):
        first, second = (int(v) for v in jax.random.bits(jax.random.fold_in(stream.key, example), (2,)))
        for place in range(15):
            bits = finalizer((finalizer((place + first) % 2**32) + second) % 2**32)
            assert keep[example].flat[place] == (bits < 0.7 * 2**32)


@hypothesis.given(st.permutations(range(8)))
@hypothesis.settings(max_examples=10, deadline=None)
def test_the_noise_of_an_example_does_not_depend_on_how_the_batch_is_split_or_ordered(order):
    whole = Randomness.for_step(0, 1, 8)
    order = np.array(order)
    for rows in (order, order[:4], order[4:]):
        piece = Randomness(whole.key, jnp.asarray(rows, jnp.int32))
        np.testing.assert_array_equal(kept(piece, shape=(len(rows), 3, 5)), kept(whole)[rows])


def test_noise_is_the_same_when_it_is_drawn_sharded_over_eight_devices():
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "tensor"))
    place = NamedSharding(mesh, PartitionSpec("data", None, "tensor"))
    draw = lambda: Randomness.for_step(0, 0, 8).keep(0.4, (8, 3, 6))
    np.testing.assert_array_equal(jax.jit(draw, out_shardings=place)(), draw())


def test_seed_step_name_layer_and_example_each_give_another_stream():
    stream = Randomness.for_step(0, 0, 8)
    streams = [
        stream,
        Randomness.for_step(1, 0, 8),
        Randomness.for_step(0, 1, 8),
        stream.named("a"),
        stream.named("b"),
        stream.layer(0),
        stream.layer(1),
        stream.layer(1).named("a"),
        stream.named("a").named("b"),
    ]
    masks = {row.tobytes() for s in streams for row in kept(s, shape=(8, 12, 12))}
    assert len(masks) == len(streams) * 8


def test_a_traced_step_and_layer_give_the_stream_of_their_number():
    traced = jax.jit(lambda step, layer: Randomness.for_step(0, step, 8).layer(layer).keep(0.5, SHAPE))(3, 2)
    np.testing.assert_array_equal(traced, kept(Randomness.for_step(0, 3, 8).layer(2)))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_the_rate_is_met_within_five_standard_deviations_overall_and_in_each_example_row_and_column(rate):
    dropped = ~kept(Randomness.for_step(0, 0, 16), rate, (16, 128, 128))
    for axes in ((0, 1, 2), (1, 2), (0, 2), (0, 1)):
        share = dropped.mean(axes)
        n = dropped.size / share.size
        assert np.abs(share - rate).max() <= 5 * math.sqrt(rate * (1 - rate) / n)


def test_noise_of_neighbouring_places_examples_layers_and_steps_is_uncorrelated():
    def signs(randomness):
        return np.where(kept(randomness, 0.5, (16, 64, 64)), 1.0, -1.0)

    noise = signs(Randomness.for_step(0, 0, 16))
    pairs = {
        "column": (noise[:, :, 1:], noise[:, :, :-1]),
        "row": (noise[:, 1:], noise[:, :-1]),
        "example": (noise[1:], noise[:-1]),
        "step": (noise, signs(Randomness.for_step(0, 1, 16))),
        "layer": (noise, signs(Randomness.for_step(0, 0, 16).layer(0))),
    }
    for what, (a, b) in pairs.items():
        assert abs((a * b).mean()) < 5 / math.sqrt(a.size), what


def test_a_rate_next_to_nothing_keeps_everything():
    assert kept(Randomness.for_step(0, 0, 8), 1e-15).all()


def test_dropout_scales_what_it_keeps_and_keeps_the_dtype():
    x = jnp.arange(1, 121, dtype=jnp.bfloat16).reshape(SHAPE)
    stream = Randomness.for_step(0, 0, 8)
    out = dropout(x, 0.5, stream, "here")
    assert out.dtype == jnp.bfloat16
    np.testing.assert_array_equal(out, np.where(kept(stream.named("here")), 2 * np.asarray(x, "f4"), 0))


def test_dropout_without_randomness_or_rate_is_nothing():
    x = jnp.ones(SHAPE)
    assert dropout(x, 0.5, None, "here") is x
    assert dropout(x, 0.0, Randomness.for_step(0, 0, 8), "here") is x


@pytest.mark.parametrize("rate", [1.0, 1.5, -0.1])
def test_a_rate_that_is_none_is_a_mistake(rate):
    with pytest.raises(Mistake, match=rf"dropout: {rate} for 'here' is not a rate"):
        dropout(jnp.ones(SHAPE), rate, None, "here")


def test_uniform_draws_are_even_over_zero_to_one_and_an_examples_own():
    stream = Randomness.for_step(0, 1, 8)
    whole = np.asarray(stream.uniform((8, 50, 50)))
    assert whole.dtype == np.float32 and 0 <= whole.min() and whole.max() < 1
    counts, _ = np.histogram(whole, 10, (0, 1))
    assert np.abs(counts - 2000).max() < 5 * math.sqrt(2000 * 0.9)
    rows = np.array([5, 2])
    piece = Randomness(stream.key, jnp.asarray(rows, jnp.int32)).uniform((2, 50, 50))
    np.testing.assert_array_equal(piece, whole[rows])
    # The same bits that dropout compares.
    np.testing.assert_array_equal(np.asarray(stream.keep(0.75, (8, 50, 50))), whole < 0.25)
