"""Tables: rows by number, and the tied output."""

import jax
import jax.numpy as jnp
import numpy as np

from models.layers.embedding import Embedding
from models.layers.initializers import TruncatedNormal
from parallel.parameters import Declared, bind, declared

INIT = TruncatedNormal(0.02)
TABLE = np.random.default_rng(0).normal(size=(7, 4)).astype("f4")
EMBEDDING = bind(Embedding(7, 4, rows_name="vocab", init=INIT), {"table": jnp.asarray(TABLE)})


def test_the_table_has_one_named_row_an_id():
    assert declared(EMBEDDING) == {"table": Declared((7, 4), ("vocab", "embed"), INIT)}


def test_an_id_gives_its_row_in_the_dtype_asked_for():
    ids = np.array([[0, 6, 3], [3, 3, 1]], "i4")
    out = EMBEDDING(ids, jnp.float32)
    for at in np.ndindex(ids.shape):
        np.testing.assert_array_equal(out[at], TABLE[ids[at]])
    assert EMBEDDING(ids, jnp.bfloat16).dtype == jnp.bfloat16


def test_the_gradient_of_a_row_counts_each_time_it_was_looked_up():
    ids = np.array([3, 3, 1], "i4")
    blank = Embedding(7, 4, rows_name="vocab", init=INIT)
    gradient = jax.grad(lambda table: bind(blank, {"table": table})(ids, jnp.float32).sum())(jnp.asarray(TABLE))
    np.testing.assert_array_equal(gradient[:, 0], [0, 1, 0, 2, 0, 0, 0])


def test_logits_are_products_with_every_row_in_float32_also_from_bfloat16():
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype("f4")
    np.testing.assert_allclose(EMBEDDING.logits(x), x @ TABLE.T, rtol=1e-5, atol=1e-6)
    # 1 + 2^-9 needs more bits than bfloat16 has, and is the sum of two products that it does hold.
    table = {"table": jnp.array([[1.0, 2.0**-9]])}
    logits = bind(Embedding(1, 2, rows_name="vocab", init=INIT), table).logits(jnp.ones((1, 2), jnp.bfloat16))
    assert logits.dtype == jnp.float32 and float(logits[0, 0]) == 1 + 2**-9


def test_an_id_beyond_the_table_is_not_taken_for_another_row():
    assert np.isnan(EMBEDDING(np.array([7], "i4"), jnp.float32)).all()
