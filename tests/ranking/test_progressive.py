from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubscout.errors import RunError
from hubscout.ranking import Ranking, rank
from hubscout.ranking.progressive import increments_of, nested_rows, subset_sizes, who_is_out
from hubscout.ranking.ranking_run import RankingRun
from hubscout.runs.events import Started
from hubscout.tasks import Task

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def long_task() -> Task:
    generator = np.random.default_rng(1)
    inputs = generator.standard_normal((2000, 20)).astype(np.float32)
    signal = inputs[:, 0:3] + 0.7 * inputs[:, 4:7] + 0.3 * generator.standard_normal((2000, 3))
    return Task.from_arrays(inputs, np.array(["a", "b", "c"])[signal.argmax(axis=1)], name="long")


@pytest.mark.parametrize("n", [2, 249, 250, 251, 312, 313, 500, 600, 626, 10_000])
def test_sizes_grow_to_the_whole(n: int) -> None:
    sizes = subset_sizes(n)
    assert sizes[-1] == n
    steps = np.diff(np.log2([float(size) for size in sizes]))
    assert (steps > 0.3).all()
    assert (steps <= 1.33).all()


def test_increments_are_parts_of_nested_stratified_subsets(long_task: Task) -> None:
    sizes = [100, 200, 400]
    increments = increments_of(long_task, sizes, seed=3)
    assert [len(rows) for rows in increments] == [100, 100, 200]
    together = np.sort(np.concatenate(increments))
    np.testing.assert_array_equal(together, nested_rows(long_task, 400, seed=3))
    assert len(np.unique(together)) == 400
    whole = np.bincount(long_task.train.targets) / len(long_task.train)
    part = np.bincount(long_task.train.targets[together]) / 400
    np.testing.assert_allclose(part, whole, atol=0.01)


def test_hopeless_models_are_dropped_and_the_winner_is_that_of_a_full_run(
    long_task: Task, zoo: str, tmp_path: Path
) -> None:
    strong, near = f"python:{zoo}:look?first=0&last=8", f"python:{zoo}:look?first=0&last=8&seed=1"
    blind = f"python:{zoo}:look?first=12&last=20"
    full = rank(long_task, [blind, near, strong], cache=False)
    ranking = rank(long_task, [blind, near, strong], cache=False, progressive=True, out=tmp_path)
    assert ranking.best.identifier == full.best.identifier
    dropped = ranking[blind].dropped
    assert dropped is not None
    assert dropped.n == 500
    assert dropped.probability < 0.01
    assert ranking.identifiers[-1] == blind
    assert ranking[blind].n == 500
    assert [stage.n for stage in ranking.stages][:2] == [250, 500]
    assert ranking.stages[1].dropped == (blind,)
    assert blind not in ranking.stages[2].models
    assert "Dropped" in str(ranking)
    assert "judged on" in str(ranking)
    assert Ranking.load(tmp_path) == ranking
    for name in (strong, near):
        assert ranking[name].n == len(long_task.train)
        assert ranking[name].score == pytest.approx(full[name].score, abs=1e-9)
        np.testing.assert_allclose(ranking[name].block_scores, full[name].block_scores, atol=1e-7)


def test_only_the_new_rows_are_run_at_each_stage(long_task: Task, zoo: str, tmp_path: Path) -> None:
    from hubscout.runs.events import Advanced, Event

    events: list[Event] = []
    models = [f"python:{zoo}:look?first=0&last=8&seed={seed}" for seed in (0, 1)]
    rank(long_task, models, cache=tmp_path, progressive=True, observer=events.append)
    for model in models:
        run = sum(event.rows for event in events if isinstance(event, Advanced) and event.model == model)
        assert run == len(long_task.train)


def test_a_budget_that_is_spent_stops_the_growth(long_task: Task, zoo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hubscout.ranking import progressive as run_module

    models = [f"python:{zoo}:look?first=0&last=8&seed={seed}" for seed in (0, 1)]
    monkeypatch.setattr(run_module, "affordable_size", lambda rows, size, seconds: size + 10)
    ranking = rank(long_task, models, cache=False, budget="1h")
    assert [stage.n for stage in ranking.stages] == [250]
    assert ranking.best.n == 250
    monkeypatch.setattr(run_module, "affordable_size", lambda rows, size, seconds: 400)
    ranking = rank(long_task, models, cache=False, budget="1h")
    assert [stage.n for stage in ranking.stages] == [250, 400]


def test_models_that_the_budget_never_reached_are_named(long_task: Task, zoo: str) -> None:
    models = [f"python:{zoo}:look?first=0&last=8&seed={seed}" for seed in (0, 1)]
    ranking = rank(long_task, models, cache=False, budget=1e-6)
    assert ranking.identifiers == (models[0],)  # one in any case
    assert [(failure.identifier, failure.error) for failure in ranking.failures] == [(models[1], "BudgetSpent")]


def test_a_finished_ranking_is_not_begun_anew_for_models_that_its_budget_did_not_reach(
    long_task: Task, zoo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [f"python:{zoo}:look?first=0&last=8&seed={seed}" for seed in (0, 1)]
    attempts = RankingRun.attempts
    with monkeypatch.context() as patch:
        patch.setattr(RankingRun, "attempts", lambda *given: islice(attempts(*given), 1))
        first = rank(long_task, models, cache=False, budget="1h", out=tmp_path)
    assert ([row.identifier for row in first], [one.identifier for one in first.failures]) == (models[:1], models[1:])
    again = rank(long_task, models, cache=False, budget="1h", out=tmp_path)
    assert (again.rows, again.stages, again.failures) == (first.rows, first.stages, first.failures)
    with pytest.raises(RunError, match="budget_seconds"):
        rank(long_task, models, cache=False, budget="2h", out=tmp_path)


@pytest.mark.parametrize("drop", [False, True])
def test_a_model_that_failed_makes_the_others_be_scored_again_only_where_models_are_given_up_for_others(
    long_task: Task, zoo: str, tmp_path: Path, drop: bool
) -> None:
    models = [f"python:{zoo}:look?first=0&last=8", f"python:{zoo}:nobody"]
    first = rank(long_task, models, cache=False, budget="1h", drop=drop, out=tmp_path)
    assert [one.identifier for one in first.failures] == models[1:]
    started: list[str] = []

    def hear(event: object) -> None:
        if isinstance(event, Started):
            started.append(event.model)

    again = rank(long_task, models, cache=False, budget="1h", drop=drop, out=tmp_path, observer=hear)
    assert bool(started) is drop
    assert [one.identifier for one in again.failures] == models[1:]


def test_a_ranking_that_its_budget_reached_no_model_of_is_tried_again(
    long_task: Task, zoo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [f"python:{zoo}:look?first=0&last=8"]
    with monkeypatch.context() as patch:
        patch.setattr(RankingRun, "attempts", lambda *_: iter(()))
        assert len(rank(long_task, models, cache=False, budget="1h", out=tmp_path)) == 0
    assert len(rank(long_task, models, cache=False, budget="1h", out=tmp_path)) == 1


def test_without_dropping_all_models_are_judged_on_the_same_samples(long_task: Task, zoo: str) -> None:
    models = [f"python:{zoo}:look?first=0&last=8", f"python:{zoo}:look?first=12&last=20"]
    ranking = rank(long_task, models, cache=False, budget="1h", drop=False)
    assert [row.n for row in ranking] == [len(long_task.train)] * 2
    assert not any(row.dropped for row in ranking)


def test_without_dropping_the_first_subset_may_take_longer_than_the_budget(
    long_task: Task, zoo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubscout.ranking import progressive as run_module

    monkeypatch.setattr(run_module, "TO_BE_COMPARED", 1e9)
    models = [f"python:{zoo}:look?first=0&last=8&seed={seed}" for seed in (0, 1)]
    ranking = rank(long_task, models, cache=False, budget=1e-6, drop=False)
    assert [row.n for row in ranking] == [250, 250]


def test_without_dropping_no_model_is_begun_that_leaves_no_time_for_what_follows(
    long_task: Task, zoo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubscout.ranking import progressive as run_module

    models = [f"python:{zoo}:sleepy", f"python:{zoo}:look?first=0&last=8"]
    assert len(rank(long_task, models, cache=False, budget="1h", drop=False)) == 2
    monkeypatch.setattr(run_module, "AHEAD", 1e5)  # times 0.6 seconds
    ranking = rank(long_task, models, cache=False, budget="1h", drop=False)
    assert ranking.identifiers == (models[0],)
    assert [failure.reason for failure in ranking.failures] == ["the budget is too short"]


def test_a_model_that_catches_up_is_kept(make_row: Make) -> None:
    """Both are far behind on 500 samples; one was farther behind on 250 and closes the gap well before 4,000."""
    before = {"leader": make_row("leader", 0.50), "late": make_row("late", 0.20), "lost": make_row("lost", 0.40)}
    now = {
        "leader": make_row("leader", 0.50, seed=1),
        "late": make_row("late", 0.40, seed=2),
        "lost": make_row("lost", 0.40, seed=3),
    }
    out = who_is_out(now, before, stage=1, size=500, size_before=250, size_of_all=4000)
    assert list(out) == ["lost"]
    assert out["lost"].leader == "leader"


def test_nobody_is_out_without_an_uncertainty_to_go_by(make_row: Make) -> None:
    rows = {name: make_row(name, score, block_scores=(), block_sizes=()) for name, score in (("a", 1.0), ("b", 0.0))}
    assert who_is_out(rows, rows, stage=1, size=500, size_before=250, size_of_all=4000) == {}
