"""The time of a race: what was spent, what is left, and what the next piece of work will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from hubscout.runs.race_record import Look


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
