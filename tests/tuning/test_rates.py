from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tuning_networks import make_task, perceptron, weights_of

from hubscout.runs.events import Message, Validated
from hubscout.tasks import Split, Task
from hubscout.tasks.task_metrics import Outcome
from hubscout.tuning import tune
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.divergence import LossWatch
from hubscout.tuning.rates import (
    TRIALS,
    rates_of,
    round_rate,
    search_rate,
    steps_beside_search,
    steps_per_rate,
    why_not_ahead,
)

DEFAULT = rates_of("sgd", "array").default
FIRST = rates_of("sgd", "array").first
FASTER = round_rate(4 * FIRST)
KINDS = ("classification", "multilabel", "regression", "tagging")
LONG = {"method": "fine-tune", "steps": 240, "batch_size": 16, "optimizer": "sgd"}


def large_task(kind: str = "classification") -> Task:
    """With validation samples enough to tell rates apart."""
    task = make_task(kind, n=1000)
    inputs, targets = task.train.inputs, task.train.targets
    splits = {"train": Split(inputs[:400], targets[:400]), "validation": Split(inputs[400:], targets[400:])}
    return Task("large", kind, "array", task.target_names, {**splits, "test": task.test}, f"large-{kind}")


def same_weights(one, other) -> bool:
    mine, theirs = weights_of(one.backbone), weights_of(other.backbone)
    heads = zip(one.head.parameters(), other.head.parameters(), strict=True)
    return all(torch.equal(mine[name], theirs[name]) for name in mine) and all(torch.equal(a, b) for a, b in heads)


def test_the_run_goes_on_with_the_best_rate_as_if_it_had_been_given():
    task, heard = large_task(), []
    found = tune(task, perceptron(0), observer=heard.append, **LONG)
    assert found.arguments.learning_rate == FASTER  # short runs from a random head: the first is far too slow here
    (note,) = [note for note in found.notes if "Short runs" in note]
    assert all(f"at {rate}" in note for rate in (f"{FIRST / 4:g}", f"{FIRST:g}", f"{FASTER:g}"))
    assert f"continues with the best, learning_rate={FASTER:g}" in note
    assert note in {event.text for event in heard if isinstance(event, Message)}
    assert [line["text"] for line in found.curves if line["event"] == "note"] == [note]
    given = tune(task, perceptron(0), learning_rate=FASTER, **LONG)
    assert same_weights(found, given)
    assert not [note for note in given.notes if "Short runs" in note]


@pytest.mark.parametrize(("steps", "rates"), [(240, (FIRST / 4, FIRST, FASTER)), (800, (FIRST, FASTER, 4 * FASTER))])
def test_a_rate_is_raised_twice_only_by_runs_that_are_long_enough(steps, rates):
    tuned = tune(large_task(), perceptron(0), **{**LONG, "steps": steps})
    (note,) = [note for note in tuned.notes if "Short runs" in note]
    assert all(f" at {rate:g}" in note for rate in rates), note
    assert tuned.arguments.learning_rate == round_rate(rates[-1])


@pytest.mark.slow
def test_a_network_with_dropout_and_norms_is_left_by_the_search_as_it_was():
    task = large_task()
    found = tune(task, perceptron(0, norm=True, dropout=0.2), **LONG)
    rate = found.arguments.learning_rate
    assert same_weights(found, tune(task, perceptron(0, norm=True, dropout=0.2), learning_rate=rate, **LONG))


def test_the_search_is_cheap_where_it_can_be_and_long_enough_to_tell_rates_apart():
    for steps in (900, 1000, 12345):
        assert 45 <= steps_per_rate(steps) <= 0.05 * steps
    for steps in (200, 240, 300, 600):
        assert min(45, 0.15 * steps) - 1 < steps_per_rate(steps) <= 0.15 * steps


@pytest.mark.parametrize("total", [250, 290, 300, 435, 600, 1035, 1036, 5000.5])
def test_a_run_and_its_search_fill_the_time_that_there_is(total):
    steps = steps_beside_search(total)
    if not steps:
        assert total < 1.45 * 200
    else:
        assert steps + TRIALS * steps_per_rate(steps) <= total
        assert steps + 4 + TRIALS * steps_per_rate(steps + 4) > total


@pytest.mark.parametrize(
    "changes",
    [{"rate_search": False}, {"learning_rate": DEFAULT}, {"head_learning_rate": 10 * DEFAULT}, {"steps": 100}],
)
def test_no_search_where_a_rate_is_given_or_the_run_is_short_or_it_is_not_wanted(changes):
    tuned = tune(large_task(), perceptron(0), **{**LONG, **changes})
    assert (tuned.arguments.learning_rate, tuned.arguments.head_learning_rate) == (DEFAULT, 10 * DEFAULT)
    assert not [note for note in tuned.notes if "Short runs" in note]


def test_no_search_without_validation():
    task = large_task()
    blind = Task(
        "blind", task.kind, "array", task.target_names, {**task.splits, "validation": task.train.take([])}, "b"
    )
    assert tune(blind, perceptron(0), **LONG).arguments.learning_rate == DEFAULT


def test_a_rate_that_diverges_is_not_chosen():
    task, model = large_task("regression"), perceptron(0, width=64)
    with torch.no_grad():
        model.module.body[-1].weight.mul_(30)
    tuned = tune(task, model, **LONG)
    (note,) = [note for note in tuned.notes if "Short runs" in note]
    assert "divergence" in note
    assert tuned.metric().value > 0.5


@pytest.mark.parametrize(("trade_off", "tried", "chosen"), [(100, [1], 2 * FIRST), (200, [0.25, 1], FIRST)])
def test_half_of_a_higher_rate_that_diverges_is_tried_and_the_divergence_ends_early(
    trade_off, tried, chosen, monkeypatch
):
    from hubscout.tuning.train_step import TrainStep

    steps, take = [], TrainStep.take
    monkeypatch.setattr(TrainStep, "take", lambda self, *given: steps.append(1) or take(self, *given))
    options = {**LONG, "method": "b-tuning", "trade_off": trade_off, "momentum": 0.0, "linear_probe": False}
    monkeypatch.setattr("hubscout.tuning.methods.b_tuning.BOUND", math.inf)  # with it none of these rates diverges
    tuned = tune(large_task(), perceptron(0), [perceptron(1)], **options)
    (note,) = [note for note in tuned.notes if "Short runs" in note]
    assert f"divergence at {FASTER:g}" in note
    assert all(f" at {share * FIRST:g}" in note for share in (*tried, 2))
    assert tuned.arguments.learning_rate == chosen, note
    short = steps_per_rate(LONG["steps"])
    assert len(steps) < LONG["steps"] + TRIALS * short  # though there were as many rates as that, or one more


class ShortRuns:
    """As much of a run as the search for a rate asks for: rates, and how well the network does after a short run."""

    def __init__(self, r2_of: Callable[[float], float]) -> None:
        self.task, self.validation, self.tried = large_task("regression"), None, []
        self.arguments = TuningArguments(learning_rate=1.0).settled("array", "regression")
        self.loop = SimpleNamespace(
            steps=300,
            branch=self.branch,
            is_late=False,
            watch=LossWatch(null_metric=0.0),
            network=SimpleNamespace(loss=SimpleNamespace(scale=None)),
        )
        self.r2_of = r2_of

    def branch(self, factors: list[float]) -> nullcontext[None]:
        self.tried.append(round_rate(max(factors)))
        return nullcontext()

    def outcome(self, batches: None, split: Split) -> Outcome:
        unexplained = (1 - self.r2_of(self.tried[-1])) ** 0.5
        mean = split.targets.mean(axis=0)
        return Outcome.of(self.task, split, split.targets + unexplained * (mean - split.targets))


def test_half_of_a_rate_that_falls_back_to_guessing_is_tried():
    first = rates_of("adamw", "array").first
    thrown_off = ShortRuns(lambda rate: 0.5 if rate <= first else 0.7 if rate <= 2 * first else -0.001)
    assert search_rate(thrown_off).learning_rate == 2 * first
    assert thrown_off.tried == [first, round_rate(4 * first), 2 * first]
    slow = ShortRuns(lambda rate: 0.01 if rate <= first else 0.0)  # which has not learnt anything by then either
    assert search_rate(slow).learning_rate == first
    assert 2 * first not in slow.tried


@pytest.mark.parametrize("climbs", [0, 1])
def test_half_of_a_rate_is_not_tried_after_the_deadline(climbs):
    first = rates_of("adamw", "array").first
    good = [first, round_rate(4 * first)][: climbs + 1]

    def r2(rate):
        runs.loop.is_late = rate not in good
        return 0.5 + 0.2 * good.index(rate) if rate in good else -0.001

    runs = ShortRuns(r2)
    choice = search_rate(runs)
    assert runs.tried == [*good, round_rate(4 * good[-1])]
    assert choice.learning_rate == good[-1]
    assert "There is no time to try others." in choice.reason


@pytest.mark.parametrize("method", ["fine-tune", "b-tuning", "logit-kd", "distill-weighted", "kd"])
def test_the_first_steps_for_numbers_do_not_throw_a_network_off(method):
    def many_positive_features(seed: int):
        model = perceptron(seed, width=1024)
        model.module.body.append(torch.nn.Softplus())
        return model

    teachers = [] if method == "fine-tune" else [many_positive_features(1)]
    tuned = tune(make_task("regression"), many_positive_features(0), teachers, method, steps=150, linear_probe=False)
    losses = [line["parts"]["task"] for line in tuned.curves if line["event"] == "step"]
    assert max(losses[:20]) < 1.5 * losses[0]  # four times without a warm-up
    assert tuned.metric().value > 0.5


def test_a_warm_up_is_for_numbers_or_for_those_who_ask():
    settled = [TuningArguments(**given).settled("image", kind) for kind in KINDS for given in ({}, {"warmup": 0.02})]
    assert [one.warmup for one in settled] == [0.0, 0.02, 0.0, 0.02, 0.1, 0.02, 0.0, 0.02]


def test_a_killed_run_goes_on_with_the_rate_that_it_had_chosen(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killer(event):
        if isinstance(event, Validated) and event.step >= 100:
            raise Killed

    task = large_task()
    whole = tune(task, perceptron(0), **LONG)
    with pytest.raises(Killed):
        tune(task, perceptron(0), out=tmp_path, observer=killer, **LONG)
    monkeypatch.setattr("hubscout.tuning.tuning_run.search_rate", lambda run: pytest.fail("searched again"))
    resumed = tune(task, perceptron(0), out=tmp_path, resume=True, **LONG)
    assert resumed.arguments == whole.arguments
    assert same_weights(resumed, whole)
    assert [note for note in whole.notes if "Short runs" in note] == [n for n in resumed.notes if "Short runs" in n]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["event"] == "note" and "Short runs" in line["text"] for line in lines) == 1


def test_a_run_that_diverges_at_the_chosen_rate_starts_anew_below_it(tmp_path, monkeypatch):
    from hubscout.tuning import tuning_run
    from hubscout.tuning.rates import RateChoice

    searches = []
    chosen = RateChoice(0.9, "Short runs.")
    monkeypatch.setattr(tuning_run, "search_rate", lambda run, untaught: searches.append(1) or chosen)
    tuned = tune(make_task("regression"), perceptron(0), out=tmp_path, **LONG)
    times = sum("restarts with" in note for note in tuned.notes)
    assert times
    assert tuned.arguments.learning_rate == pytest.approx(0.9 / 5**times)
    assert tuned.arguments.head_learning_rate == pytest.approx(9 / 5**times)
    assert searches == [1]
    again = tune(make_task("regression"), perceptron(0), out=tmp_path, **LONG)
    assert again.arguments == tuned.arguments


def test_a_lead_within_the_noise_does_not_unseat_the_first_rate():
    task = large_task()
    few = Task(
        "few", task.kind, "array", task.target_names, {**task.splits, "validation": task.test.take([0, 1])}, "few"
    )
    tuned = tune(few, perceptron(0), **LONG)
    (note,) = [note for note in tuned.notes if "Short runs" in note]
    assert tuned.arguments.learning_rate == FIRST, note


def test_a_lead_must_be_one_of_the_metric_and_clearly_of_the_log_likelihood():
    noise = np.random.default_rng(0).normal(size=100)
    steady = 0.5 + noise
    assert why_not_ahead(0.001, steady) == ""
    assert why_not_ahead(0.0, steady) == "not ahead"
    assert "not clearly so in log-likelihood" in why_not_ahead(0.05, 0.15 + noise - noise.mean())
    sure_of_its_mistakes = np.where(np.arange(100) < 10, -2.0, 0.1)
    assert "not clearly so in log-likelihood" in why_not_ahead(0.05, sure_of_its_mistakes)
