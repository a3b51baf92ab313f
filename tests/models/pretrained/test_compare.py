"""Comparison: what counts as agreement."""

import dataclasses

import numpy as np
import pytest

from models.pretrained.checkpoint import read
from models.pretrained.compare import Comparison, by_tensors, random_inputs
from tests.models.pretrained.fixture_models import FIXTURES


def changed(checkpoint, path, value):
    return dataclasses.replace(checkpoint, params={**checkpoint.params, path: value})


def test_the_largest_difference_of_each_tensor_is_told():
    first = read(FIXTURES / "encoder")
    kernel = first.params["encoder.pooler.kernel"].copy()
    kernel[3, 4] += 0.5
    found = by_tensors(first, changed(first, "encoder.pooler.kernel", kernel))
    assert not found.agree
    assert {path: value for path, value in found.differences.items() if value} == {
        "encoder.pooler.kernel": pytest.approx(0.5)
    }


def test_a_tensor_that_one_lacks_or_has_in_another_shape_is_a_fault():
    first = read(FIXTURES / "encoder")
    second = changed(changed(first, "more", np.zeros(1)), "encoder.pooler.bias", np.zeros(3))
    found = by_tensors(first, second)
    assert found.faults == ("only one has more", "encoder.pooler.bias is [12] and [3]") and not found.agree


def test_a_number_that_is_none_never_agrees():
    assert not Comparison("outputs", {"hidden_states": float("nan")}).agree
    assert Comparison("outputs", {"hidden_states": 1e-5}).agree


def test_inputs_have_padding_and_segments_and_are_the_same_each_time():
    checkpoint = read(FIXTURES / "pretraining")
    inputs, again = random_inputs(checkpoint), random_inputs(checkpoint)
    assert all(np.array_equal(inputs[name], again[name]) for name in inputs)
    assert (inputs["segment_ids"] != 0).sum(1).tolist() == [16, 12, 8, 1]
    assert set(inputs["token_types"].ravel()) == {0, 1, 2}
    assert all(not x[inputs["segment_ids"] == 0].any() for x in inputs.values())
    assert inputs["tokens"].max() < 31
