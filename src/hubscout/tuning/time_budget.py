"""A run that ends with its time: at the constant rate as long as there is time for a cool-down after it."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hubscout.runs.texts import counted, rounded_seconds
from hubscout.tuning.default_method import weighs_teachers
from hubscout.tuning.probe_time import ProbeTime
from hubscout.tuning.rates import TRIALS, cooldown_steps, steps_beside_search

if TYPE_CHECKING:
    from hubscout.tuning.single_run import SingleRun

PACE_STEPS = 4
"""Steps that are trained, and thrown away, to see how fast a run is."""
FORWARD_SHARE = 1 / 3
"""Of a training step: what its forward pass takes."""
MEASURING_SHARE = 0.05
"""Of a budget: for the steps that show how fast a run is, and for the first validation; longer ones are cut short."""
TEST_SHARE, VALIDATION_SHARE = 0.25, 0.1
"""Of what a budget has left as training is planned: for measuring the result on test, and for one validation. Of a
larger split so many samples are taken as there is time for."""
FEWEST_MEASURED = 100
"""Samples of a split that are measured however short the time is."""
TESTED_IN_PART = "The result is measured on"
DISK_BYTES_PER_SECOND = 2e8
SLACK = 0.01
"""Of a budget: kept for what nobody has measured."""
WORTHWHILE = 0.02
"""A run that is faster than was planned is made longer where that gives it this share of steps more."""


def plan_time(run: SingleRun, budget: float, *, searches: bool, probes: bool) -> tuple[float, float] | None:
    """Measure the pace of a run, its linear probe if there is time for it, give its loop a length, and say so.

    A run that was resumed within its cool-down has its length already. Returns the end of the last step, by
    `time.perf_counter()`, and the seconds per step, with its share of the validations; None where there is no time for
    training that comes up to the probe, which is then the result.
    """
    loop, state = run.loop, run.loop.train_state
    spent = time.perf_counter() - loop.began
    shorten_as_planned(run)
    measured = _measured(run, budget)
    step, validation, per_sample = run.shared(lambda: measured)
    if state.step == 0:
        samples = max(0.0, budget - run.shared(lambda: spent)) / max(per_sample, 1e-12)
        shorten(run, "validation", int(VALIDATION_SHARE * samples))
        shorten(run, "test", int(TEST_SHARE * samples))
        validation = min(validation, per_sample * len(run.task.validation))
    pace = max(step + validation / loop.validation_interval, 1e-9)
    testing = per_sample * len(run.task.test) + SLACK * budget
    if run.folder is not None:
        testing += 2 * run.model.card.bytes / DISK_BYTES_PER_SECOND
    # Two validations: the last one in training, and that of the result.
    reserve = 2 * validation + testing
    if probes:
        gone = run.shared(lambda: time.perf_counter() - loop.began)
        if _probe_in_time(run, step, pace, budget - gone - reserve, alone=budget - gone - testing):
            run.note(_why_untrained(budget, gone, reserve))
            return None
    now = run.shared(lambda: time.perf_counter() - loop.began)
    if not state.falling:
        left = int((budget - reserve - now) / pace)
        fewer, room = 0, budget - reserve - now
        for weighs in (True, False) if searches and weighs_teachers(run) else (False,):
            trials, run.weighs = TRIALS + weighs, weighs
            fewer = steps_beside_search((room - trials * validation) / pace, trials) if searches else 0
            if fewer:
                break
        run.searches = fewer > 0
        loop.steps = state.step + max(1, fewer or left)
    falling = state.falling or cooldown_steps(loop.steps, run.arguments.cooldown)
    run.note(
        f"Budget of {rounded_seconds(budget)}: {rounded_seconds(spent)} have gone by, a step takes "
        f"{rounded_seconds(pace)} with its part of validation, and {rounded_seconds(reserve)} are kept for measuring "
        f"and saving: {steps_text(loop.steps, loop.plan.batches_per_epoch)} "
        f"{'is' if loop.steps == 1 else 'are'} planned"
        f"{f', the last {falling:,} with a falling learning rate' if loop.steps > 1 else ''}."
    )
    if now + pace + reserve > budget:
        run.note(
            "The budget is too short: with a single step and its measuring the run takes about "
            f"{rounded_seconds(now + pace + reserve)}."
        )
    run.announce()
    return loop.began + budget - reserve, pace


def shorten(run: SingleRun, split: str, rows: int) -> None:
    """Where a split has more samples than `rows`, for which there is time, take those, drawn at random, and say so."""
    whole, rows = run.task.splits[split], max(FEWEST_MEASURED, rows)
    if rows >= len(whole):
        return
    chosen = np.sort(np.random.default_rng([run.arguments.seed, len(whole)]).permutation(len(whole))[:rows])
    part = replace(whole, fingerprint=whole.fingerprint or run.task.fingerprint).take(chosen)  # for the feature cache
    # The linear probe is measured on the same ones.
    run.task = run.frozen_features.task = replace(run.task, splits={**run.task.splits, split: part})
    told = TESTED_IN_PART
    if split == "validation":
        run.validate_on(part)
        run.loop.train_state.validated, told = rows, "Validations are on"
    else:
        run.loop.train_state.tested = rows
    run.note(f"{told} {rows:,} of {len(whole):,} {split} samples, drawn at random: there is no time for all of them.")


def shorten_as_planned(run: SingleRun) -> None:
    """A run that is resumed is measured on the samples that it was planned with."""
    state = run.loop.train_state
    for split, rows in (("validation", state.validated), ("test", state.tested)):
        if rows:
            shorten(run, split, rows)


def _measured(run: SingleRun, budget: float) -> tuple[float, float, float]:
    """Seconds per step, per validation, and per sample that is measured.

    What would take much of the budget to measure is estimated from the pace of a step.
    """
    loop, task = run.loop, run.task
    with loop.branch([1.0] * (1 + PACE_STEPS), time.perf_counter() + MEASURING_SHARE * budget):
        step = loop.seconds_per_step
    per_sample = step * FORWARD_SHARE / run.arguments.batch_size
    validation = per_sample * len(task.validation)
    if len(task.validation) and run.shared(lambda: validation < MEASURING_SHARE * budget):
        began = time.perf_counter()
        run.outcome(run.validation, task.validation).with_intervals(**run.arguments.intervals)
        validation = time.perf_counter() - began
        per_sample = validation / len(task.validation)
    return step, validation, per_sample


def _probe_in_time(run: SingleRun, step: float, pace: float, left: float, *, alone: float) -> bool:
    """Measure the linear probes that there is time for, or all if asked for; whether the model's is the result.

    How long they take is estimated from the pace of a step and then, as that leaves out reading the samples, from the
    features of the validation split.
    """
    from hubscout.tuning.baselines import measure_probes  # it needs torch, which a refused race does not wait for

    if run.asked.linear_probe:
        measure_probes(run)
        return False
    task, frozen, every = run.task, run.frozen_features, (run.model, *run.teachers)
    sizes = len(task.train), len(task.validation), len(task.test)
    weights = [max(1.0, one.card.params / max(run.model.card.params, 1)) for one in every]

    def chosen() -> tuple[ProbeTime, float]:
        probe = ProbeTime(*sizes, weights, [frozen.knows(one) for one in every], left, alone, pace)
        per_sample = step * FORWARD_SHARE / run.arguments.batch_size
        if probe.can_be_timed(per_sample):
            per_sample = frozen.seconds_per_sample(run.model, "validation", max(left, probe.last_room))
        return probe, per_sample

    # The main process alone has features and a clock that counts; all must decide the same.
    probe, per_sample = run.shared(chosen)
    choice = probe.choose(per_sample)
    needed, room = rounded_seconds(per_sample * probe.rows), rounded_seconds(max(left, 0.0))
    why = f"it would take about {needed}, and there are {room} left"
    if choice.samples == 0:
        run.note(
            f"The linear probe is not measured: {why}. The result is not compared with it; linear_probe=True measures "
            "it all the same."
        )
        return False
    if choice.samples is not None and choice.samples < len(task.train):
        which = " of the model alone, not of its teachers," if run.teachers else ""
        part = f"{choice.samples:,} of {len(task.train):,}"
        run.note(f"The linear probe{which} is fitted on {part} train samples: otherwise {why}.")
    elif choice.samples is not None and run.teachers:
        run.note(f"The linear probe is that of the model alone, not of its teachers: with theirs {why}.")
    outcome = measure_probes(run, choice.splits, choice.samples)
    if not choice.is_result or outcome is None:
        return False
    state = run.loop.train_state
    state.best, state.best_likelihood = state.floor, state.floor_likelihood
    run.known = {"validation": outcome} if len(task.test) else {}
    return True


def _why_untrained(budget: float, gone: float, reserve: float) -> str:
    """Why the linear probe is the result.

    >>> _why_untrained(5.0, 9.3, 1.0)  # doctest: +ELLIPSIS
    'The budget of 5 s was over before training could begin (9.3 s had gone by): the result is the linear ...'
    """
    whole, after = rounded_seconds(budget), rounded_seconds(gone)
    why = (
        f"The budget of {whole} was over before training could begin ({after} had gone by)"
        if gone >= budget
        else f"Of the budget of {whole}, {after} have gone by and {rounded_seconds(reserve)} are kept for measuring "
        "and saving, which leaves no time for training that comes up to the linear probe"
    )
    return f"{why}: the result is the linear probe of the frozen features, with the backbone as it was."


def fit_to_time(run: SingleRun, end: float, pace: float, longest: int = sys.maxsize) -> None:
    """Train at the constant rate as long as there is time for a cool-down after it, and let the run end with that.

    A run with a constant rate can end at any step: a cool-down of its usual share makes it a whole one. The pace is
    measured again on the way: a run that is faster than was thought goes on, up to `longest` steps.
    """
    loop, share, state = run.loop, run.arguments.cooldown, run.loop.train_state
    began, first = time.perf_counter(), state.step
    if not state.falling and (first or cooldown_steps(loop.steps, share) < loop.steps):
        if first:
            loop.arguments = loop.arguments.replace(warmup=0.0)  # that of a longer run would begin once more
        stable = 0
        while True:
            longest = max(longest, loop.steps)
            length = min(longest, state.step + _steps_until(run, end, pace))
            loop.steps = max(loop.steps, length)
            stable, before = loop.steps - cooldown_steps(loop.steps, share), stable
            if state.stopped or stable - max(state.step, before) < WORTHWHILE * before or stable <= state.step:
                break
            loop.deadline = end - pace * cooldown_steps(length, share)
            loop.run(until=stable)
            pace = max((time.perf_counter() - began) / (state.step - first), 1e-9)
            if state.step < stable:
                break
        # A run that was resumed may be past that already: its rate falls from where it stands.
        step, room = state.step, _steps_until(run, end, pace)
        state.falling = max(1, min(loop.steps - step, round(step * share / (1 - share)), room))
        state.length = step + state.falling
    if state.falling:
        loop.steps = state.length
        loop.arguments = loop.arguments.replace(cooldown=state.falling / state.length)
    else:
        state.length = loop.steps  # too few for a part at the constant rate: whoever resumes it trains no further
    loop.deadline = end


def _steps_until(run: SingleRun, end: float, pace: float) -> int:
    """How many steps there is time for, by the clock of the main process."""
    return run.shared(lambda: int(max(0.0, end - time.perf_counter()) / pace))


def steps_text(steps: int, per_epoch: int) -> str:
    """A number of steps, and how many epochs they are.

    >>> steps_text(1, 1), steps_text(1200, 500)
    ('1 step (1 epoch)', '1,200 steps (2.4 epochs)')
    """
    epochs = f"{steps / per_epoch:.3g}"
    return f"{counted(steps, 'step')} ({epochs} epoch{'' if epochs == '1' else 's'})"
