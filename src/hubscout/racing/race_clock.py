"""The time of a race: what was spent, what is left, and what the next work will take on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from hubscout.errors import InterruptedRunError
from hubscout.racing.arms import Runner, evaluate_arm
from hubscout.runs.race_record import Look

if TYPE_CHECKING:
    from hubscout.ranking import Ranking


@dataclass
class Clock:
    """`seconds` is the budget, None without one; `before` was spent by earlier calls on the same race."""

    seconds: float | None
    started: float = field(default_factory=time.perf_counter)
    before: float = 0.0

    @property
    def spent(self) -> float:
        """Seconds since the race began, those of earlier calls included."""
        return self.before + time.perf_counter() - self.started

    @property
    def left(self) -> float | None:
        """Seconds that are left; None where there is no limit."""
        return None if self.seconds is None else max(0.0, self.seconds - self.spent)


@dataclass(frozen=True)
class Pace:
    """What looks at arms have taken so far."""

    step: float
    """Seconds per step of training; the median over arms."""
    look: float
    """Seconds of a look beside training: opening a model, judging, saving; the median of the last five."""
    row: float
    """Seconds per held-out sample."""

    @classmethod
    def of(cls, looks: Sequence[Look], model: str | None = None) -> Pace | None:
        """That of all looks, or of one model's; None where there are none."""
        seen = [look for look in looks if look.seconds_per_step > 0 and model in (None, look.arm.model)]
        if not seen:
            return None
        beside = [look.seconds - look.seconds_per_step * steps_of(look, looks) for look in seen]
        rows = [look.judging_seconds / max(1, len(look.log_likelihoods)) for look in seen]
        return cls(median(look.seconds_per_step for look in seen), max(0.0, median(beside[-5:])), median(rows))


def steps_of(look: Look, looks: Sequence[Look]) -> int:
    """Steps that were trained for a look, at least: those since the rung before."""
    before = [other.steps for other in looks if other.arm == look.arm and other.rung < look.rung]
    return look.steps - max(before, default=0)


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
        from hubscout.tuning.time_budget import PACE_STEPS

        began = time.perf_counter()
        try:
            run = self.runner.begin(None)
            run.loop.run(until=PACE_STEPS)
            per_step = run.loop.seconds_per_step
            evaluate_arm(run, self.rows)
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
    factor = 1.0 if speed is None else speed.per_step / found[probed]
    return {model: factor * seconds for model, seconds in found.items()}
