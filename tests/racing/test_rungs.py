"""Rungs and budgets."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from racing_networks import QUICK, names

from hubscout.errors import InterruptedRunError
from hubscout.racing import race
from hubscout.racing.arms import Arm, Look, Speed
from hubscout.racing.race_plan import RacePlan
from hubscout.racing.rungs import Clock, Pace, Time, choose_field, plans, rungs_of, seconds_per_step, work
from hubscout.runs.events import Raced
from hubscout.runs.row import Row
from hubscout.tasks import Task
from hubscout.tuning import Tuned

MODELS = tuple(f"m{k}" for k in range(9))


def field(seconds: float | None, steps: int = 300):
    time = None if seconds is None else Time(seconds, dict.fromkeys(MODELS, 0.1))
    return choose_field(MODELS, steps, 0.2, time)


def test_rungs_rise_and_end_before_the_end() -> None:
    for steps in (5, 20, 60, 300, 10_000):
        rungs = rungs_of(steps, 0.2)
        assert all(rung.stable < rung.steps < steps for rung in rungs)
        assert [rung.stable for rung in rungs] == sorted({rung.stable for rung in rungs})


def test_without_a_budget_everyone_starts_at_both_rates() -> None:
    assert field(None).models == MODELS
    assert len(field(None).factors) == 2
    assert field(None).widths == (18, 9, 9)


def test_less_time_means_fewer_to_the_last_rung_then_one_rate_then_fewer_models_then_a_shorter_run() -> None:
    plenty, some, less, little = field(200.0), field(130.0), field(70.0), field(25.0)
    assert plenty.widths == (18, 9, 9)
    assert some.widths[0] == 18
    assert 3 <= some.widths[2] < some.widths[1] <= 9
    assert less.factors == (1.0,)
    assert less.models == MODELS[: less.widths[1]]
    assert less.widths[0] == 0
    assert little.steps < less.steps <= 300
    for found, seconds in ((plenty, 200.0), (some, 130.0), (less, 70.0), (little, 25.0)):
        assert 0.1 * work(found.widths, rungs_of(found.steps, 0.2), found.steps) <= seconds


@pytest.mark.parametrize("seconds", [2.0, 5.0, 8.0, 12.0, 18.0, 25.0, 40.0])
def test_where_time_makes_runs_short_no_model_is_judged_after_a_handful_of_steps(seconds: float) -> None:
    found = field(seconds)
    assert found.steps < 300
    judged = [rung for rung, width in zip(rungs_of(found.steps, 0.2), found.widths, strict=False) if width]
    assert all(rung.steps >= 10 for rung in judged)
    assert found.models[0] == "m0"
    if seconds < 5:
        assert (found.models, judged) == (("m0",), [])  # its evidence says more than so few steps
    if seconds > 10:
        assert len(found.models) > 1
    assert field(300.0, steps=60).widths == (18, 9, 9)  # so short a run was asked for
    again = choose_field(MODELS, found.steps, 0.2, Time(300.0, dict.fromkeys(MODELS, 0.1)), asked=300)
    judged = [rung for rung, width in zip(rungs_of(again.steps, 0.2), again.widths, strict=False) if width]
    assert all(rung.steps >= 10 for rung in judged)  # of a race that goes on with runs as short as before


def uneven(seconds: float, **per_step: float):
    """Four models of 0.1 seconds per step, but for some."""
    models = ("m0", "m1", "m2", "m3")
    return choose_field(models, 300, 0.2, Time(seconds, {**dict.fromkeys(models, 0.1), **per_step}))


def test_a_model_that_alone_keeps_others_out_is_left_out_where_they_fit_without_it() -> None:
    found = uneven(70.0, m1=0.7)
    assert found.models == ("m0", "m2", "m3")
    assert len(found.factors) == 2
    assert uneven(400.0, m1=0.7).models == ("m0", "m1", "m2", "m3")  # there is time for it
    assert uneven(70.0, m1=0.25).models == ("m0", "m1")  # it is not far slower
    several = Time(80.0, {**dict.fromkeys(MODELS, 0.1), "m1": 0.7, "m3": 0.9})
    assert choose_field(MODELS, 300, 0.2, several).models == ("m0", "m2", "m4", "m5", "m6", "m7", "m8")


def test_the_first_by_evidence_starts_unless_it_does_not_fit_even_alone() -> None:
    assert uneven(70.0, m0=0.7).models == ("m0",)
    assert uneven(10.0, m0=0.7).models == ("m1", "m2", "m3")
    assert uneven(1.0).models == ("m0",)  # nobody fits
    assert uneven(3.0, m0=0.7).models == ("m0",)  # nor is anybody compared: evidence alone says who is first


def test_a_model_that_is_too_slow_for_the_budget_is_named(
    task: Task, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(plan: RacePlan, _: Any) -> tuple[Time, None]:
        return Time(15.0, dict(zip(plan.evidence, (0.1, 0.7, 0.1, 0.1), strict=True))), None

    monkeypatch.setattr(RacePlan, "_time", seconds)
    models = names(networks, *(f"width={width}" for width in (2, 4, 8, 16)))
    found = race(task, models, out=tmp_path / "run", **QUICK)
    (slow,) = set(models) - {look.arm.model for look in found.looks}
    told = "it takes 7 times as long per step as the others, and the budget is too short for it"
    assert [note for note in found.notes if "did not start" in note] == [f"{slow} did not start: {told}"]


def test_a_race_of_one_model_is_planned_too() -> None:
    assert list(plans(1)) == [(2, 1, 1), (0, 1, 1)]
    for widths in plans(17):
        assert [arms for arms in widths if arms] == sorted((arms for arms in widths if arms), reverse=True)


LONG = {**QUICK, "steps": 100_000}


@pytest.mark.slow
@pytest.mark.parametrize("after", ["nothing", "refit", "deploy"])
def test_a_budget_is_kept_within_a_twentieth(task: Task, networks: Path, tmp_path: Path, after: str) -> None:
    models = names(networks, *(f"width={8 + seed}&seed={seed}&pace=0.005" for seed in range(4)))
    more = {
        "nothing": {},
        "refit": {"refit": True},
        "deploy": {"deploy": names(networks, "width=6&pace=0.005")[0]},
    }[after]
    began = time.perf_counter()
    found = race(task, models, budget=30, out=tmp_path / "run", **LONG, **more)
    taken = time.perf_counter() - began
    assert found.steps < 100_000
    assert taken < 1.05 * 30
    assert taken > 0.6 * 30  # and it is used
    assert sum(found.seconds.values()) == pytest.approx(taken, abs=1.0)
    Tuned.load(tmp_path / "run" / "winner", allow_code=True)


@pytest.mark.slow
def test_a_model_that_is_far_slower_than_its_evidence_said_does_not_break_the_budget(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    models = names(networks, "width=8", "width=16&slow_training=0.4")
    began = time.perf_counter()
    race(task, models, budget=20, out=tmp_path / "run", **LONG)
    assert time.perf_counter() - began < 1.05 * 20


def test_a_budget_that_is_too_short_still_leaves_a_model(task: Task, networks: Path, tmp_path: Path) -> None:
    found = race(task, names(networks, "width=8"), budget=0.5, out=tmp_path / "run", **QUICK)
    assert found.tuned is not None
    Tuned.load(tmp_path / "run" / "winner", allow_code=True)


@pytest.mark.slow
def test_what_was_spent_before_a_stop_counts(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=8&pace=0.005", "width=9&pace=0.005")

    def stop(event: object) -> None:
        if isinstance(event, Raced) and event.line["event"] == "look":
            raise KeyboardInterrupt

    began = time.perf_counter()
    with pytest.raises(InterruptedRunError):
        race(task, models, budget=20, out=tmp_path / "run", observer=stop, **LONG)
    race(task, models, budget=20, out=tmp_path / "run", **LONG)
    assert time.perf_counter() - began < 1.15 * 20  # what a second start takes is not in the lines


@pytest.mark.slow
def test_more_time_can_be_given_later(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=8&pace=0.005", "width=9&pace=0.005")
    first = race(task, models, budget=6, out=tmp_path / "run", **LONG)
    deploy = names(networks, "width=6&pace=0.005")[0]
    found = race(task, models, budget=14, deploy=deploy, out=tmp_path / "run", **LONG)
    assert found.winner.model in models  # at which rate, it has chosen anew
    assert len(found.looks) > len(first.looks)
    assert found.deployed is not None
    assert found.deployed.steps > 50


def test_what_is_left() -> None:
    clock = Clock(10.0, before=4.0)
    assert 5.5 < (clock.left or 0.0) <= 6.0
    assert Clock(None).left is None


def test_a_pace_is_that_of_the_model_where_it_was_seen() -> None:
    def look(model: str, pace: float) -> Look:
        return Look(
            arm=Arm(model, 0.1),
            rung=0,
            steps=10,
            metric=0.5,
            log_likelihoods=(0.0,) * 4,
            seconds=10 * pace + 2,
            seconds_per_step=pace,
            evaluation_seconds=0.4,
        )

    looks = [look("a", 1.0), look("b", 3.0), look("b", 5.0)]
    assert Pace.of(looks) == Pace(3.0, pytest.approx(2.0), pytest.approx(0.1))
    assert Pace.of(looks, "b") == Pace(4.0, pytest.approx(2.0), pytest.approx(0.1))
    assert Pace.of(looks, "c") is None


def test_a_model_that_its_rate_has_broken_goes_on_at_its_other_rate(task: Task, networks: Path, tmp_path: Path) -> None:
    breaks, *others = names(networks, "width=48&most_moved=1.2", "width=2&seed=2", "width=2&seed=5", "width=2&seed=7")
    found = race(task, [breaks, *others], out=tmp_path / "run", **{**QUICK, "steps": 240, "learning_rate": 0.05})
    own = [look for look in found.looks if look.arm.model == breaks]
    first = {look.arm.learning_rate: look.metric for look in own if look.rung == 0}
    assert first[0.2] > first[0.05]  # the higher led
    assert [look.arm.learning_rate for look in own if look.rung == 1] == [0.2, 0.05]
    assert own[2].metric < first[0.05] < own[3].metric
    assert [look.arm.learning_rate for look in own if look.rung == 2] == [0.05]


def test_a_first_pass_that_was_slow_to_start_does_not_make_a_model_slow_to_train(make_row: Callable[..., Row]) -> None:
    """Features of 250 samples are extracted in a blink where the samples were there, and in seconds where not."""
    rows = [
        make_row("probed", 0.0, samples_per_second=5000.0, flops=100),
        make_row("waited", 0.0, samples_per_second=50.0, flops=120),
        make_row("larger", 0.0, samples_per_second=500.0, flops=1000),
        make_row("unknown", 0.0, samples_per_second=2500.0, flops=None),
    ]
    found = seconds_per_step(rows, 64, "probed", Pace(0.03, 1.0, 0.0))
    assert found["probed"] == pytest.approx(0.03)
    assert 0.03 < found["waited"] < 0.12  # a hundred times the probed by its first pass
    assert found["larger"] == pytest.approx(0.3)  # what its operations explain stays
    assert found["unknown"] == pytest.approx(0.06)
    without = seconds_per_step(rows, 64, "probed", None)
    assert without["waited"] == pytest.approx(100 * without["probed"])


def test_what_the_first_run_of_a_process_prepares_is_no_part_of_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop:
        seconds_per_step = 0.001

        def run(self, until: int) -> None:
            time.sleep(0.001 * until)

    class Cold:
        begun = 0
        arguments = SimpleNamespace(data_in_memory=True)

        def begin(self, folder: Path | None) -> SimpleNamespace:
            self.begun += 1
            time.sleep(1.0 if self.begun == 1 else 0.05)  # the first one decodes the data
            return SimpleNamespace(loop=Loop())

    monkeypatch.setattr("hubscout.racing.arms.outcome_of_arm", lambda run, rows: None)
    pace = Speed(Cold(), rows=10)()
    assert pace is not None
    assert 0.05 <= pace.look < 0.9
