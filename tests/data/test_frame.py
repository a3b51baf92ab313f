"""Documents are framed one after another."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data.frame import FRAME, frame
from tests.data.words import Words


@given(st.lists(st.lists(st.integers(5, 900), max_size=6), max_size=5))
def test_a_row_is_what_a_loop_over_tokens_makes(documents):
    tokens, segments, positions = [], [], []
    for number, document in enumerate(documents, 1):
        for position, token in enumerate([Words.cls_id, *document, Words.sep_id]):
            tokens.append(token)
            segments.append(number)
            positions.append(position)
    length = sum(len(document) + FRAME for document in documents) + 3
    row = frame([np.asarray(document, np.int32) for document in documents], length, Words())
    for name, expected in (
        ("tokens", tokens),
        ("segment_ids", segments),
        ("positions", positions),
        ("token_types", []),
    ):
        np.testing.assert_array_equal(row[name], expected + [0] * (length - len(expected)))
        assert row[name].dtype == np.int32
