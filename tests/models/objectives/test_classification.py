"""Classification of sequences and of tokens against NumPy."""

import jax
import numpy as np
import pytest

from mistake import Mistake
from models.objectives.classification import SequenceClassification, TokenClassification
from parallel.parameters import bind, declared
from parallel.randomness import Randomness

RNG = np.random.default_rng(0)
INPUTS = {
    "tokens": RNG.integers(1, 11, (4, 5)).astype("i4"),
    "segment_ids": np.ones((4, 5), "i4"),
    "positions": np.tile(np.arange(5, dtype="i4"), (4, 1)),
    "token_types": np.zeros((4, 5), "i4"),
}
SEQUENCES = INPUTS | {"label": np.array([2, 0, 1, 0], "i4"), "weight": np.array([1, 1, 0.5, 0], "f4")}
TOKENS = INPUTS | {
    "labels": RNG.integers(0, 3, (4, 5)).astype("i4"),
    "label_weights": np.array([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0.5, 0, 0, 0], [0] * 5], "f4"),
}


def built(model):
    rng = np.random.default_rng(1)
    return {path: rng.normal(size=d.shape).astype("f4") for path, d in declared(model).items()}


def losses(model, values, batch, randomness=None):
    return jax.jit(lambda v, b, r: bind(model, v).losses(b, r))(values, batch, randomness)


def states(p):
    return np.tanh(p["encoder.embeddings.token.table"][INPUTS["tokens"]] + 0.1 * INPUTS["positions"][..., None])


def sums(logits, labels, weights):
    """(loss, right, weight), one example at a time."""
    total = right = 0.0
    for at in np.ndindex(labels.shape):
        z = logits[at].astype("f8")
        total += weights[at] * (np.log(np.exp(z).sum()) - z[labels[at]])
        right += weights[at] * (z.argmax() == labels[at])
    return total, right, weights.sum()


def agree(found, expected):
    total, right, weight = expected
    np.testing.assert_allclose(found["loss"], (total, weight), rtol=1e-4)
    np.testing.assert_allclose(found["accuracy"], (right, weight))


def test_sequences_are_classified_from_the_pooled_state(encoder_class):
    model = SequenceClassification(encoder_class(), num_classes=3)
    p = built(model)
    logits = states(p)[:, 0] @ p["encoder.pooler"] @ p["head.kernel"] + p["head.bias"]
    agree(losses(model, p, SEQUENCES), sums(logits, SEQUENCES["label"], SEQUENCES["weight"]))


def test_tokens_are_classified_from_their_states(encoder_class):
    model = TokenClassification(encoder_class(pooler=False), num_classes=3)
    p = built(model)
    logits = states(p) @ p["head.kernel"] + p["head.bias"]
    agree(losses(model, p, TOKENS), sums(logits, TOKENS["labels"], TOKENS["label_weights"]))


def test_an_example_or_token_without_weight_contributes_nothing_whatever_it_holds(encoder_class):
    sequences, tokens = SequenceClassification(encoder_class(), 3), TokenClassification(encoder_class(pooler=False), 3)
    other = {name: array.copy() for name, array in SEQUENCES.items()}
    other["tokens"][3], other["label"][3] = 9, 2
    p = built(sequences)
    assert jax.tree.all(jax.tree.map(np.array_equal, losses(sequences, p, SEQUENCES), losses(sequences, p, other)))
    other = {name: array.copy() for name, array in TOKENS.items()}
    nothing = TOKENS["label_weights"] == 0
    other["tokens"][nothing], other["labels"][nothing] = 9, 2
    p = built(tokens)
    assert jax.tree.all(jax.tree.map(np.array_equal, losses(tokens, p, TOKENS), losses(tokens, p, other)))


def test_heads_are_named(encoder_class):
    for model in (SequenceClassification(encoder_class(), 3), TokenClassification(encoder_class(), 3)):
        heads = {path: (d.shape, d.names) for path, d in declared(model).items() if path.startswith("head")}
        assert heads == {"head.kernel": ((6, 3), ("embed", "classes")), "head.bias": ((3,), ("classes",))}


@pytest.mark.parametrize(("objective", "batch"), [(SequenceClassification, SEQUENCES), (TokenClassification, TOKENS)])
def test_dropout_before_the_head_is_there_with_randomness_only(encoder_class, objective, batch):
    model, plain = objective(encoder_class(), 3, dropout=0.5), objective(encoder_class(), 3, dropout=0.0)
    p = built(model)
    expected = losses(plain, p, batch)["loss"][0]
    assert losses(model, p, batch)["loss"][0] == expected
    assert losses(plain, p, batch, Randomness.for_step(0, 0, 4))["loss"][0] == expected
    assert losses(model, p, batch, Randomness.for_step(0, 0, 4))["loss"][0] != expected


def test_sequences_without_a_pooler_are_a_mistake_that_says_how_to_get_one(encoder_class):
    with pytest.raises(Mistake, match=r"^bert.pooler: .* Set bert.pooler = True\."):
        SequenceClassification(encoder_class(pooler=False), 3)
