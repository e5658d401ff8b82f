"""Points: all on the paper, the best with names, one stop of the tab key."""

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hubscout.ranking import Ranking
from hubscout.report.charts.chart import NARROW, WIDE
from hubscout.report.charts.scatter import Point, scatter
from hubscout.report.saved_run import View
from hubscout.report.sections.score_sections import cost_chart


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


def test_the_best_of_a_hundred_models_have_names(make_ranking: Callable[..., Ranking]) -> None:
    generator = np.random.default_rng(0)
    ranking = make_ranking([f"timm/a_rather_long_name_{index}" for index in range(100)])
    rows = tuple(replace(row, params=int(10 ** generator.uniform(6, 8.5))) for row in ranking.rows)
    view = View(replace(ranking, rows=rows))
    for frame in (WIDE, NARROW):
        named = re.findall(r'data-model="(\d+)">', cost_chart(view, view.costs[0]).draw(frame))
        assert {"0", "1", "2", "3", "4"} <= set(named)
