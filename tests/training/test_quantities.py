"""Quantities read as people write them."""

import pytest

from training.quantities import counted, data_size, duration, metric, percent, short, significant, words


@pytest.mark.parametrize(
    "x, text",
    [
        (2.34567, "2.346"),
        (0.0312, "0.03120"),
        (0.0001, "1.000e-04"),
        (12345.6, "12,346"),
        (0, "0"),
        (-2.5, "-2.500"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (9.99999, "10.00"),
    ],
)
def test_significant(x, text):
    assert significant(x) == text


@pytest.mark.parametrize(
    "n, text",
    [
        (0, "0"),
        (512, "512"),
        (12_345, "12.3k"),
        (4_385_000, "4.38M"),
        (1.34e9, "1.34B"),
        (2.1e12, "2.10T"),
        (999_999, "1.00M"),
        (12.34, "12.3"),
    ],
)
def test_short(n, text):
    assert short(n) == text


@pytest.mark.parametrize(
    "n, text", [(0, "0 B"), (512, "512 B"), (1024, "1.00 KiB"), (17_511_219, "16.7 MiB"), (2**50, "1.00 PiB")]
)
def test_data_size(n, text):
    assert data_size(n) == text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.0812, "81.2 ms"),
        (4.2, "4.20 s"),
        (42.3, "42 s"),
        (252, "4 min 12 s"),
        (59.7, "1 min 00 s"),
        (7500, "2 h 05 min"),
        (273_600, "3 d 04 h"),
        (float("nan"), "unknown"),
        (0, "0 ms"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_accuracies_and_shares_are_percentages_and_other_metrics_are_not():
    assert metric("masked_accuracy", 0.312) == "31.2%"
    assert metric("dropped_fraction", 0.02) == "2.0%"
    assert metric("loss", 0.312) == "0.3120"
    assert percent(1) == "100%" and percent(float("nan")) == "nan"


def test_words_and_counts():
    assert words("masked_accuracy") == "masked accuracy"
    assert counted(1, "step") == "1 step" and counted(4000, "step") == "4,000 steps"
