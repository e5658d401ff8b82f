"""An arm: a model with a learning rate, trained from rung to rung and never from the start again."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hubscout.engines.memory import remembered
from hubscout.errors import InterruptedRunError
from hubscout.racing.held_out_samples import log_likelihoods

if TYPE_CHECKING:
    from hubscout.ranking.task_reference import TaskReference
    from hubscout.runs.events import Observer
    from hubscout.tasks import Task
    from hubscout.tuning import Tuned, TuningArguments
    from hubscout.tuning.single_run import SingleRun

BEST = "best"
LIVE_ARMS = 4
"""Arms that stay in memory between rungs; others go on from their checkpoint, to the same result."""


@dataclass(frozen=True, order=True)
class Arm:
    """A model with a learning rate."""

    model: str
    learning_rate: float

    def __str__(self) -> str:
        return f"{self.model} at {self.learning_rate:g}"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a rung showed of an arm.

    `metric` is the task's own and `log_likelihoods` one number for each of the first held-out samples, both after a
    cool-down, so that they are those of a network that was tuned for `steps` steps. An arm that broke down has a
    `failure` and neither.
    """

    arm: Arm
    rung: int
    steps: int
    metric: float | None
    log_likelihoods: tuple[float, ...]
    seconds: float
    seconds_per_step: float
    failure: str = ""


@dataclass(frozen=True)
class Climb:
    """The work of an arm on one rung: a job that any process can do."""

    task: TaskReference
    arm: Arm
    arguments: TuningArguments
    folder: Path
    rung: int
    stable: int
    """The step up to which the rate is constant, and from which the next rung goes on."""
    steps: int
    """Steps with the cool-down."""
    rows: int
    """Held-out samples that are looked at."""
    keep_above: float = -math.inf
    """The cooled-down network is saved in `folder`/best if its metric is above: the best so far can be used."""

    def __call__(self) -> Look:
        started = time.perf_counter()
        try:
            return self._look(started)
        except InterruptedRunError as error:  # Ctrl-C in the middle of training: the race stops, the arm is not out
            raise KeyboardInterrupt from error
        except Exception as error:  # an arm that diverges, or a model that cannot be trained, is out; the race goes on
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            return Look(
                arm=self.arm,
                rung=self.rung,
                steps=self.steps,
                metric=None,
                log_likelihoods=(),
                seconds=time.perf_counter() - started,
                seconds_per_step=0.0,
                failure=f"{type(error).__name__}: {reason}",
            )

    def _look(self, started: float) -> Look:
        run = live(self.task, self.arm, self.arguments, self.folder)
        first = run.loop.standing.step
        began = time.perf_counter()
        run.loop.run(until=self.stable)
        with run.loop.cooled_down(self.steps - self.stable):
            trained = time.perf_counter()
            metric, values = judge(run, self.rows)
            if metric > self.keep_above:
                run.snapshot().save(self.folder / BEST)
        return Look(
            arm=self.arm,
            rung=self.rung,
            steps=self.steps,
            metric=metric,
            log_likelihoods=tuple(round(float(value), 4) for value in values),
            seconds=time.perf_counter() - started,
            seconds_per_step=(trained - began) / max(1, self.steps - first),
        )


def live(reference: TaskReference, arm: Arm, arguments: TuningArguments, folder: Path) -> SingleRun:
    """The arm's run: the one in memory, else made anew from its last checkpoint, else from the start."""

    def begin() -> SingleRun:
        from hubscout.runs.events import silent
        from hubscout.tuning.single_run import SingleRun

        run = SingleRun(reference.open(), arm.model, (), "fine-tune", arguments, folder, None, silent)
        run.begin(resume=True)
        run.loop.validate = None  # arms are judged at rungs, after a cool-down
        return run

    return remembered("race-arm", (str(folder), arm), begin, most=LIVE_ARMS)


def judge(run: SingleRun, rows: int) -> tuple[float, np.ndarray]:
    """The metric and the log-likelihoods of the network as it stands, on the first held-out samples."""
    from hubscout.tasks import task_metrics

    task: Task = run.task
    some = task.validation.take(np.arange(min(rows, len(task.validation))))
    predicted, targets, groups = run.judge.outcome(run.loop.network, run.validation, some)
    values: Mapping[str, float] = task_metrics.values(
        task.kind, predicted, targets, groups=groups, target_names=task.target_names
    )
    scale = run.loop.network.loss.scale
    return next(iter(values.values())), log_likelihoods(task.kind, predicted, targets, groups, scale)


def finish(reference: TaskReference, arm: Arm, arguments: TuningArguments, folder: Path, observer: Observer) -> Tuned:
    """Train the arm from where it stands to its end, cool-down included, and measure it."""
    run = live(reference, arm, arguments, folder)
    run.observer = run.loop.observer = observer
    run.loop.run()
    return run.finish()
