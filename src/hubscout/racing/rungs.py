"""Rungs and budgets: how far arms are trained before they are judged, and how many of them the time allows.

The shares were chosen on public fine-tuning curves of others (`experiments/race`): a first rung below four percent of
the steps loses points whatever comes after it. After the first rung a model goes on with the better of its rates alone:
what a second rate of the same model would cost is worth more spent on another model. The rates of the winner are
compared once more on the last rung, because short runs do not tell which rate is best at the end, and with a still
higher one if the higher leads there (`experiments/race/rates.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from hubscout.runs.race_record import Look
from hubscout.tuning.time_budget import FORWARD_SHARE

if TYPE_CHECKING:
    from hubscout.runs.row import Row


SHARES = (0.05, 0.15, 0.37)
"""Of the steps of a whole run, cool-down included."""
RATE_FACTORS = (1.0, 4.0)
"""Learning rates of a model, in units of the one that a race starts with."""
HIGHER_FACTOR = 16.0
"""Tried for the winner alone, and only where the higher of its rates leads on its last rung and there is time."""
WINNER_SHARE = 0.4
"""At most this much of the time that is left goes to the winner's own tuning: longer runs are made shorter."""
FEWEST_LOOK_STEPS = 10
"""Models are not compared after fewer steps where time makes the run short: their evidence tells more (of 17 models
on four sets the first after ten steps lost 0.65 points, the first by LogME 0.30)."""
FEWEST_STEPS = 20
"""A run is not made shorter than this, whatever the budget."""
USABLE = 0.85
"""Of the time, for steps: the rest is for loading, looking and saving."""
BELIEVABLE = 3.0
"""Networks of equally many operations differ in their seconds by about so much."""
FAR_SLOWER = 3.0
"""A model that takes so many times as long per step as others is left out where that lets more of them start."""


@dataclass(frozen=True)
class Rung:
    """Up to `stable` the rate is constant, and the next rung goes on from there; then it falls until `steps`."""

    number: int
    stable: int
    steps: int

    def rows(self, batch_size: int) -> int:
        """Held-out samples worth looking at: a tenth of the rung's own work, a forward pass being a third of a step."""
        return max(100, math.ceil(0.3 * self.steps * batch_size))


def rungs_of(steps: int, cooldown: float) -> tuple[Rung, ...]:
    """The rungs of a run of so many steps; the end itself is none.

    >>> [(rung.stable, rung.steps) for rung in rungs_of(300, 0.2)]
    [(12, 15), (36, 45), (89, 111)]
    """
    found: list[Rung] = []
    for share in SHARES:
        length = max(2, round(share * steps))
        stable = length - max(1, round(cooldown * length))
        if length < steps and (not found or stable > found[-1].stable):
            found.append(Rung(len(found), stable, length))
    return tuple(found)


def plans(models: int) -> Iterator[tuple[int, ...]]:
    """How many arms are on each rung, from the longest race of so many models to the shortest.

    First all models at both rates, then each at its better one. Where that takes too long, models that lead by evidence
    start at one rate on the second rung: what the first rung shows is mostly what the evidence has said.

    >>> list(plans(3))
    [(6, 3, 3), (6, 3, 2), (6, 2, 1), (0, 3, 2), (0, 2, 2), (0, 1, 0)]
    """
    for last in range(models, math.ceil(models / 3) - 1, -1):
        yield len(RATE_FACTORS) * models, min(models, math.ceil(1.5 * last)), last
    for first in range(models, models // 2, -1):
        yield 0, first, min(2, first)
    for first in range(models // 2, 0, -1):
        yield 0, first, 0


def work(widths: Sequence[int], rungs: Sequence[Rung], steps: int) -> float:
    """Steps that a race with so many arms on its rungs takes, the winner's end and its other rate included.

    >>> work((34, 17, 12), rungs_of(300, 0.2), 300)
    2293.0
    """
    in_rungs, end = work_after(widths, rungs, steps)
    return in_rungs + end + (rungs[-1].steps if rungs and widths[0] else 0)


def work_after(widths: Sequence[int], rungs: Sequence[Rung], steps: int, number: int = -1) -> tuple[float, int]:
    """Steps of the rungs after one, and of the winner's end after the last of them.

    >>> work_after((34, 17, 12), rungs_of(300, 0.2), 300, 1)
    (900.0, 211)
    """
    total, before = 0.0, rungs[number].stable if number >= 0 else 0
    for rung, width in list(zip(rungs, widths, strict=False))[number + 1 :]:
        if width:
            total += width * (rung.steps - before)
            before = rung.stable
    return total, steps - before


@dataclass(frozen=True)
class Field:
    """Who starts, at which learning rates, how long a whole run is, and how many arms are on each rung."""

    models: tuple[str, ...]
    factors: tuple[float, ...]
    steps: int
    widths: tuple[int, ...]
    """A rung of no arms is passed without a look."""


@dataclass(frozen=True)
class Time:
    """What a race has and needs: `seconds` in all, seconds per step of each model, and seconds per look beside steps.

    `ends` whole runs come after the rungs; so many arms run `side_by_side`.
    """

    seconds: float
    per_step: Mapping[str, float]
    per_look: float = 0.0
    ends: float = 1.0
    side_by_side: int = 1

    def allows(self, models: Sequence[str], widths: Sequence[int], rungs: Sequence[Rung], steps: int) -> bool:
        """Whether a race of these models fits."""
        mean = sum(self.per_step[model] for model in models) / len(models)
        _, end = work_after(widths, rungs, steps)
        in_rungs = (work(widths, rungs, steps) - end) * mean + sum(widths) * self.per_look
        return in_rungs / self.side_by_side + (end + (self.ends - 1) * steps) * mean <= USABLE * self.seconds

    def of(self, models: Sequence[str]) -> Time:
        """The same for a race of these models alone."""
        return replace(self, per_step={model: self.per_step[model] for model in models})

    def far_slower(self, models: Sequence[str], started: Sequence[str]) -> dict[str, float]:
        """Which models take at least `FAR_SLOWER` times as long per step as those that start, and how many times."""
        usual = median(self.per_step[model] for model in started)
        times = {model: self.per_step[model] / max(usual, 1e-9) for model in models}
        return {model: ratio for model, ratio in times.items() if ratio >= FAR_SLOWER}


def choose_field(
    models: Sequence[str], steps: int, cooldown: float, time: Time | None, asked: int | None = None
) -> Field:
    """The longest race that the time allows, of runs of at most so many `steps`; a user may have `asked` for more.

    `models` are in the order in which they would be given up last. Without a limit of time all start at all rates.
    Models that are far slower than the others are left out where more can start without them; the first is left out
    only where it does not fit even alone.
    """
    asked = asked or steps
    best, rest = _longest(models, steps, cooldown, time, asked), list(models)
    while time is not None and len(rest) > 1:
        alone, _ = _longest(rest[:1], steps, cooldown, time.of(rest[:1]), asked)
        slowest = max(rest[1:] if alone else rest, key=time.per_step.__getitem__)
        rest.remove(slowest)
        found = _longest(rest, steps, cooldown, time.of(rest), asked)
        if not any(found[1].widths) or not time.far_slower([slowest], found[1].models):
            break  # where nobody is compared, the first by evidence is taken, however slow
        best = max(best, found, key=lambda one: (one[0], len(one[1].models), len(one[1].factors)))
    return best[1]


def _longest(models: Sequence[str], steps: int, cooldown: float, time: Time | None, asked: int) -> tuple[bool, Field]:
    """The longest race of the first so many models, and whether it fits: the shortest one is taken anyway."""
    if time is not None:
        pace = sorted(time.per_step.values())[len(time.per_step) // 2]
        steps = min(steps, max(FEWEST_STEPS, int(WINNER_SHARE * time.seconds / max(time.ends * pace, 1e-9))))
    rungs = rungs_of(steps, cooldown)
    possible = list(plans(len(models)))
    if steps < asked:
        possible += [(0, 0, first) for first in (*range(len(models), 1, -1), 0)]
        possible = [widths for widths in possible if _is_worth_it(widths, rungs)]
    for widths in possible:
        count = len(models) if widths[0] else max(widths[1:]) or 1
        fits = time is None or time.allows(models[:count], widths, rungs, steps)
        if fits:
            break
    return fits, Field(tuple(models[:count]), RATE_FACTORS if widths[0] else RATE_FACTORS[:1], steps, widths)


def _is_worth_it(widths: Sequence[int], rungs: Sequence[Rung]) -> bool:
    """Whether no arm is looked at after too few steps."""
    return all(rung.steps >= FEWEST_LOOK_STEPS for rung, width in zip(rungs, widths, strict=False) if width)


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
        rows = [look.evaluation_seconds / max(1, len(look.log_likelihoods)) for look in seen]
        return cls(median(look.seconds_per_step for look in seen), max(0.0, median(beside[-5:])), median(rows))


def steps_of(look: Look, looks: Sequence[Look]) -> int:
    """Steps that were trained for a look, at least: those since the rung before."""
    before = [other.steps for other in looks if other.arm == look.arm and other.rung < look.rung]
    return look.steps - max(before, default=0)


def seconds_per_step(rows: Iterable[Row], batch_size: int, probed: str, pace: Pace | None) -> dict[str, float]:
    """Of every model: from its speed when its features were extracted, by the one that was trained for a few steps."""
    by_name = {row.identifier: row for row in rows}
    known = [row.samples_per_second for row in by_name.values() if row.samples_per_second]
    usual = sorted(known)[len(known) // 2] if known else 100.0
    found = {name: batch_size / (row.samples_per_second or usual) / FORWARD_SHARE for name, row in by_name.items()}
    if pace is None:
        return found
    return {
        name: pace.step * _believable(seconds / found[probed], by_name[name].flops, by_name[probed].flops)
        for name, seconds in found.items()
    }


def _believable(ratio: float, flops: int | None, of_probed: int | None) -> float:
    """How many times as slow as the probed model, by extraction, but no further off than operations can explain.

    A model that has waited for its samples, or a device for its first kernels, seems fifty times as slow.
    """
    if not flops or not of_probed:
        return ratio
    explained = flops / of_probed
    return min(max(ratio, min(1.0, explained) / BELIEVABLE), max(1.0, explained) * BELIEVABLE)
