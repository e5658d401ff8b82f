"""A race does not end below the linear probe of the first model by evidence, however short its time is."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from racing_networks import QUICK, names

from hubscout.engines.job import forget
from hubscout.errors import DivergedError, InterruptedRunError
from hubscout.racing import Race, race
from hubscout.racing.finishing import Finish
from hubscout.racing.floor import PROBE, FitProbe, Floor
from hubscout.racing.held_out_samples import for_race
from hubscout.racing.race_plan import RacePlan
from hubscout.racing.rungs import Time
from hubscout.runs.events import Finished, Raced
from hubscout.tasks import Task
from hubscout.tasks.task_metrics import Outcome
from hubscout.tuning import Tuned
from hubscout.tuning.single_run import SingleRun

SLOW = ("width=32&pace=0.3", "width=48&pace=0.3&seed=1", "width=2&pace=0.3")
"""Networks that take 0.3 seconds for a batch."""


def probed(folder: Path, found: Race) -> float:
    """The held-out metric of the probe, by the first line of the race."""
    line = json.loads((folder / "race.jsonl").open().readline())
    assert line["probe"]["model"] == found.ranking.best.identifier
    return float(line["probe"]["metric"])


@pytest.mark.parametrize("budget", [0.001, 1.0, 5.0])
def test_a_race_without_time_gives_the_probe_of_the_first_by_evidence(
    task: Task, networks: Path, tmp_path: Path, budget: float
) -> None:
    models = names(networks, *SLOW)
    found = race(task, models, out=tmp_path / "run", budget=budget, learning_rate=0.05, **QUICK)
    assert found.tuned is not None
    assert found.tuned.metric("validation").value >= probed(tmp_path / "run", found) - 0.011  # one sample of 96
    assert found.tuned.metric("test").value > 0.55
    saved = Tuned.load(tmp_path / "run" / "winner", allow_code=True)
    assert saved.metric("test") == found.tuned.metric("test")
    assert len(saved.predict(list(task.test.inputs))) == len(task.test)
    if budget < 1:
        assert "2 of 3 models have no evidence: the budget is too short" in found.notes
        assert all("the budget is too short" in failure.reason for failure in found.ranking.failures)
        assert re.search(r"the budget of 1 ms was not kept: the race took \d", "\n".join(found.notes))
        assert not found.looks
        assert found.tuned.steps == 0
        assert " won with the linear probe of its frozen features: it has accuracy" in found.answer
        assert "There was no time for training. It is the only one of 3 models that could" in found.answer
    again = race(task, models, out=tmp_path / "run", budget=budget, learning_rate=0.05, **QUICK)
    assert again.tuned is not None
    assert again.tuned.metric("test") == found.tuned.metric("test")
    assert again.answer == found.answer


def test_the_winner_is_not_below_the_probe_of_another_model(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first by evidence cannot be trained, and the other one does not learn at this rate."""
    good, other = names(networks, "width=64&broken=true", "width=2")
    found = race(task, [good, other], out=tmp_path / "run", **{**QUICK, "learning_rate": 1e-7})
    assert found.winner.model == good
    others = tuple(look for look in found.looks if look.arm.model == other)
    alone = replace(found, looks=others)  # of a model that was not trained at all
    assert alone.order[0].model == good
    assert " won with the linear probe of its frozen features: it has accuracy" in alone.answer
    assert "Nothing that was tuned came up to it; by evidence it is the first of 2 models" in alone.answer
    assert found.tuned is not None
    assert found.tuned.best_step == 0
    assert found.tuned.metric("validation").value == pytest.approx(probed(tmp_path / "run", found), abs=0.02)
    assert [line["stage"] for line in _lines(tmp_path / "run", "stage")] == ["winner", "probe"]
    again = race(task, [good, other], out=tmp_path / "run", **{**QUICK, "learning_rate": 1e-7})
    assert again.winner == found.winner
    assert again.notes == found.notes


def test_where_nothing_can_be_trained_the_probe_wins(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=64&broken=true", "width=8&broken=true")
    found = race(task, models, out=tmp_path / "run", **QUICK)
    assert found.winner.model == found.ranking.best.identifier
    assert found.tuned is not None
    assert found.tuned.best_step == 0
    assert found.tuned.metric("validation").value >= probed(tmp_path / "run", found) - 0.011
    assert Tuned.load(tmp_path / "run" / "winner", allow_code=True).metric("test") == found.tuned.metric("test")
    assert "No model could be trained. By evidence it is the first of 2 models" in found.answer
    assert "the winner is the linear probe of its frozen features: no model could be trained" in found.notes
    again = race(task, models, out=tmp_path / "run", **QUICK)
    assert (again.winner, again.answer, again.notes) == (found.winner, found.answer, found.notes)


def test_a_race_that_is_stopped_before_its_first_look_has_a_model_that_can_be_used(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    def stop(event: Any) -> None:
        if isinstance(event, Raced) and event.line["event"] == "race":
            raise KeyboardInterrupt

    models = names(networks, "width=8", "width=48")
    with pytest.raises(InterruptedRunError, match=r"Stopped after 0 looks at arms\. The best so far"):
        race(task, models, out=tmp_path / "run", observer=stop, **QUICK)
    usable = Tuned.load(tmp_path / "run" / "winner", allow_code=True)
    right = usable.predict(list(task.test.inputs)).values.argmax(axis=1) == np.asarray(task.test.targets)
    assert right.mean() > 0.55
    forget()
    assert race(task, models, out=tmp_path / "run", **QUICK).tuned is not None
    assert not (tmp_path / "run" / "probes").exists()


def test_ctrl_c_while_the_probe_is_fitted_stops_the_race(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: FitProbe) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FitProbe, "_fitted", stop)
        with pytest.raises(InterruptedRunError, match="Run the same command again to resume"):
            race(task, names(networks, "width=8"), out=tmp_path / "run", **QUICK)
    assert race(task, names(networks, "width=8"), out=tmp_path / "run", **QUICK).tuned is not None


def test_the_probe_is_fitted_on_what_there_is_time_for(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubscout.racing.race_plan.MOST_ROWS", 120)
    heard: list[Any] = []
    race(task, names(networks, "width=8"), out=tmp_path / "run", observer=heard.append, **QUICK)
    line = json.loads((tmp_path / "run" / "race.jsonl").open().readline())
    assert line["probe"]["fitted_on"] == 120 < len(for_race(task).train)
    assert any(isinstance(event, Finished) for event in heard)


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04", b"\x80\x02]."])
def test_a_damaged_probe_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / PROBE).write_bytes(content)
    assert Floor.read(tmp_path, "a") is None


def test_where_no_arm_can_be_tuned_to_its_end_the_result_is_the_probe(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = Finish.__call__

    def diverging(self: Finish) -> Tuned | None:
        if self.trains:
            raise DivergedError("At step 40 the loss became NaN.", "Lower learning_rate.")
        return finish(self)

    monkeypatch.setattr(Finish, "__call__", diverging)
    models = names(networks, "width=8", "width=48")
    found = race(task, models, out=tmp_path / "run", **QUICK)
    assert found.tuned is not None
    assert found.tuned.best_step == 0
    assert found.tuned.metric("validation").value == pytest.approx(probed(tmp_path / "run", found), abs=0.02)
    assert sum("could not be tuned to its end: At step 40" in note for note in found.notes) >= 2
    again = race(task, models, out=tmp_path / "run", **QUICK)
    assert again.answer == found.answer


def test_a_network_that_gives_no_numbers_does_not_come_up_to_its_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    monkeypatch.setattr("hubscout.racing.floor.outcome_of_arm", lambda run, rows: SimpleNamespace(primary=float("nan")))
    monkeypatch.setattr(Floor, "give_to", lambda self, run, reached: given.append(reached))
    run: Any = SimpleNamespace(loop=SimpleNamespace(averaged=nullcontext))
    assert not Floor("a", 0.5, 10, 10, 1.0, Path()).reached_by(run)
    assert len(given) == 1


def test_the_winner_and_a_probe_are_compared_on_the_same_samples(
    networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that was measured on the first samples alone is not compared with the metric of all."""
    monkeypatch.setattr("hubscout.racing.race_plan.MOST_ROWS", 300)
    inputs = np.random.default_rng(0).normal(size=(1000, 6)).astype(np.float32)
    task = Task.from_arrays(inputs, (inputs[:, 0] * inputs[:, 1] > 0).astype(int), kind="classification", name="signs")
    good, other = names(networks, "width=64&broken=true", "width=2")
    predict, asked = Tuned.predict, []

    def counted(self: Tuned, inputs: Any, **options: Any) -> Any:
        asked.append(len(inputs))
        return predict(self, inputs, **options)

    monkeypatch.setattr(Tuned, "predict", counted)
    found = race(task, [good, other], out=tmp_path / "run", **{**QUICK, "learning_rate": 0.05})
    assert asked == [100]  # once, for both who ask
    split, (line,) = for_race(task), _lines(tmp_path / "run", "beside")
    assert line["samples"] == 100 < len(split.validation)
    first, (taken,) = split.validation.take(np.arange(100)), _lines(tmp_path / "run", "stage")[:1]
    assert taken["model"] == other
    if found.winner.model == other:
        said = Tuned.load(tmp_path / "run" / "winner", allow_code=True).predict(list(first.inputs)).values
        assert line["winner"] == Outcome.of(split, first, said).primary
    assert (found.winner.model == good) == (line["probe"] > line["winner"])


def test_a_winner_that_was_not_looked_at_starts_from_its_probe(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no time for rungs: a few steps of a new head would end far below."""
    monkeypatch.setattr(RacePlan, "_time", lambda plan, _: (Time(0.1, dict.fromkeys(plan.evidence, 0.01)), None))
    models = names(networks, "width=8", "width=48")
    found = race(task, models, out=tmp_path / "run", budget=60, **{**QUICK, "learning_rate": 1e-7})
    assert not found.looks
    assert found.tuned is not None
    assert found.tuned.best_step == found.tuned.steps > 0  # the trained network: it has not fallen below
    assert found.tuned.metric("validation").value == pytest.approx(probed(tmp_path / "run", found), abs=0.02)
    assert "Training starts from the linear probe of the frozen features." in found.tuned.notes
    assert found.tuned.arguments.head_learning_rate == found.tuned.arguments.learning_rate == 1e-7
    assert json.loads((tmp_path / "run" / "winner" / "tuning.json").read_text())["steps"] == found.tuned.steps


def test_where_the_time_is_over_some_of_the_test_samples_are_measured(networks: Path, tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=(2000, 6)).astype(np.float32)
    task = Task.from_arrays(inputs, (inputs[:, 0] * inputs[:, 1] > 0).astype(int), kind="classification", name="signs")
    model = names(networks, "width=48&pace=0.2")
    found = race(task, model, out=tmp_path / "run", budget=3, **QUICK)
    assert found.tuned is not None
    assert 100 <= found.tuned.sizes["test"] < len(task.test)
    said = f"{found.tuned.sizes['test']} of {len(task.test)} test samples, drawn at random"
    assert any(said in note for note in found.notes)
    assert f"on {found.tuned.sizes['test']} test samples." in found.answer
    whole = race(task, names(networks, "width=48"), out=tmp_path / "other", **QUICK)
    assert whole.tuned is not None
    assert whole.tuned.sizes["test"] == len(task.test)


@pytest.mark.parametrize("rows", [200, 2000])
def test_a_probe_that_wins_as_it_is_is_not_measured_again_on_the_held_out_samples(
    networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Where there was no time for training there is none for that either: they are most of what is left to do."""
    inputs = np.random.default_rng(0).normal(size=(rows, 6)).astype(np.float32)
    task = Task.from_arrays(inputs, (inputs[:, 0] * inputs[:, 1] > 0).astype(int), kind="classification", name="signs")
    measured: list[int] = []
    outcome = SingleRun.outcome

    def counted(run: SingleRun, batches: Any, split: Any, network: Any = None) -> Outcome:
        measured.append(len(split))
        return outcome(run, batches, split, network)

    monkeypatch.setattr(SingleRun, "outcome", counted)
    found = race(task, names(networks, "width=48"), out=tmp_path / "run", budget=0.001, **QUICK)
    assert found.tuned is not None
    assert found.tuned.best_step == 0
    assert measured == [found.tuned.sizes["test"]]
    assert found.tuned.metric("validation").value == probed(tmp_path / "run", found)
    assert 0 < found.tuned.sizes["validation"] <= len(for_race(task).validation)


def test_a_look_is_kept_if_it_is_above_the_probe_on_the_samples_of_both(task: Task, tmp_path: Path) -> None:
    split = for_race(task)
    truth = np.asarray(split.validation.targets)[:90]
    said = np.eye(2)[np.where(np.arange(90) < 45, truth, 1 - truth)]  # the first half is right, the second wrong
    floor = Floor("a", 0.5, 90, 300, 1.0, tmp_path, said)
    assert floor.on_first(split, 40) == (40, 1.0)
    assert floor.on_first(split, 60) == (60, 0.75)
    assert floor.on_first(split, 1000) == (90, 0.5)


def _lines(folder: Path, event: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, (folder / "race.jsonl").open()) if line["event"] == event]
