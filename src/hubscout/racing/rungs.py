"""Rungs and budgets: how far arms are trained before they are judged, and how many of them the time allows.

The shares were chosen on public fine-tuning curves of others (`experiments/race`): a first rung below four percent of
the steps loses points whatever comes after it; a third of the arms going on is as good as a half and costs less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ETA = 3
"""One of so many arms goes on to the next rung."""
SHARES = (0.05, 0.15, 0.37)
"""Of the steps of a whole run, cool-down included."""
RATE_FACTORS = (1.0, 0.25, 4.0)
"""Learning rates around the default, in the order in which they are worth trying."""
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


def work(arms: int, rungs: Sequence[Rung], steps: int) -> float:
    """Steps that a race of so many arms takes, the winner's end included.

    >>> work(51, rungs_of(300, 0.2), 300)
    1987.0
    """
    total, before, alive = 0.0, 0, arms
    for rung in rungs:
        total += alive * (rung.steps - before)
        before, alive = rung.stable, max(1, math.ceil(alive / ETA))
    return total + steps - before


def work_after(arms: int, rungs: Sequence[Rung], steps: int, number: int) -> tuple[float, int]:
    """Steps of the rungs after one that so many arms are on, and of the winner's end after the last of them.

    >>> work_after(9, rungs_of(300, 0.2), 300, 0)
    (174.0, 211)
    """
    total, before, alive = 0.0, rungs[number].stable, max(1, math.ceil(arms / ETA))
    for rung in rungs[number + 1 :]:
        if alive == 1:
            break
        total += alive * (rung.steps - before)
        before, alive = rung.stable, max(1, math.ceil(alive / ETA))
    return total, steps - before


@dataclass(frozen=True)
class Field:
    """Who starts, at which learning rates, and how long a whole run is."""

    models: tuple[str, ...]
    factors: tuple[float, ...]
    steps: int


def choose_field(
    models: Sequence[str],
    seconds_per_step: Mapping[str, float],
    steps: int,
    seconds: float | None,
    cooldown: float,
    *,
    ends: float = 1.0,
    side_by_side: int = 1,
) -> Field:
    """As much as the time allows: three rates, else two, else one, else fewer models, the last ones given up first.

    `models` are in the order in which they would be given up last. Without a limit of time all start at all rates.
    `ends` whole runs follow the rungs; so many arms run `side_by_side`.
    """
    if seconds is None:
        return Field(tuple(models), RATE_FACTORS, steps)
    pace = sorted(seconds_per_step.values())[len(seconds_per_step) // 2]
    steps = min(steps, max(FEWEST_STEPS, int(WINNER_SHARE * seconds / max(ends * pace, 1e-9))))
    rungs = rungs_of(steps, cooldown)
    wanted = [(len(models), rates) for rates in (3, 2, 1)] + [(count, 1) for count in range(len(models) - 1, 0, -1)]
    for count, rates in wanted:
        mean = sum(seconds_per_step[model] for model in models[:count]) / count
        end = steps - (rungs[-1].stable if rungs else 0)
        in_rungs = work(count * rates, rungs, steps) - end
        if (in_rungs / side_by_side + end + (ends - 1) * steps) * mean <= USABLE * seconds:
            break
    return Field(tuple(models[:count]), RATE_FACTORS[:rates], steps)
