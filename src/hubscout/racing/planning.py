"""Who starts, and how far they go, from how fast the models train on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubscout.racing.arms import Runner, judge

if TYPE_CHECKING:
    from hubscout.ranking import Ranking


@dataclass(frozen=True)
class Speed:
    """What a model takes: seconds per step, and per look beside its steps."""

    per_step: float
    per_look: float


@dataclass(frozen=True)
class Probe:
    """Train a model for a few steps, which are thrown away, to see how fast it is: a job."""

    runner: Runner
    rows: int
    """Held-out samples of a look."""

    def __call__(self) -> Speed | None:
        from hubscout.errors import InterruptedRunError
        from hubscout.tuning.time_budget import PACE_STEPS

        began = time.perf_counter()
        try:
            run = self.runner.begin(None)
            run.loop.run(until=PACE_STEPS)
            per_step = run.loop.seconds_per_step
            judge(run, self.rows)
        except InterruptedRunError as error:
            raise KeyboardInterrupt from error
        except Exception:  # a model that cannot be trained shows that in the race, where it is said
            return None
        return Speed(per_step, max(0.0, time.perf_counter() - began - PACE_STEPS * per_step))


def seconds_per_step(ranking: Ranking, batch_size: int, probed: str, speed: Speed | None) -> dict[str, float]:
    """Of every model: from its speed when its features were extracted, by the one that was trained for a few steps."""
    from hubscout.tuning.time_budget import FORWARD_SHARE

    known = [row.samples_per_second for row in ranking if row.samples_per_second]
    usual = sorted(known)[len(known) // 2] if known else 100.0
    found = {row.identifier: batch_size / (row.samples_per_second or usual) / FORWARD_SHARE for row in ranking}
    return found if speed is None else scaled(found, speed.per_step / found[probed])


def scaled(values: Mapping[str, float], factor: float) -> dict[str, float]:
    """All values times a factor."""
    return {name: factor * value for name, value in values.items()}
