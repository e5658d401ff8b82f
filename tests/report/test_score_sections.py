"""Charts of scores."""

import re
from collections.abc import Callable

from hubscout.ranking import Ranking
from hubscout.report.charts.chart import WIDE
from hubscout.report.saved_run import View
from hubscout.report.sections.score_sections import cost_chart


def test_every_colour_of_a_chart_is_in_its_legend(make_ranking: Callable[..., Ranking]) -> None:
    ranking = make_ranking([f"timm/model_{index}" for index in range(8)])
    view = View(ranking)
    svg = cost_chart(view, view.costs[0]).draw(WIDE)
    used = set(re.findall(r'class="point (\w+)" data-model', svg))
    explained = set(re.findall(r'class="mark (\w+)"></circle></g><text', svg))
    assert used == explained
    assert "Pareto front" in svg
