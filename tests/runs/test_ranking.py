from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hubscout.errors import InputError
from hubscout.ranking import Ranking, Row
from hubscout.runs.ranking import UnknownModelError
from hubscout.runs.row import Dropped, LayerScore

Make = Callable[..., Any]


def test_rows_are_put_in_order_and_numbered(make_row: Make, make_ranking: Make) -> None:
    ranking = make_ranking(make_row("b", 0.1, seed=1), make_row("a", 0.5, seed=2), make_row("c", 0.3, seed=3))
    assert ranking.identifiers == ("a", "c", "b")
    assert [row.rank for row in ranking] == [1, 2, 3]
    assert sum(row.p_best or 0 for row in ranking) == pytest.approx(1)
    assert ranking.best.identifier == "a"
    assert ranking["c"].score == 0.3
    assert ranking[2].identifier == "b"


def test_close_models_are_tied_and_distant_ones_not(make_row: Make, make_ranking: Make) -> None:
    ranking = make_ranking(
        make_row("first", 0.500, spread=0.1, seed=1),
        make_row("near", 0.499, spread=0.1, seed=2),
        make_row("far", 0.1, spread=0.1, seed=3),
    )
    assert ranking.tied_with_best == ("first", "near")
    pairwise = ranking.pairwise()
    assert pairwise[0, 1] == pytest.approx(0.5, abs=0.1)
    assert pairwise[0, 2] > 0.99


def test_dropped_models_come_last_and_the_later_ones_first(make_row: Make, make_ranking: Make) -> None:
    def dropped(n: int) -> Dropped:
        return Dropped(n=n, stage=0, leader="kept", probability=0.001)

    ranking = make_ranking(
        make_row("early", 0.9, n=500, dropped=dropped(500)),
        make_row("late", 0.8, n=1000, dropped=dropped(1000)),
        make_row("kept", 0.1),
    )
    assert ranking.identifiers == ("kept", "late", "early")
    assert ranking["early"].p_best is None
    assert [row.identifier for row in ranking.compared] == ["kept"]
    assert "on 500 samples P(better than kept) was too low: early 0.10%" in str(ranking)


def test_within_ranks_the_rest_among_themselves(make_row: Make, make_ranking: Make) -> None:
    ranking = make_ranking(
        make_row("huge", 0.9, params=10**9, flops=10**12, latency_seconds=1.0),
        make_row("small", 0.5, params=10**6, flops=10**8, latency_seconds=0.01, seed=5),
        make_row("unknown", 0.7, params=None),
    )
    small = ranking.within(max_params=10e6)
    assert small.identifiers == ("small",)
    assert small.best.rank == 1
    assert small.best.p_best == 1.0
    assert ranking.within(max_flops=1e9, max_latency=0.1).identifiers == ("small",)
    assert ranking.within(max_params="10M", max_flops="1G", max_latency="100ms").identifiers == ("small",)
    with pytest.raises(InputError, match="max_latency must be a time"):
        ranking.within(max_latency="fast")
    assert len(ranking.within(max_params=10)) == 0
    assert ranking.within().identifiers == ranking.identifiers


def test_pareto_keeps_what_nothing_beats_in_both(make_row: Make, make_ranking: Make) -> None:
    ranking = make_ranking(
        make_row("best", 0.9, params=100),
        make_row("wasteful", 0.8, params=200),
        make_row("middle", 0.7, params=50),
        make_row("same-price-worse", 0.6, params=50),
        make_row("tiny", 0.1, params=1),
        make_row("unknown", 0.95, params=None),
    )
    assert ranking.pareto("params").identifiers == ("best", "middle", "tiny")
    with pytest.raises(InputError, match="params, flops, latency, bytes"):
        ranking.pareto("weight")


def test_top(make_row: Make, make_ranking: Make) -> None:
    ranking = make_ranking(make_row("a", 0.2), make_row("b", 0.1))
    assert ranking.top(1) == ["a"]
    assert ranking.top(5) == ["a", "b"]
    with pytest.raises(InputError, match="k must be at least 1"):
        ranking.top(0)


def test_a_metric_without_blocks_has_an_order_but_no_probabilities(make_row: Make, make_ranking: Make) -> None:
    rows = [make_row(name, score, block_scores=(), block_sizes=()) for name, score in (("a", 0.1), ("b", 0.2))]
    ranking = make_ranking(*rows)
    assert [row.p_best for row in ranking] == [None, None]
    assert ranking.pairwise().tolist() == [[0.5, 1.0], [0.0, 0.5]]
    assert "P(best)" not in str(ranking)


def test_unknown_and_double_models_are_named(make_row: Make, make_ranking: Make) -> None:
    ranking = make_ranking(make_row("timm/resnet50", 0.1))
    with pytest.raises(UnknownModelError, match="Did you mean 'timm/resnet50'"):
        ranking["timm/resnet5"]
    with pytest.raises(InputError, match="twice came a"):
        make_ranking(make_row("a", 0.1), make_row("a", 0.2))
    with pytest.raises(InputError, match="no model that could be scored"):
        _ = make_ranking().best


def test_to_frame(make_row: Make, make_ranking: Make) -> None:
    row = make_row("a", 0.1, scores={"logme": 0.1, "knn": 0.7}, card={"licence": "mit"})
    frame = make_ranking(row, make_row("b", 0.05)).to_frame()
    assert frame["identifier"].tolist() == ["a", "b"]
    assert frame.loc[0, "score:knn"] == 0.7
    assert frame.loc[0, "card:licence"] == "mit"


def test_best_layer(make_row: Make) -> None:
    layers = tuple(
        LayerScore(name=name, score=score, standard_error=None, gain=0.0, feature_dim=8)
        for name, score in (("", 0.3), ("block.2", 0.4), ("block.1", 0.1))
    )
    row: Row = make_row("a", 0.3, layers=layers)
    assert row.best_layer is not None
    assert row.best_layer.name == "block.2"
    assert make_row("b", 0.1).best_layer is None


def test_html_escapes_names(make_row: Make, make_ranking: Make) -> None:
    ranking: Ranking = make_ranking(make_row("<script>alert(1)</script>", 0.1))
    html = ranking._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_names_are_never_markup_in_the_terminal(make_row: Make, make_ranking: Make) -> None:
    assert "[bold]x[/bold]" in str(make_ranking(make_row("[bold]x[/bold]", 0.1)))
