"""To the end of a run in the time that is left: the winner's, and what comes after it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubscout.engines import report
from hubscout.racing.arms import Runner
from hubscout.racing.placing import BEST
from hubscout.runs.tuning_record import read_tuning

if TYPE_CHECKING:
    from pathlib import Path

    from hubscout.tuning import Tuned
    from hubscout.tuning.single_run import SingleRun


@dataclass(frozen=True)
class Finish:
    """Train a run from where it stands to its end, measure it and save it in its folder's `best`: a job."""

    runner: Runner
    pace: float = 0.0
    """Seconds per step, as far as is known."""
    seconds: float | None = None
    """For everything; a run that would take longer is made shorter."""
    longest: int = 0
    """Steps that a run is made longer to, where there is time: the rungs were those of a shorter one."""
    reserve: float = 0.0
    """Of `seconds`: for measuring and saving."""
    elsewhere: bool = False
    """Whether this is another process than that of the race: what is tuned stays on the disk."""

    def __call__(self) -> Tuned | None:
        began = time.perf_counter()
        run = self.runner.live()
        run.observer = run.loop.observer = report
        run.loop.deadline = None
        if self.seconds is not None:
            fit_to_time(run, began + self.seconds - self.reserve, self.pace, self.longest)
        run.loop.run()
        tuned = run.finish()
        tuned.save(self.runner.folder / BEST)
        return None if self.elsewhere else tuned


def fit_to_time(run: SingleRun, end: float, pace: float, longest: int = 0) -> None:
    """Train at the constant rate as long as there is time for a cool-down after it, and let the run end with that.

    A run with a constant rate can end at any step: a cool-down of its usual share makes it a whole one.
    """
    from hubscout.tuning.schedule import cooldown_steps

    loop, share = run.loop, run.arguments.cooldown
    began, first = time.perf_counter(), loop.train_state.step
    if first < loop.steps - cooldown_steps(loop.steps, share):
        length = min(max(longest, loop.steps), first + int(max(0.0, end - began) / max(pace, 1e-9)))
        if first:
            loop.arguments = loop.arguments.replace(warmup=0.0)  # that of a longer run would begin once more
        loop.steps = max(loop.steps, length)
        stable = loop.steps - cooldown_steps(loop.steps, share)
        loop.deadline = end - pace * cooldown_steps(length, share)
        loop.run(until=stable)
        step, now = loop.train_state.step, time.perf_counter()
        room = int(max(0.0, end - now) / max((now - began) / (step - first), 1e-9))
        falling = max(1, min(loop.steps - step, round(step * share / (1 - share)), room))
        loop.steps = step + falling
        loop.arguments = loop.arguments.replace(cooldown=falling / loop.steps)
    loop.deadline = end


def opened(folder: Path, model: str) -> Tuned:
    """What another process has tuned and saved; no code runs that the folder names and the user has not."""
    from hubscout.hubs import Identifier
    from hubscout.tuning import Tuned

    same = Identifier.parse(read_tuning(folder).model) == Identifier.parse(model)
    return Tuned.load(folder, allow_code=same)
