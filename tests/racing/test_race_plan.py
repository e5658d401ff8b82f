"""A race that is repeated with more time, or with more models, goes on and chooses anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from racing_networks import QUICK, names

from hubscout.engines.job import forget
from hubscout.errors import InterruptedRunError, RunError
from hubscout.racing import race
from hubscout.racing.floor import Floor
from hubscout.racing.race_plan import RacePlan
from hubscout.racing.rungs import Time
from hubscout.runs.events import Raced
from hubscout.runs.race_record import read_race
from hubscout.runs.row import Row
from hubscout.tasks import Task
from hubscout.tuning import Tuned

OPTIONS = {**QUICK, "learning_rate": 0.05}


def lines(folder: Path, event: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, (folder / "race.jsonl").open()) if line["event"] == event]


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a hundredth of a second, and looks nothing: plans do not depend on how busy the machine is."""

    def seconds(plan: RacePlan, _: Any) -> tuple[Time | None, None]:
        assert plan.clock.seconds is not None
        return Time(plan.clock.seconds / 100, dict.fromkeys(plan.evidence, 0.01)), None

    monkeypatch.setattr(RacePlan, "_time", seconds)
    monkeypatch.setattr("hubscout.racing.finishing.fit_to_time", lambda *_: None)  # runs are as long as planned


def test_steps_are_timed_only_where_they_and_the_measuring_fit_twice(make_row: Callable[..., Row]) -> None:
    """By what extraction took: 64 samples take 0.64 s, a step three times that, 200 samples to measure 2 s."""
    plan: Any = SimpleNamespace(
        ranking=[make_row("a", 0.0, samples_per_second=100.0)],
        asked=SimpleNamespace(batch_size=64),
        samples_measured=200,
    )
    floor = Floor("a", 0.5, 50, 100, 1.0, Path())
    needed = 2 + 2 * (5 * 1.92 + 1)
    assert RacePlan._can_be_timed(plan, "a", floor, needed + 0.1)
    assert not RacePlan._can_be_timed(plan, "a", floor, needed - 0.1)
    assert not RacePlan._can_be_timed(plan, "a", replace(floor, seconds=30.0), needed + 0.1)


@pytest.mark.usefixtures("pace")
def test_a_longer_budget_is_used_as_that_of_a_fresh_race(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=8", "width=16&seed=1", "width=48")
    short = race(task, models, out=tmp_path / "run", budget=60, **OPTIONS)
    assert short.steps < 60
    assert short.tuned is not None
    kept = {path.name: path.read_bytes() for path in (tmp_path / "run" / "winner").iterdir() if path.is_file()}
    assert kept
    forget()
    long = race(task, models, out=tmp_path / "run", budget=600, **OPTIONS)
    fresh = race(task, models, out=tmp_path / "fresh", budget=600, **OPTIONS)
    first, second = lines(tmp_path / "run", "race")
    (alone,) = lines(tmp_path / "fresh", "race")
    assert (second["steps"], second["rungs"], second["field"]) == (alone["steps"], alone["rungs"], alone["field"])
    assert second["steps"] > first["steps"]
    assert {look.steps for look in long.looks} == {look.steps for look in fresh.looks}
    assert long.tuned is not None
    assert long.tuned.metric("validation").value >= short.tuned.metric("validation").value
    assert any("the race goes on with more time or models" in note for note in long.notes)
    assert long.told.complete
    assert read_race(tmp_path / "run").answer == long.answer
    assert sum(long.seconds.values()) == pytest.approx(lines(tmp_path / "run", "stage")[-1]["elapsed"], abs=0.1)
    assert not (tmp_path / "run" / "earlier").exists()
    again = race(task, models, out=tmp_path / "run", budget=600, **OPTIONS)
    assert again.answer == long.answer
    assert len(lines(tmp_path / "run", "race")) == 2


@pytest.mark.usefixtures("pace")
def test_a_race_that_compared_nobody_and_goes_on_compares_all_from_their_start(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    models = names(networks, "width=8", "width=16&seed=1", "width=48")
    short = race(task, models, out=tmp_path / "run", budget=50, **OPTIONS)
    assert not short.looks
    assert short.tuned is not None
    assert short.tuned.steps == 20
    forget()
    long = race(task, models, out=tmp_path / "run", budget=600, **OPTIONS)
    fresh = race(task, models, out=tmp_path / "fresh", budget=600, **OPTIONS)
    assert {(look.arm, look.rung): look.metric for look in long.looks} == {
        (look.arm, look.rung): look.metric for look in fresh.looks
    }
    assert long.tuned is not None
    assert long.tuned.metric("validation").value >= short.tuned.metric("validation").value


@pytest.mark.usefixtures("pace")
def test_arms_of_a_shorter_race_go_on_from_where_they_are(
    task: Task, networks: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = names(networks, "width=32", "width=33&seed=1")
    short = race(task, models, out=tmp_path / "run", budget=60, **OPTIONS)
    ended = max(
        int(path.name.split("-")[1])
        for path in (tmp_path / "run" / "arms").glob("*/checkpoints/step-*.pt")
        if f"-{short.winner.learning_rate:g}" in path.parent.parent.name
    )
    assert ended == short.steps
    forget()
    long = race(task, models, out=tmp_path / "run", budget=600, **OPTIONS)
    curves = next((tmp_path / "run" / "arms").glob(f"*-{short.winner.learning_rate:g}/metrics.jsonl"))
    steps = [line["step"] for line in map(json.loads, curves.open()) if line["event"] == "step"]
    assert sorted(set(steps)) == list(range(1, max(steps) + 1))  # none of them twice, none left out
    assert long.steps == 60


@pytest.mark.usefixtures("pace")
def test_the_winner_of_the_shorter_race_stays_where_nothing_better_is_found(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    models = names(networks, "width=32", "width=33&seed=1")
    race(task, models, out=tmp_path / "run", budget=60, **OPTIONS)
    record = tmp_path / "run" / "winner" / "tuning.json"
    told = json.loads(record.read_text())
    told["metrics"]["validation"]["accuracy"] = {"value": 1.0, "low": 1.0, "high": 1.0}
    record.write_text(json.dumps(told))
    before = read_race(tmp_path / "run").final

    def stop(event: Any) -> None:
        if isinstance(event, Raced) and event.line["event"] == "stage" and event.line["stage"] == "earlier":
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError):
        race(task, models, out=tmp_path / "run", budget=600, observer=stop, **OPTIONS)
    forget()
    found = race(task, models, out=tmp_path / "run", budget=600, **OPTIONS)
    assert found.winner == before
    assert found.tuned is not None
    assert found.tuned.metric("validation").value == 1.0
    assert Tuned.load(tmp_path / "run" / "winner", allow_code=True).metric("validation").value == 1.0
    assert found.told.beside is not None
    assert found.told.beside.winner == 1.0  # of the one that stays, not of the one that was not better


def test_more_models_join_a_race(task: Task, networks: Path, tmp_path: Path) -> None:
    few = names(networks, "width=2", "width=3&seed=1")
    all_of_them = [*few, *names(networks, "width=64")]
    short = race(task, few, out=tmp_path / "run", **OPTIONS)
    looks = len(lines(tmp_path / "run", "look"))
    forget()
    found = race(task, all_of_them, out=tmp_path / "run", **OPTIONS)
    assert found.winner.model == all_of_them[2]
    assert found.tuned is not None
    assert short.tuned is not None
    assert found.tuned.metric("test").value > short.tuned.metric("test").value
    assert set(short.looks) <= set(found.looks)  # the rungs are the same: what was seen stays
    new = [line for line in lines(tmp_path / "run", "look")[looks:] if line["arm"]["model"] in few]
    assert len(new) <= 2  # arms that go further than they did
    with pytest.raises(RunError, match="another race"):
        race(task, few, out=tmp_path / "run", **OPTIONS)


@pytest.mark.usefixtures("pace")
def test_a_longer_race_that_is_stopped_goes_on(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = names(networks, "width=8", "width=48")
    race(task, models, out=tmp_path / "run", budget=60, **OPTIONS)
    heard: list[Any] = []

    def stop(event: Any) -> None:
        if isinstance(event, Raced):
            heard.append(event.line["event"])
        if heard.count("race") == 2 and heard[heard.index("finished") :].count("look") == 3:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError, match="The best so far"):
        race(task, models, out=tmp_path / "run", budget=600, observer=stop, **OPTIONS)
    stopped = lines(tmp_path / "run", "stopped")
    assert len(stopped) == 1
    assert stopped[0]["elapsed"] >= lines(tmp_path / "run", "look")[-1]["elapsed"]
    assert Tuned.load(tmp_path / "run" / "winner", allow_code=True).metrics
    forget()

    def interrupted(plan: RacePlan) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RacePlan, "_first_probe", interrupted)
        with pytest.raises(InterruptedRunError):
            race(task, models, out=tmp_path / "run", budget=6000, **OPTIONS)
    assert len(lines(tmp_path / "run", "stopped")) == 2  # in the middle of planning: that time counts too
    found = race(task, models, out=tmp_path / "run", budget=600, **OPTIONS)
    assert found.told.complete
    assert len(lines(tmp_path / "run", "race")) == 2
    assert any("the race goes on with more time or models" in note for note in found.notes)
