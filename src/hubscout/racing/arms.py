"""An arm: a model with a learning rate, trained from rung to rung and never from the start again."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hubscout.engines.job import remembered
from hubscout.errors import DivergedError, InterruptedRunError, OtherRunError, one_line
from hubscout.hubs import Identifier
from hubscout.racing.race_journal import BEST
from hubscout.racing.rungs import Pace, Rung
from hubscout.runs.race_record import Arm, Look
from hubscout.runs.tuning_record import read_tuning
from hubscout.tuning.choices import FOLLOWS_LABELS
from hubscout.tuning.time_budget import PACE_STEPS

if TYPE_CHECKING:
    from hubscout.ranking.jobs import TaskReference
    from hubscout.tasks.task_metrics import Outcome
    from hubscout.tuning import Tuned, TuningArguments
    from hubscout.tuning.single_run import SingleRun

LONGEST_FAILURE = 300
"""Characters of a reason why an arm could not be trained."""
LIVE = "race-arm"
LIVE_ARMS = 4
"""Arms that stay in memory between rungs; others go on from their checkpoint, to the same result."""


@dataclass(frozen=True)
class Runner:
    """What trains an arm: a job of any process knows from it which run is meant, and goes on with it."""

    race: str
    """Of one call of `race`: what an earlier one left in memory is not taken up."""
    task: TaskReference
    arm: Arm
    arguments: TuningArguments
    folder: Path
    teachers: tuple[str, ...] | None = None
    """Of the model to deploy, which is tuned as by `tune` without a method, also where nobody is left to teach it.
    None: an arm of the race, which is fine-tuned."""
    seconds: float | None = None
    """That there are for everything: teachers that are too slow for that are left out."""
    steps: int = 0
    """Of a whole run in this race: its `arguments` have those of the longest, so that a longer race goes on with it."""
    past: int = 0
    """Steps after which a shorter race had ended it: it goes on from there, at its constant rate again."""

    def live(self) -> SingleRun:
        """The arm's run: the one in memory, else made anew from its last checkpoint, else from the start."""
        run = remembered(LIVE, (self.race, str(self.folder)), lambda: self.begin(self.folder), most=LIVE_ARMS)
        written = run.loop.checkpoints.latest() if run.loop.checkpoints is not None else None
        if written is not None and step_of(written) > run.loop.train_state.step:  # another process took it further
            assert run.loop.checkpoints is not None
            run.loop.resume(run.loop.checkpoints.read(written))
        return run

    def begin(self, folder: Path | None, rows: int | None = None) -> SingleRun:
        """A run in a folder, from what is there; without one from the start, and nothing is written.

        With `rows` it is one on so many train samples, and on held-out ones in proportion.
        """
        from hubscout.features import FeatureCache
        from hubscout.runs.events import silent
        from hubscout.tuning.single_run import SingleRun

        taught, cache = self.teachers is not None, FeatureCache()  # where the ranking has left features
        method, task = FOLLOWS_LABELS if taught else "fine-tune", self.task.open()
        if rows is not None and rows < len(task.train):
            held_out = task.validation.take(np.arange(min(len(task.validation), max(100, rows // 4))))
            fewer = task.subset(rows)
            task = replace(fewer, splits={**fewer.splits, "validation": held_out})
        given = task, self.arm.model, self.teachers or (), method, self.arguments, folder, cache, silent
        run = SingleRun(*given, budget=self.seconds, method_is_open=taught)
        try:
            run.begin(resume=folder is not None)
        except OtherRunError:
            if not taught:
                raise
            run.begin()  # an earlier version had another method for it
        run.frozen_features.forget()
        loop, state = run.loop, run.loop.train_state
        loop.validate = None  # arms are judged at rungs, after a cool-down
        if state.falling and state.length <= self.past:
            state.falling = state.length = 0
        loop.steps = self.steps or loop.steps
        return run


@dataclass(frozen=True)
class Climb:
    """The work of an arm on one rung: a job that any process can do."""

    runner: Runner
    rung: Rung
    rows: int
    """Held-out samples that are looked at."""
    keep_above: float = -math.inf
    """The cooled-down network is saved in the folder's `best` if its metric is above: the best so far can be used."""
    probe: tuple[int, float] | None = None
    """First held-out samples that a linear probe was measured on, and its metric: it is to be above that there too."""
    seconds: float | None = None
    """The arm is left where it stands after so many seconds, and there is no look."""

    def __call__(self) -> Look | None:
        started = time.perf_counter()
        try:
            return self._look(started)
        except InterruptedRunError as error:  # Ctrl-C in the middle of training: the race stops, the arm is not out
            raise KeyboardInterrupt from error
        except Exception as error:  # an arm that diverges, or a model that cannot be trained, is out; the race goes on
            return failed_look(self.runner.arm, self.rung, time.perf_counter() - started, error)

    def _look(self, started: float) -> Look | None:
        from hubscout.tuning.tuning_run import snapshot

        run, rung = self.runner.live(), self.rung
        run.loop.deadline = None if self.seconds is None else started + self.seconds
        run.loop.run(until=rung.stable)
        if run.loop.train_state.step < rung.stable:
            return None
        pace = run.loop.seconds_per_step
        with run.loop.cooled_down(rung.steps - rung.stable):
            trained = time.perf_counter()
            found = outcome_of_arm(run, self.rows)
            metric, values = found.primary, found.log_likelihoods(run.loop.network.loss.scale)
            evaluated = time.perf_counter()
            saved = metric > self.keep_above
            if saved and self.probe is not None:
                rows, to_beat = self.probe
                saved = found.first(rows).primary > to_beat
            if saved:
                snapshot(run).save(self.runner.folder / BEST)
        return Look(
            arm=self.runner.arm,
            rung=rung.number,
            steps=rung.steps,
            metric=metric,
            log_likelihoods=tuple(round(float(value), 4) for value in values),
            seconds=time.perf_counter() - started,
            seconds_per_step=pace,
            evaluation_seconds=evaluated - trained,
            saved=saved,
        )


@dataclass(frozen=True)
class Study:
    """Have the teachers of an arm go over the train samples, as far as there is time: a job.

    What they have seen is in the cache, for whoever is taught by them.
    """

    runner: Runner

    def __call__(self) -> tuple[tuple[str, ...], str]:
        """Those that there is time for, and who was left out, in words."""
        teachers = self.runner.teachers or ()
        try:
            run = self.runner.begin(None)
        except InterruptedRunError as error:
            raise KeyboardInterrupt from error
        except Exception:  # one that cannot be run shows that in the lesson, where it is said
            return teachers, ""
        return tuple(teachers[place] for place in run.taught_by), run.teaching_time.told()


@dataclass(frozen=True)
class Speed:
    """Train a model for a few steps, which are thrown away, to see how fast it is: a job."""

    runner: Runner
    rows: int
    """Held-out samples of a look."""

    def __call__(self) -> Pace | None:
        try:
            if self.runner.arguments.data_in_memory is not False:
                self.runner.begin(None)  # decodes the data, which the looks at arms will find done
            began = time.perf_counter()
            run = self.runner.begin(None)
            run.loop.run(until=PACE_STEPS)
            per_step = run.loop.seconds_per_step
            trained = time.perf_counter()
            outcome_of_arm(run, self.rows)
            now = time.perf_counter()
        except InterruptedRunError as error:
            raise KeyboardInterrupt from error
        except Exception:  # a model that cannot be trained shows that in the race, where it is said
            return None
        return Pace(per_step, max(0.0, now - began - PACE_STEPS * per_step), (now - trained) / self.rows)


def failed_look(arm: Arm, rung: Rung, seconds: float, error: Exception) -> Look:
    """What is seen of an arm that could not be trained: why."""
    if isinstance(error, DivergedError):
        failure = cut_short(error.what, LONGEST_FAILURE)  # without its advice, which is for `tune`
    else:
        failure = f"{type(error).__name__}: {cut_short(one_line(error), LONGEST_FAILURE)}"
    return Look(arm=arm, rung=rung.number, steps=rung.steps, seconds=seconds, failure=failure)


def cut_short(text: str, longest: int) -> str:
    """The beginning of a long text: whole words, if the last of them is not most of it.

    >>> cut_short("it cannot be opened", 14), cut_short("it is /home/ann/models/one", 14)
    ('it cannot be …', 'it is /home/a…')
    """
    if len(text) <= longest:
        return text
    words = text[: longest - 1].rpartition(" ")[0]
    return f"{words} …" if len(words) > longest // 2 else f"{text[: longest - 1]}…"


def step_of(checkpoint: Path) -> int:
    """The step that a checkpoint was written after, by its name.

    >>> step_of(Path("checkpoints/step-00000045-0123456789abcdef.pt"))
    45
    """
    return int(checkpoint.name.split("-")[1])


def outcome_of_arm(run: SingleRun, rows: int) -> Outcome:
    """What the network as it stands says of the first held-out samples."""
    held_out = run.task.validation
    return run.outcome(run.validation, held_out.take(np.arange(min(rows, len(held_out)))))


def opened(folder: Path, model: str) -> Tuned:
    """What another process has tuned and saved; no code runs that the folder names and the user has not."""
    from hubscout.tuning import Tuned

    return Tuned.load(folder, allow_code=Identifier.parse(read_tuning(folder).model) == Identifier.parse(model))
