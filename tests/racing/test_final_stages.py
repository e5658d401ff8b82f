"""After the rungs: a refit, and a model to deploy that the winners teach."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from racing_networks import QUICK, names

from hubscout.engines import LocalEngine
from hubscout.errors import InputError, InterruptedRunError, ModelNotFoundError
from hubscout.metric_texts import interval_text
from hubscout.racing import Race, race
from hubscout.racing.arms import Arm, Look, Runner, Study
from hubscout.racing.elimination import better_rate
from hubscout.racing.final_stages import FinalStages
from hubscout.racing.finishing import Finish
from hubscout.racing.floor import FitProbe, Floor
from hubscout.racing.rungs import Pace
from hubscout.report.saved_run import open_run
from hubscout.runs.events import Observer, Raced
from hubscout.runs.race_record import read_race
from hubscout.tasks import Task
from hubscout.tuning import Tuned, frozen_features

OPTIONS = {**QUICK, "learning_rate": 0.05}


def lines(folder: Path, event: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, (folder / "race.jsonl").open()) if line["event"] == event]


def last_looks(found: Race) -> list[Look]:
    """At the winner's model, on the last rung."""
    last = max(look.rung for look in found.looks)
    return [look for look in found.looks if look.rung == last and look.arm.model == found.winner.model]


def test_the_rates_of_the_winner_are_compared_again_where_it_has_won(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    options = {**OPTIONS, "learning_rate": 0.4}
    found = race(task, names(networks, "width=48", "width=64&seed=1"), out=tmp_path / "run", **options)
    looks = last_looks(found)
    assert {look.arm.learning_rate for look in looks} == {0.4, 1.6}  # the lower one leads: nothing beyond it
    assert found.winner == better_rate(looks)
    assert found.order[0].learning_rate == found.winner.learning_rate == 0.4


def test_where_the_higher_rate_of_the_winner_leads_a_still_higher_one_is_tried(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    options = {**OPTIONS, "learning_rate": 0.002}  # far too low for these
    found = race(task, names(networks, "width=48", "width=64&seed=1"), out=tmp_path / "run", **options)
    looks = last_looks(found)
    assert {look.arm.learning_rate for look in looks} == {0.002, 0.008, 0.032}
    assert found.winner == better_rate(looks) == Arm(found.winner.model, 0.032)
    assert found.tuned is not None
    assert found.tuned.arguments.learning_rate == 0.032
    assert found.told.leaderboard()[0] == found.winner
    assert found.order[0].learning_rate == 0.032
    told = read_race(tmp_path / "run")
    assert told.state(found.winner) == "winner"
    again = race(task, names(networks, "width=48", "width=64&seed=1"), out=tmp_path / "run", **options)
    assert again.winner == found.winner
    assert len(again.looks) == len(found.looks)


def test_the_rates_of_a_model_that_races_alone_are_compared_on_the_last_rung(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    found = race(task, names(networks, "width=48"), out=tmp_path / "run", **{**OPTIONS, "learning_rate": 0.4})
    steps = {rate: [look.steps for look in found.looks if look.arm.learning_rate == rate] for rate in (0.4, 1.6)}
    assert steps == {0.4: [3, 22], 1.6: [3, 22]}
    assert found.order[0].p_best is None  # it was compared with nobody


@pytest.mark.parametrize("average", [None, 0.9])
def test_a_winner_that_was_trained_too_little_is_not_below_its_linear_probe(
    task: Task, networks: Path, tmp_path: Path, average: float | None
) -> None:
    options = {**OPTIONS, "learning_rate": 1e-7, "ema": average}
    found = race(task, names(networks, "width=48", "width=64&seed=1"), out=tmp_path / "run", **options)
    assert found.tuned is not None
    run = found.tuned.tuning_run()
    assert found.tuned.metric("validation").value == pytest.approx(run.probes["model"].metric("validation"), abs=0.02)
    assert found.tuned.metric("test").value > 0.6
    assert found.tuned.best_step == 0
    assert any("the result is that probe" in note for note in found.tuned.notes)
    assert any("the winner is the linear probe" in note for note in found.notes)
    assert "learning rate" not in found.answer
    assert "tuned to the end" not in found.answer
    value = interval_text("accuracy", *found.tuned.metric("test"))
    told = f"it has accuracy {value} on {len(task.test)} test samples."
    assert f"won with the linear probe of its frozen features: {told} Training did not come up to it" in found.answer
    assert Tuned.load(tmp_path / "run" / "winner", allow_code=True).metric("test") == found.tuned.metric("test")


def test_time_is_kept_for_comparing_the_winner_with_its_linear_probe(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: dict[str, Finish] = {}
    done = FinalStages._done

    def seen(self: FinalStages, key: str, work: Any, arm: Arm) -> Any:
        stages[key] = work
        return done(self, key, work, arm)

    monkeypatch.setattr(FinalStages, "_done", seen)
    found = race(task, names(networks, "width=48"), out=tmp_path / "run", refit=True, **OPTIONS)
    pace = Pace.of(found.looks)
    assert pace is not None
    pool, test = len(task.train) + len(task.validation), len(task.test)
    held_out = max(len(task.validation), round(0.2 * pool))
    measured = pace.look + 1.2 * pace.row * (held_out + test)
    assert stages["winner"].reserve == pytest.approx(measured + pace.row * held_out)  # to be compared with the probe
    assert stages["refit"].reserve == pytest.approx(measured)  # nothing is held out that a probe could be judged on


def test_a_winner_that_is_its_linear_probe_says_that_it_is_not_fitted_again(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    options = {**OPTIONS, "learning_rate": 1e-7, "refit": True}
    found = race(task, names(networks, "width=48"), out=tmp_path / "run", **options)
    (note,) = [note for note in found.notes if "the winner is the linear probe" in note]
    assert note.endswith("; it is not fitted again on train and validation")
    assert "refit" not in found.seconds


def test_the_probe_of_the_winner_takes_the_features_of_the_ranking(
    networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the data bring enough samples to judge by, the race has the train split of the ranking."""
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(600, 6)).astype(np.float32)
    labels = (inputs[:, 0] * inputs[:, 1] > 0).astype(int)
    parts = {"validation": (inputs[300:450], labels[300:450]), "test": (inputs[450:], labels[450:])}
    task = Task.from_arrays(inputs[:300], labels[:300], **parts, kind="classification", name="signs")
    found = []
    taken = frozen_features.extract

    def seen(*arguments: Any, **options: Any) -> Any:
        found.append(taken(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(frozen_features, "extract", seen)
    options = {**OPTIONS, "learning_rate": 1e-7}
    tuned = race(task, names(networks, "width=48"), out=tmp_path / "run", **options).tuned
    assert tuned is not None
    assert tuned.best_step == 0
    assert {one.split: one.from_cache for one in found}["train"]


def test_the_probe_of_a_model_to_deploy_is_made_without_its_teachers(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, ...] | None] = []
    begin = Runner.begin

    def seen(self: Runner, folder: Path | None, rows: int | None = None) -> Any:
        if folder is None:
            begun.append(self.teachers)
        return begin(self, folder, rows)

    monkeypatch.setattr(Runner, "begin", seen)
    big, small = names(networks, "width=64", "width=8&seed=3")
    found = race(task, [big, small], out=tmp_path / "run", deploy=small, **{**OPTIONS, "learning_rate": 1e-7})
    assert found.deployed is not None
    assert found.deployed.teachers == (big,)
    assert found.deployed.best_step == 0
    assert begun == [None, None]  # of the first by evidence, and of the model to deploy
    assert set(found.deployed.tuning_run().probes) == {"model"}


def test_the_probe_of_a_model_to_deploy_that_is_not_ranked_takes_what_there_is_time_for(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: dict[str, int] = {}
    fitted = FitProbe.__call__

    def seen(self: FitProbe) -> Floor | None:
        rows[self.runner.arm.model] = self.rows
        return fitted(self)

    monkeypatch.setattr(FitProbe, "__call__", seen)
    monkeypatch.setattr(Pace, "of", lambda looks, model=None: Pace(0.001, 0.0, 10.0) if looks else None)
    big, small = names(networks, "width=64", "width=8&seed=3")
    found = race(task, big, out=tmp_path / "run", deploy=small, limit=100, budget=300, **OPTIONS)
    assert found.deployed is not None
    assert rows[small] == 100


def test_a_winner_that_is_ahead_of_its_linear_probe_is_what_was_trained(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    found = race(task, names(networks, "width=48"), out=tmp_path / "run", **OPTIONS)
    assert found.tuned is not None
    assert found.tuned.best_step > 0
    assert not any("probe" in note for note in found.tuned.notes)


def test_one_that_is_taught_and_does_not_come_up_to_its_linear_probe_is_said_to_be_that(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    big, small = names(networks, "width=64", "seed=3&width=8")
    found = race(task, big, out=tmp_path / "run", deploy=small, **OPTIONS)
    assert found.deployed is not None
    trained, probe = (replace(found, deployed=replace(found.deployed, best_step=step)) for step in (1, 0))
    assert "did not come up" not in trained.answer
    told = interval_text("accuracy", *found.deployed.metric("test"))
    assert f"did not come up to its linear probe, which has accuracy {told} on" in probe.answer


def test_the_steps_of_the_winner_are_those_that_it_was_trained_for(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def longer(run: Any, *_: Any) -> None:
        run.loop.steps += 7

    monkeypatch.setattr("hubscout.racing.finishing.fit_to_time", longer)
    found = race(task, names(networks, "width=16"), out=tmp_path / "run", budget=600, **OPTIONS)
    assert found.tuned is not None
    assert found.steps == found.tuned.steps == found.told.steps + 7
    assert json.loads((tmp_path / "run" / "race.json").read_text())["winner"]["steps"] == found.tuned.steps


def test_more_rates_of_the_winner_do_not_raise_its_chance(task: Task, networks: Path, tmp_path: Path) -> None:
    options = {**OPTIONS, "learning_rate": 0.002}
    found = race(task, names(networks, "width=48", "width=64&seed=1"), out=tmp_path / "run", **options)
    kept = [look for look in found.looks if look.arm.model != found.winner.model or look.arm == found.winner]
    alone = replace(found, looks=tuple(kept))
    assert [one.p_best for one in found.order] == [one.p_best for one in alone.order]


def test_the_winners_teach_a_model_that_has_not_raced(task: Task, networks: Path, tmp_path: Path) -> None:
    big, small = names(networks, "width=64", "seed=3&width=8")
    # The strength is that of a toy at a learning rate of 0.05.
    found = race(task, big, out=tmp_path / "run", deploy=small, trade_off=2.0, **OPTIONS)
    assert found.deployed is not None
    assert (found.deployed.method, found.deployed.model, found.deployed.teachers) == ("b-tuning", small, (big,))
    assert found.deployed.metric("test").value > 0.6
    assert len(lines(tmp_path / "run", "lesson")) == 2  # a learning rate of its own
    again = Tuned.load(tmp_path / "run" / "deployed", allow_code=True)
    assert again.model == small
    assert "deploy" in found.seconds
    assert "taught by" in found.answer
    assert json.loads((tmp_path / "run" / "race.json").read_text())["deployed"]["teachers"] == [big]


def test_one_that_diverges_is_taught_more_slowly(task: Task, networks: Path, tmp_path: Path) -> None:
    big, small = names(networks, "width=64", "seed=3&width=8")
    found = race(
        task, big, out=tmp_path / "run", deploy=small, **{**OPTIONS, "trade_off": 3000.0, "posterior_folds": 1}
    )
    told = lines(tmp_path / "run", "lesson")
    assert all(line["failure"].startswith("At step ") for line in told[:2])
    assert found.deployed is not None
    assert found.deployed.arguments.learning_rate == told[-1]["arm"]["learning_rate"] < 0.05


def test_one_that_cannot_be_taught_leaves_the_winner(task: Task, networks: Path, tmp_path: Path) -> None:
    big, small = names(networks, "width=64", "broken=true&width=8")
    found = race(task, big, out=tmp_path / "run", deploy=small, **OPTIONS)
    assert found.deployed is None
    assert any("could not be taught" in note for note in found.notes)
    assert Tuned.load(tmp_path / "run" / "winner", allow_code=True).model == big


def test_one_whose_process_dies_while_it_is_taught_leaves_the_winner(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    big, small = names(networks, "width=64", "dies=true&width=8")
    with closing(LocalEngine(workers=1, attempts=1)) as engine:
        found = race(task, big, out=tmp_path / "run", deploy=small, engine=engine, **OPTIONS)
    assert found.deployed is None
    assert any("could not be taught" in note and "died once" in note for note in found.notes)
    assert found.tuned is not None


def test_one_that_was_taught_stays_what_it_is_where_nobody_would_teach_it_now(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big, small = names(networks, "width=64", "width=8&seed=3")
    first = race(task, big, out=tmp_path / "run", deploy=small, **OPTIONS)
    before = (tmp_path / "run" / "race.jsonl").read_text()
    monkeypatch.setattr("hubscout.tuning.default_method.may_teach", lambda kind: False)
    again = race(task, big, out=tmp_path / "run", deploy=small, **OPTIONS)
    assert again.deployed is not None
    assert again.deployed.teachers == (big,)
    assert again.notes == first.notes
    assert (tmp_path / "run" / "race.jsonl").read_text() == before
    assert list((tmp_path / "run" / "lessons").iterdir())


def test_one_that_has_raced_keeps_its_rate(task: Task, networks: Path, tmp_path: Path) -> None:
    big, small = names(networks, "width=64", "width=3")
    found = race(task, [big, small], out=tmp_path / "run", deploy=small, **OPTIONS)
    assert found.winner.model == big
    assert found.deployed is not None
    assert not lines(tmp_path / "run", "lesson")
    raced = next(one for one in found.order if one.model == small)
    assert found.deployed.arguments.learning_rate == raced.learning_rate


def test_one_that_has_won_is_the_winner(task: Task, networks: Path, tmp_path: Path) -> None:
    big, small = names(networks, "width=64", "width=2")
    found = race(task, [big, small], out=tmp_path / "run", deploy=big, trade_off=2.0, **OPTIONS)
    assert found.deployed is found.tuned
    assert "Not heeded by fine-tune without teachers: trade_off=2.0." in found.notes
    assert any("nobody teaches it" in note for note in found.notes)
    assert Tuned.load(tmp_path / "run" / "deployed", allow_code=True).model == big
    assert [run.name for run in open_run(tmp_path / "run").tuning] == ["winner"]  # on the page it is one run


def test_a_model_whose_place_the_winner_has_taken_is_taught_again(task: Task, networks: Path, tmp_path: Path) -> None:
    big, small = names(networks, "width=64", "width=2")
    first, won, again, still = (
        race(task, [big, small], out=tmp_path / "run", deploy=deploy, **OPTIONS)
        for deploy in (small, big, small, small)
    )
    assert first.winner.model == big
    assert won.deployed is won.tuned
    for found in (again, still):
        assert found.deployed is not None
        assert first.deployed is not None
        assert found.deployed.model == small
        assert found.deployed.metrics == first.deployed.metrics
    assert Tuned.load(tmp_path / "run" / "deployed", allow_code=True).model == small


def test_a_stop_in_the_middle_of_teaching_costs_nothing_that_was_done(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    big, small = names(networks, "width=64", "width=8&seed=3")
    whole = race(task, big, out=tmp_path / "whole", deploy=small, **OPTIONS)

    def stop(event: Any) -> None:
        if isinstance(event, Raced) and event.line["event"] == "lesson":
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError, match="The best so far"):
        race(task, big, out=tmp_path / "cut", deploy=small, observer=stop, **OPTIONS)
    looks = len(lines(tmp_path / "cut", "look"))
    found = race(task, big, out=tmp_path / "cut", deploy=small, **OPTIONS)
    assert len(lines(tmp_path / "cut", "look")) == looks
    assert found.deployed is not None
    assert found.deployed.metric("test") == whole.deployed.metric("test")  # type: ignore[union-attr]


def test_teaching_can_be_asked_for_after_the_race(task: Task, networks: Path, tmp_path: Path) -> None:
    big, small = names(networks, "width=64", "width=8&seed=3")
    first = race(task, big, out=tmp_path / "run", **OPTIONS)
    found = race(task, big, out=tmp_path / "run", deploy=small, **OPTIONS)
    assert found.winner == first.winner
    assert found.deployed is not None
    assert len(lines(tmp_path / "run", "look")) == len(first.looks)


def test_a_model_to_deploy_that_is_not_there_is_said_before_the_race(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    with pytest.raises((InputError, ModelNotFoundError)):
        race(task, names(networks, "width=8"), out=tmp_path / "run", deploy="timm/no-such-model", **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_a_refit_learns_from_the_held_out_samples_too(task: Task, networks: Path, tmp_path: Path) -> None:
    found = race(task, names(networks, "width=32"), out=tmp_path / "run", refit=True, **OPTIONS)
    assert found.tuned is not None
    assert found.tuned.sizes["train"] == len(task.train) + len(task.validation)
    assert set(found.seconds) == {"evidence", "rungs", "winner", "refit"}


def test_teachers_that_there_is_no_time_for_are_left_out_and_that_is_said(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a race goes on, nobody is asked again. The model follows its labels, as by `tune`, whoever finds that."""
    asked: list[tuple[str, ...] | None] = []
    studied = Study.__call__

    def without_time(self: Study) -> tuple[tuple[str, ...], str]:
        assert 0 < (self.runner.seconds or 0) < 600
        asked.append(self.runner.teachers)
        found = studied(replace(self, runner=replace(self.runner, seconds=0.0)))
        lesson, alone, arm = (replace(self.runner, teachers=who).begin(None) for who in ((big,), (), None))
        assert lesson.untaught == alone.method.name == "b-tuning"
        assert arm.method.name == "fine-tune"
        return found

    monkeypatch.setattr(Study, "__call__", without_time)
    big, small = names(networks, "width=64", "width=8&seed=3")
    for _ in range(2):
        found = race(task, big, out=tmp_path / "run", deploy=small, budget=600, label_share=0.2, **OPTIONS)
        assert found.deployed is not None
        assert found.tuned is not None
        assert (found.deployed.method, found.deployed.teachers) == ("b-tuning", ())
        assert found.tuned.method == "fine-tune"
        assert not [note for note in found.tuned.notes if "heeded" in note]
        assert "Not heeded by b-tuning without teachers: label_share=0.2." in found.notes
        (told,) = [note for note in found.notes if "teaches in this budget" in note]
        assert told.endswith("The model is tuned without teachers.")
        assert "tuned without teachers, has" in found.answer
    assert asked == [(big,)]


def stop_after_the_lessons(folder: Path) -> Observer:
    def observer(event: Any) -> None:
        if isinstance(event, Raced) and len(lines(folder, "lesson")) == 2:
            raise KeyboardInterrupt

    return observer


def test_one_that_nobody_teaches_and_that_was_fine_tuned_before_starts_anew(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was until labels stood in the place of teachers that there is no time for."""

    big, small = names(networks, "width=64", "width=8&seed=3")
    options = {"out": tmp_path / "run", "deploy": small, "budget": 600, **OPTIONS}
    lesson = FinalStages._lesson
    monkeypatch.setattr(Study, "__call__", lambda self: ((), "Nobody teaches in this budget."))
    with monkeypatch.context() as patch:
        patch.setattr(FinalStages, "_lesson", lambda *given: replace(lesson(*given), teachers=None))
        with pytest.raises(InterruptedRunError):
            race(task, big, observer=stop_after_the_lessons(tmp_path / "run"), **options)
    assert list((tmp_path / "run" / "lessons").rglob("step-*.pt"))
    found = race(task, big, **options)
    assert found.deployed is not None, found.notes
    assert (found.deployed.method, found.deployed.teachers) == ("b-tuning", ())
    assert not any(look["failure"] for look in lines(tmp_path / "run", "lesson"))


def test_with_more_time_those_teach_that_there_was_no_time_for(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was learnt without them does not stand in their way."""

    big, small = names(networks, "width=64", "width=8&seed=3")
    options = {"out": tmp_path / "run", "deploy": small, **OPTIONS}
    with monkeypatch.context() as patch:
        patch.setattr(Study, "__call__", lambda self: ((), "Nobody teaches in this budget."))
        with pytest.raises(InterruptedRunError):
            race(task, big, budget=600, observer=stop_after_the_lessons(tmp_path / "run"), **options)
    found = race(task, big, budget=1200, **options)
    assert found.deployed is not None, found.notes
    assert found.deployed.teachers == (big,)
    looks = lines(tmp_path / "run", "lesson")
    assert len(looks) == 4  # both rates, without and with the teacher
    assert not any(look["failure"] for look in looks)
