"""Rungs and budgets: how far arms are trained before they are judged, and how many of them the time allows.

The shares were chosen on public fine-tuning curves of others (`experiments/race`): a first rung below four percent of
the steps loses points whatever comes after it. After the first rung a model goes on with the better of its rates alone:
what a second rate of the same model would cost is worth more spent on another model. The rates of the winner are
compared once more on the last rung.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

SHARES = (0.05, 0.15, 0.37)
"""Of the steps of a whole run, cool-down included."""
RATE_FACTORS = (1.0, 4.0)
"""Learning rates of a model, in units of the one that a race starts with."""
WINNER_SHARE = 0.4
"""At most this much of the time that is left goes to the winner's own tuning: longer runs are made shorter."""
FEWEST_STEPS = 20
"""A run is not made shorter than this, whatever the budget."""
USABLE = 0.85
"""Of the time, for steps: the rest is for loading, looking and saving."""


@dataclass(frozen=True)
class Rung:
    """Up to `stable` the rate is constant; then it falls until `steps`."""

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
    total, before = float(rungs[-1].steps) if rungs and widths[0] else 0.0, 0
    for rung, width in zip(rungs, widths, strict=False):
        if width:
            total += width * (rung.steps - before)
            before = rung.stable
    return total + steps - before


def work_after(widths: Sequence[int], rungs: Sequence[Rung], steps: int, number: int) -> tuple[float, int]:
    """Steps of the rungs after one, and of the winner's end after the last of them.

    >>> work_after((34, 17, 12), rungs_of(300, 0.2), 300, 1)
    (900.0, 211)
    """
    total, before = 0.0, rungs[number].stable
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
        end = steps - max((rung.stable for rung, width in zip(rungs, widths, strict=False) if width), default=0)
        in_rungs = (work(widths, rungs, steps) - end) * mean + sum(widths) * self.per_look
        return in_rungs / self.side_by_side + (end + (self.ends - 1) * steps) * mean <= USABLE * self.seconds


def choose_field(models: Sequence[str], steps: int, cooldown: float, time: Time | None) -> Field:
    """The longest race that the time allows.

    `models` are in the order in which they would be given up last. Without a limit of time all start at all rates.
    """
    if time is not None:
        pace = sorted(time.per_step.values())[len(time.per_step) // 2]
        steps = min(steps, max(FEWEST_STEPS, int(WINNER_SHARE * time.seconds / max(time.ends * pace, 1e-9))))
    rungs = rungs_of(steps, cooldown)
    for widths in plans(len(models)):
        count = len(models) if widths[0] else widths[1]
        if time is None or time.allows(models[:count], widths, rungs, steps):
            break
    return Field(tuple(models[:count]), RATE_FACTORS if widths[0] else RATE_FACTORS[:1], steps, widths)
