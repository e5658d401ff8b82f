"""What every chart has."""

import math

from hypothesis import given
from hypothesis import strategies as st

from hubscout.report.charts.chart import linear, logarithmic

numbers = st.floats(min_value=-1e6, max_value=1e6)


@given(st.lists(numbers, min_size=1, max_size=20))
def test_a_straight_axis_holds_all_values_and_has_ticks_inside(values: list[float]) -> None:
    scale = linear(values, 0, 100)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks)
    assert len(scale.ticks) <= 12


@given(st.lists(st.floats(min_value=1e-9, max_value=1e12), min_size=1, max_size=20))
def test_a_logarithmic_axis_holds_all_values_and_is_never_crowded(values: list[float]) -> None:
    scale = logarithmic(values, 0, 100)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)
    assert 1 <= len(scale.ticks) <= 12


def test_values_that_are_no_numbers_do_not_stretch_an_axis() -> None:
    assert linear([1.0, 2.0, math.inf, math.nan], 0, 1).high < 3


def test_whole_ticks_for_things_that_are_counted() -> None:
    assert linear([1, 2, 3], 0, 100, whole=True).ticks == (1.0, 2.0, 3.0)


def test_a_logarithmic_axis_survives_numbers_that_are_nearly_nothing() -> None:
    scale = logarithmic([1e-308, 1.0, 1e150], 0, 100)
    assert 0 < scale.low < 1.0 < 1e150 < scale.high < float("inf")
    assert 0 <= scale(1.0) <= 100
