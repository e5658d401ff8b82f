"""A run that ends with its time: at the constant rate as long as there is time for a cool-down after it."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hubscout.tuning.rates import TRIALS, cooldown_steps, steps_beside_search

if TYPE_CHECKING:
    from hubscout.tuning.single_run import SingleRun

PACE_STEPS = 4
"""Steps that are trained, and thrown away, to see how fast a run is."""
FORWARD_SHARE = 1 / 3
"""Of a training step: what its forward pass takes."""
MEASURING_SHARE = 0.05
"""Of a budget: for the steps that show how fast a run is, and for the first validation; longer ones are cut short."""
TEST_SHARE = 0.25
"""Of a budget: for measuring the result on test. A larger split is measured on so many samples as there is time for."""
FEWEST_TESTED = 100
"""Test samples that are measured however short the time is."""
TESTED_IN_PART = "The result is measured on"
PROBE_SHARE = 0.25
"""Of the time that is left before the first step: the longest linear probe that is measured on test too."""
DISK_BYTES_PER_SECOND = 2e8
SLACK = 0.01
"""Of a budget: kept for what nobody has measured."""
WORTHWHILE = 0.02
"""A run that is faster than was planned is made longer where that gives it this share of steps more."""


def plan_time(run: SingleRun, budget: float, *, searches: bool, probes: bool) -> tuple[float, float]:
    """Measure the pace of a run, its linear probe if there is time for it, give its loop a length, and say so.

    A run that was resumed within its cool-down has its length already. Returns the end of the last step, by
    `time.perf_counter()`, and the seconds per step, with its share of the validations.
    """
    loop, state = run.loop, run.loop.train_state
    spent = time.perf_counter() - loop.began
    measured = _measured(run, budget)
    step, validation, per_sample = run.shared(lambda: measured)
    pace = max(step + validation / loop.validation_interval, 1e-9)
    shorten_test(run, int(TEST_SHARE * budget / max(per_sample, 1e-12)))
    # Two validations: the last one in training, and that of the result.
    reserve = 2 * validation + per_sample * len(run.task.test) + SLACK * budget
    if run.folder is not None:
        reserve += 2 * run.model.card.bytes / DISK_BYTES_PER_SECOND
    if probes:
        left = budget - reserve - (time.perf_counter() - loop.began)
        _probe_in_time(run, step, run.shared(lambda: left))
    now = run.shared(lambda: time.perf_counter() - loop.began)
    if not state.falling:
        left = int((budget - reserve - now) / pace)
        fewer = steps_beside_search((budget - reserve - now - TRIALS * validation) / pace) if searches else 0
        loop.steps = state.step + max(1, fewer or left)
    falling = state.falling or cooldown_steps(loop.steps, run.arguments.cooldown)
    run.note(
        f"Budget of {budget:.4g} s: {spent:.3g} s have gone by, a step takes {pace:.2g} s with its part of validation, "
        f"and {reserve:.2g} s are kept for measuring and saving: {loop.steps:,} steps "
        f"({loop.steps / loop.plan.batches_per_epoch:.3g} epochs) are planned, the last {falling:,} with a falling "
        "learning rate."
    )
    if now + pace + reserve > budget:
        run.note(
            "The budget is too short: with a single step and its measuring the run takes about "
            f"{now + pace + reserve:.3g} s."
        )
    run.announce()
    return loop.began + budget - reserve, pace


def shorten_test(run: SingleRun, rows: int) -> None:
    """Where test has more samples than `rows`, for which there is time, take those, drawn at random, and say so."""
    test, rows = run.task.test, max(FEWEST_TESTED, rows)
    if rows >= len(test):
        return
    chosen = np.sort(np.random.default_rng([run.arguments.seed, len(test)]).permutation(len(test))[:rows])
    part = replace(test, fingerprint=test.fingerprint or run.task.fingerprint).take(chosen)  # for the feature cache
    # The linear probe is measured on the same ones.
    run.task = run.frozen_features.task = replace(run.task, splits={**run.task.splits, "test": part})
    run.note(
        f"{TESTED_IN_PART} {rows:,} of {len(test):,} test samples, drawn at random: there is no time for all of them."
    )


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


def _probe_in_time(run: SingleRun, step: float, left: float) -> None:
    """Measure the linear probes if there is time for them, or they were asked for.

    They cost a third of an epoch, and are better than what a short run learns: they may take all of the time that is
    left. On test, which is for comparing alone, they may take a part of it. How long they take is estimated from the
    pace of a step and then, as that leaves out reading the samples, from the features of the validation split.
    """
    from hubscout.tuning.baselines import measure_probes  # it needs torch, which a refused race does not wait for

    splits: tuple[str, ...] = ("validation", "test")
    if not run.asked.linear_probe:
        models = sum(max(1.0, one.card.params / max(run.model.card.params, 1)) for one in (run.model, *run.teachers))
        rows = models * (len(run.task.train) + len(run.task.validation))
        per_sample = run.shared(lambda: step * FORWARD_SHARE / run.arguments.batch_size)
        if per_sample * rows <= left:
            per_sample = run.shared(lambda: run.frozen_features.seconds_per_sample(run.model, "validation"))
        if per_sample * rows > left:
            run.frozen_features.forget()
            run.note(
                f"The linear probe is not measured: it would take about {per_sample * rows:.2g} s, and there are "
                f"{max(left, 0.0):.2g} s left. The result is not compared with it; linear_probe=True "
                "measures it all the same."
            )
            return
        if per_sample * (rows + models * len(run.task.test)) > PROBE_SHARE * left:
            splits = ("validation",)
    measure_probes(run, splits)


def fit_to_time(run: SingleRun, end: float, pace: float, longest: int = sys.maxsize) -> None:
    """Train at the constant rate as long as there is time for a cool-down after it, and let the run end with that.

    A run with a constant rate can end at any step: a cool-down of its usual share makes it a whole one. The pace is
    measured again on the way: a run that is faster than was thought goes on, up to `longest` steps.
    """
    loop, share, state = run.loop, run.arguments.cooldown, run.loop.train_state
    began, first = time.perf_counter(), state.step
    if not state.falling and first < loop.steps - cooldown_steps(loop.steps, share):
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
        step, room = state.step, _steps_until(run, end, pace)
        state.falling = max(1, min(loop.steps - step, round(step * share / (1 - share)), room))
        state.length = step + state.falling
    if state.falling:
        loop.steps = state.length
        loop.arguments = loop.arguments.replace(cooldown=state.falling / state.length)
    loop.deadline = end


def _steps_until(run: SingleRun, end: float, pace: float) -> int:
    """How many steps there is time for, by the clock of the main process."""
    return run.shared(lambda: int(max(0.0, end - time.perf_counter()) / pace))
