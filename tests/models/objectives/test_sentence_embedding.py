"""Sentence embeddings: multiple-negatives ranking against a loop, and padding that is nobody's negative."""

import math

import jax
import numpy as np
import pytest

from models.objectives.sentence_embedding import SentenceEmbedding
from parallel.parameters import bind, declared, initialize
from parallel.randomness import Randomness

RNG = np.random.default_rng(0)


def sentences(prefix):
    lengths = np.array([5, 3, 4, 1])
    segments = (np.arange(5) < lengths[:, None]).astype("i4")
    return {
        f"{prefix}tokens": np.where(segments, RNG.integers(1, 11, (4, 5)), 0).astype("i4"),
        f"{prefix}segment_ids": segments,
        f"{prefix}positions": np.where(segments, np.arange(5), 0).astype("i4"),
        f"{prefix}token_types": np.zeros((4, 5), "i4"),
    }


BATCH = sentences("") | sentences("pair_") | {"weight": np.array([1, 0.5, 1, 1], "f4")}


@pytest.fixture
def built(encoder_class):
    model = SentenceEmbedding(encoder_class(pooler=False), temperature=0.2)
    rng = np.random.default_rng(1)
    return model, {path: rng.normal(size=d.shape).astype("f4") for path, d in declared(model).items()}


def losses(built, batch):
    model, values = built

    def loss(values, batch):
        sums = bind(model, values).losses(batch)
        return sums["loss"][0], sums

    (_, sums), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(values, batch)
    return sums, gradients


def padded(batch, rows=3):
    """The batch with `rows` examples of zeros at its end."""
    return {
        name: np.concatenate([array, np.zeros((rows, *array.shape[1:]), array.dtype)]) for name, array in batch.items()
    }


def by_hand(values, batch):
    """(loss sum, right, weight): of a pair, the mean of -log softmax of its similarity within its row and its column."""
    table = values["encoder.embeddings.token.table"].astype("f8")

    def embed(prefix, b):
        real = [s for s in range(5) if batch[f"{prefix}segment_ids"][b, s]]
        mean = np.mean(
            [np.tanh(table[batch[f"{prefix}tokens"][b, s]] + 0.1 * batch[f"{prefix}positions"][b, s]) for s in real], 0
        )
        return mean / math.sqrt(mean @ mean)

    scores = np.array([[embed("", i) @ embed("pair_", j) / 0.2 for j in range(4)] for i in range(4)])
    total = right = 0.0
    for i, weight in enumerate(batch["weight"]):
        among = [math.log(np.exp(line).sum()) - scores[i, i] for line in (scores[i], scores[:, i])]
        total += weight * sum(among) / 2
        right += weight * (scores[i].argmax() == i)
    return total, right, batch["weight"].sum()


def test_loss_and_accuracy_are_those_of_a_loop(built):
    sums, _ = losses(built, BATCH)
    total, right, weight = by_hand(built[1], BATCH)
    np.testing.assert_allclose(sums["loss"], (total, weight), rtol=1e-4)
    np.testing.assert_allclose(sums["accuracy"], (right, weight))


def test_padding_examples_are_nobodys_negative_and_leave_gradients_as_they_are(built):
    sums, gradients = losses(built, BATCH)
    with_padding, their_gradients = losses(built, padded(BATCH))
    for name, pair in sums.items():
        np.testing.assert_allclose(with_padding[name], pair, rtol=1e-5)
    for path, gradient in gradients.items():
        np.testing.assert_allclose(their_gradients[path], gradient, rtol=1e-4, atol=1e-6)


def test_a_batch_that_is_all_padding_has_zero_sums_and_finite_gradients(built):
    sums, gradients = losses(built, {name: np.zeros_like(array) for name, array in BATCH.items()})
    assert all(float(value) == 0 for value in jax.tree.leaves(sums))
    assert all(np.isfinite(gradient).all() for gradient in gradients.values())


def test_embeddings_are_unit_vectors_that_padding_positions_do_not_move(built):
    model, values = built
    plain = np.asarray(bind(model, values).embed(BATCH))
    np.testing.assert_allclose(np.linalg.norm(plain, axis=-1), 1, rtol=1e-5)
    padding = BATCH["segment_ids"] == 0
    dirty = {name: array.copy() for name, array in BATCH.items()}
    dirty["tokens"][padding], dirty["positions"][padding] = 9, 4
    np.testing.assert_array_equal(bind(model, values).embed(dirty), plain)


def test_the_two_sentences_of_a_pair_get_noise_of_their_own(encoder_class):
    heard = []

    class Listening(encoder_class):
        def __call__(self, *inputs, randomness=None):
            heard.append(inputs[-1])
            return super().__call__(*inputs)

    model = SentenceEmbedding(Listening(pooler=False))
    bind(model, initialize(declared(model), 0)).losses(BATCH, Randomness.for_step(0, 0, 4))
    first, second = heard
    assert first.key != second.key
    assert first.example_B.tolist() == second.example_B.tolist() == [0, 1, 2, 3]


def test_it_compares_every_example_with_every_other_so_it_says_a_batch_must_stay_whole(built):
    assert built[0].whole_batch
