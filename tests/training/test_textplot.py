"""Curves in text show the values they are given."""

import math

from training.textplot import braille_plot, sparkline


def test_a_sparkline_goes_from_the_least_to_the_greatest():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([5, -5, 0.1], 8) == "█▁▅"


def test_a_sparkline_narrower_than_its_values_shows_means():
    assert sparkline([0, 0, 4, 10, 14, 14], 3) == "▁▅█"


def test_a_sparkline_marks_what_is_not_finite():
    assert sparkline([0, math.nan, 7, math.inf], 8) == "▁×█×"
    assert sparkline([math.nan], 8) == "×"


def test_a_sparkline_of_nothing_and_of_one_value():
    assert sparkline([], 8) == ""
    assert sparkline([3.0, 3.0], 8) == "▁▁"


def test_a_rising_line_in_one_cell():
    # Two columns of four dots; from the lower left to the upper right: dots 7, 3, 5, 4 of Unicode's numbering.
    assert braille_plot([(0, 0.0), (1, 1.0)], width=1, height=1) == [chr(0x2800 + 0x40 + 0x04 + 0x10 + 0x08)]


def test_a_falling_line_goes_from_corner_to_corner():
    plot = braille_plot([(0, 1.0), (10, 0.0)], width=6, height=3)
    assert [len(line) for line in plot] == [6, 6, 6]
    assert ord(plot[0][0]) & 0x01 and ord(plot[2][5]) & 0x80
    assert plot[0][5] == plot[2][0] == " "


def test_a_gap_stays_a_gap():
    # Six columns of dots: the values at 0 and 1 are joined, 2 and 3 are missing, 4 and 5 are joined.
    plot = braille_plot([(0, 1.0), (1, 1.0), (2, math.nan), (3, math.nan), (4, 1.0), (5, 1.0)], width=3, height=1)
    assert [bool(ord(c) & 0xFF) for c in plot[0].replace(" ", "\u2800")] == [True, False, True]


def test_one_point_and_no_finite_point():
    assert braille_plot([(3, 2.0)], width=2, height=1)[0].strip()
    assert braille_plot([(3, math.nan)], width=2, height=2) == ["  ", "  "]
    assert braille_plot([], width=2, height=1) == ["  "]
