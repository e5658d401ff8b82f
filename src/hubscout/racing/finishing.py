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
            from hubscout.tuning.time_budget import fit_to_time

            fit_to_time(run, began + self.seconds - self.reserve, self.pace, self.longest)
        run.loop.run()
        tuned = run.finish()
        tuned.save(self.runner.folder / BEST)
        return None if self.elsewhere else tuned


def opened(folder: Path, model: str) -> Tuned:
    """What another process has tuned and saved; no code runs that the folder names and the user has not."""
    from hubscout.hubs import Identifier
    from hubscout.tuning import Tuned

    same = Identifier.parse(read_tuning(folder).model) == Identifier.parse(model)
    return Tuned.load(folder, allow_code=same)
