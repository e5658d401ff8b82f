"""Scales, labels and what they promise: round ticks, nothing outside the paper, no name over another."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubscout.ranking import Ranking
from hubscout.report.charts.chart import NARROW, WIDE
from hubscout.report.charts.label_placement import Box, Wish, place, spread
from hubscout.report.charts.lines import Curve, lines
from hubscout.report.charts.scale import linear, logarithmic
from hubscout.report.charts.scatter import Point, scatter
from hubscout.report.saved_run import View
from hubscout.report.sections.cost_section import cost_chart

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


boxes = st.lists(st.tuples(st.floats(0, 800), st.floats(0, 400)), min_size=1, max_size=40)


@given(boxes)
def test_no_label_covers_another_or_leaves_the_paper(places: list[tuple[float, float]]) -> None:
    area = Box(0, 0, 800, 400)
    wishes = [Wish(f"model_{index}", x, y, index, must=index < 5) for index, (x, y) in enumerate(places)]
    labels = [label for label in place(wishes, area, size=12) if label is not None]
    for index, label in enumerate(labels):
        assert label.box.within(area)
        assert not any(label.box.meets(other.box) for other in labels[index + 1 :])


@given(boxes)
def test_a_label_is_beside_its_own_point_or_on_a_line_to_it(places: list[tuple[float, float]]) -> None:
    places = sorted(set(places))
    wishes = [Wish(f"model_{index}", x, y, index, must=index < 5) for index, (x, y) in enumerate(places)]
    for wish, label in zip(wishes, place(wishes, Box(0, 0, 800, 400), size=12), strict=True):
        if label is None or label.leader is not None:
            assert label is None or label.leader == (wish.x, wish.y)
            continue
        own = label.box.distance(wish.x, wish.y)
        assert all(own < label.box.distance(x, y) for x, y in places if (x, y) != (wish.x, wish.y))


def test_of_two_close_points_the_name_of_one_is_not_at_the_other() -> None:
    left, right = place([Wish("lite0", 100, 50, 1), Wish("lite2", 112, 50, 0)], Box(0, 0, 300, 100), size=12)
    assert left is not None
    assert left.anchor == "end"
    assert right is not None
    assert right.anchor == "start"


@given(st.lists(st.floats(0, 300), min_size=1, max_size=20))
def test_names_at_the_ends_of_curves_keep_their_distance(places: list[float]) -> None:
    moved = sorted(spread(places, 10, 0, 300))
    assert all(after - before >= 10 - 1e-6 for before, after in pairwise(moved))


def points(count: int) -> list[Point]:
    return [
        Point(model=i, name=f"a_rather_long_name_of_model_{i}", x=10.0**i, y=math.sin(i), tip=f"model {i}", error=0.1)
        for i in range(count)
    ]


@pytest.mark.parametrize("frame", [WIDE, NARROW])
def test_a_scatter_plot_has_one_tab_stop_and_a_name_for_each_point(frame: object) -> None:
    made = scatter(frame, points(6), label="scores", x_title="x", y_title="y", x_logarithmic=True)
    assert made.count('role="button"') == 6
    assert made.count('tabindex="0"') == 1
    assert made.count('aria-label="model ') == 6
    circles = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="5"', made)]
    assert len(circles) == 6
    assert all(0 <= x <= frame.width and 0 <= y <= frame.height for x, y in circles)


def test_an_error_bar_that_dwarfs_the_points_does_not_flatten_them() -> None:
    wild = [Point(model=i, name=str(i), x=i + 1.0, y=float(i), tip=str(i), error=1e5) for i in range(3)]
    made = scatter(WIDE, wild, label="scores", x_title="x", y_title="y")
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)" r="5"', made)]
    assert max(heights) - min(heights) > 100


def test_equal_scores_are_drawn() -> None:
    same = [Point(model=i, name=str(i), x=1.0, y=1.0, tip=str(i)) for i in range(2)]
    assert "nan" not in scatter(WIDE, same, label="scores", x_title="x", y_title="y", x_logarithmic=True)


def test_a_curve_leaves_out_what_is_not_on_its_axis() -> None:
    curve = Curve(name="c", x=(1.0, 10.0, 100.0), y=(1.0, 0.0, 100.0), colour=0)
    made = lines(WIDE, [curve], label="f", x_title="t", y_title="f(t)", logarithmic_axes=True, diagonal=True)
    path = re.search(r'd="([^"]+)" class="curve', made)
    assert path is not None
    assert path.group(1).count("M") == 2  # the pen is lifted over the zero, which has no logarithm


def test_a_logarithmic_axis_survives_numbers_that_are_nearly_nothing() -> None:
    scale = logarithmic([1e-308, 1.0, 1e150], 0, 100)
    assert 0 < scale.low < 1.0 < 1e150 < scale.high < float("inf")
    assert 0 <= scale(1.0) <= 100


def test_the_best_of_a_hundred_models_have_names(make_ranking: Callable[..., Ranking]) -> None:
    generator = np.random.default_rng(0)
    ranking = make_ranking([f"timm/a_rather_long_name_{index}" for index in range(100)])
    rows = tuple(replace(row, params=int(10 ** generator.uniform(6, 8.5))) for row in ranking.rows)
    view = View(replace(ranking, rows=rows))
    for frame in (WIDE, NARROW):
        named = re.findall(r'data-model="(\d+)">', cost_chart(view, view.costs[0]).draw(frame))
        assert {"0", "1", "2", "3", "4"} <= set(named)


def test_panels_with_one_scale() -> None:
    low = Curve(name="low", x=(1.0, 2.0), y=(1.0, 2.0))
    high = Curve(name="high", x=(1.0, 2.0), y=(1.0, 100.0))
    ticks = [
        re.findall(
            r'class="tick end">([^<]+)', lines(WIDE, [curve], label="", x_title="", y_title="", shared_y=(1, 100))
        )
        for curve in (low, high)
    ]
    assert ticks[0] == ticks[1]


def test_every_colour_of_a_chart_is_in_its_legend(make_ranking: Callable[..., Ranking]) -> None:
    ranking = make_ranking([f"timm/model_{index}" for index in range(8)])
    view = View(ranking)
    svg = cost_chart(view, view.costs[0]).draw(WIDE)
    used = set(re.findall(r'class="point (\w+)" data-model', svg))
    explained = set(re.findall(r'class="mark (\w+)"></circle></g><text', svg))
    assert used == explained
    assert "Pareto front" in svg
