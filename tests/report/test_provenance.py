"""What the page says of how a run was made."""

import re
from collections.abc import Callable
from dataclasses import replace

from hubscout.ranking import Ranking
from hubscout.report import Run, render
from hubscout.runs.ranking import Stage
from hubscout.runs.row import Dropped


def test_dropped_models_and_stages_are_told(make_ranking: Callable[..., Ranking]) -> None:
    ranking = make_ranking(
        ["timm/a", "timm/b", "timm/c"], stages=(Stage(n=100, models=("timm/a",), dropped=("timm/c",), seconds=2.0),)
    )
    dropped = Dropped(n=100, stage=0, leader="timm/a", probability=0.0004)
    rows = tuple(replace(row, dropped=dropped) if row.identifier == "timm/c" else row for row in ranking.rows)
    page = render(Run(ranking=replace(ranking, rows=rows)))
    assert "on 100 samples P(better than a) was 0.04%" in page
    assert "Dropped afterwards" in page


def test_the_page_says_what_it_assumed_and_what_is_tied(make_ranking: Callable[..., Ranking]) -> None:
    ranking = make_ranking(["timm/a", "timm/b", "timm/c"])
    first, second, *others = ranking.rows
    second = replace(second, score=first.score, block_scores=first.block_scores[::-1])
    task = replace(ranking.task, notes=("kind guessed as classification",))
    ranking = replace(ranking, task=task, rows=(first, second, *others))
    page = re.sub(r"<[^>]+>", "", render(Run(ranking=ranking)))
    assert "Assumptions made when loading the data" in page
    assert "from the saved run; makes no network requests" in page
    assert "statistically tied" in page
    assert "nats per sample" in page
    assert not re.search(r"told apart|nats a sample|FLOPs a sample", page)
