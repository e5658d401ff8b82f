"""The last stretch of a run: train it to its end or to the end of the time, measure it, save it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hubscout.engines import report
from hubscout.racing.arms import Runner
from hubscout.racing.floor import Floor
from hubscout.racing.race_journal import BEST
from hubscout.tasks.task_metrics import Outcome
from hubscout.tuning.time_budget import fit_to_time, shorten

if TYPE_CHECKING:
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
    row: float = 0.0
    """Seconds per sample that is measured, as far as is known."""
    elsewhere: bool = False
    """Whether this is another process than that of the race: what is tuned stays on the disk."""
    floor: Floor | None = None
    """The linear probe of the model; where training does not come up to it, it is taken."""
    trains: bool = True
    """False takes the probe as it is."""
    from_probe: bool = False
    """Whether training starts from the probe: where there is no time for rungs there is time for few steps."""

    def __call__(self) -> Tuned | None:
        from hubscout.tuning.tuning_run import finish

        began = time.perf_counter()
        run = self.runner.live()
        run.observer = run.loop.observer = report
        run.loop.deadline = None
        if self.trains:
            fresh = run.loop.train_state.step == 0 and run.arguments.ema is None  # an average would begin elsewhere
            if self.floor is not None and self.from_probe and fresh:
                self.floor.start(run)
            if self.seconds is not None:
                fit_to_time(run, began + self.seconds - self.reserve, max(self.pace, 1e-9), self.longest)
            run.loop.run()
        if self.floor is not None and not self.trains:
            self.floor.give_to(run, reached=self.floor.metric)
            run.note("The result is the linear probe of the frozen features, with the backbone as it was.")
            self._take_as_known(run, self.floor, began)
        elif self.floor is not None:
            self.floor.reached_by(run)
        if made := run.loop.train_state.step:
            run.arguments = run.arguments.replace(steps=made)
        if self.seconds is not None:  # training leaves time for all of test, unless that is over before
            left = began + self.seconds - time.perf_counter()
            held_out = 0 if run.known else len(run.task.validation)
            shorten(run, "test", int(left / max(self.row, 1e-9)) - held_out)
        tuned = finish(run)
        tuned.save(self.runner.folder / BEST)
        return None if self.elsewhere else tuned

    def _take_as_known(self, run: SingleRun, floor: Floor, began: float) -> None:
        """What a probe was seen to say of held-out samples: of all of them, or of as many as there was time for."""
        held_out = run.task.validation
        over = self.seconds is not None and began + self.seconds - time.perf_counter() < self.row * len(held_out)
        if floor.predicted is None or not len(run.task.test) or not (over or floor.held_out >= len(held_out)):
            return
        part = held_out.take(np.arange(floor.held_out))
        run.task = replace(run.task, splits={**run.task.splits, "validation": part})
        run.known = {"validation": Outcome.of(run.task, part, floor.predicted)}
