"""Learning rates: which suit which data, how they fall over the steps of a run, and the search for one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hubscout.metric_texts import metric_text
from hubscout.tasks import task_metrics
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.tasks import Task
    from hubscout.tasks.task_metrics import Outcome
    from hubscout.tuning.default_method import Weighing
    from hubscout.tuning.divergence import LossWatch
    from hubscout.tuning.single_run import SingleRun


_TEXTS = ("text", "text-pair", "tokens")


@dataclass(frozen=True)
class Grid:
    """Learning rates × weight decays. Rates `beyond` are tried only next to the best one, where that is at an end.

    By default the paper's seven by seven for SGD, logarithmically spaced; `Grid.of` has those that suit a task.

    >>> len(list(Grid())), Grid().learning_rates[0], Grid().weight_decays[0]
    (49, 0.1, 1e-06)
    """

    learning_rates: tuple[float, ...] = tuple(float(f"{10 ** -(1 + k / 2):.6g}") for k in range(7))
    weight_decays: tuple[float, ...] = tuple(float(f"{10 ** -(6 - k / 2):.6g}") for k in range(7))
    beyond: tuple[float, ...] = ()

    @classmethod
    def of(cls, task: Task, optimizer: str = "auto") -> Grid:
        """The rates and decays that suit the inputs of a task and the optimiser that `tune` takes for it."""
        chosen = optimizer if optimizer != "auto" else default_optimizer(task.modality, task.kind)
        return rates_of(chosen, task.modality).grid

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return ((rate, decay) for rate in self.learning_rates for decay in self.weight_decays)

    def next_rate(self, tried: Collection[float], best: float) -> float | None:
        """The next rate past the best of those tried; None where it has one on both sides, or none is left.

        >>> Grid((0.1, 1.0), beyond=(0.01, 10.0)).next_rate([0.1, 1.0], best=1.0)
        10.0
        """
        if best == max(tried):
            return min((rate for rate in self.beyond if rate > best), default=None)
        if best == min(tried):
            return max((rate for rate in self.beyond if rate < best), default=None)
        return None


@dataclass(frozen=True)
class Rates:
    """Learning rates of the backbone that suit an optimiser and a kind of input; a new head has ten times them."""

    default: float
    first: float
    """What a race or a search tries first. Their rates stay constant for most of the steps: many networks break down at
    what is right for the top of a cosine."""
    grid: Grid
    """What a search tries."""


# The default: of 17 networks on seven sets (experiments/race) the median is 1.2 points below its best at 0.001 and 8 at
# 0.004.
_SGD = Rates(0.001, 0.0005, Grid())
# Decoupled decay is multiplied by the rate: below a hundredth it does nothing.
_DECOUPLED = (1e-4, 0.01, 0.1)
_ADAMW = Rates(3e-4, 3e-4, Grid((1e-4, 3e-4, 1e-3), _DECOUPLED, (1e-5, 3e-5, 3e-3)))
# Encoders collapse at rates that suit images: above a few 1e-4 the large ones say the same of every text.
_ADAMW_TEXT = Rates(5e-5, 5e-5, Grid((1e-5, 3e-5, 1e-4), _DECOUPLED, (1e-6, 3e-6, 3e-4, 1e-3)))


def default_optimizer(modality: str, kind: str) -> str:
    """AdamW for texts, and for numbers: SGD sees their squared errors times the size of the features, and diverges.

    >>> default_optimizer("image", "classification"), default_optimizer("image", "regression")
    ('sgd', 'adamw')
    """
    return "adamw" if modality in _TEXTS or kind_of(kind).is_real_valued else "sgd"


def default_warmup(kind: str) -> float:
    """A tenth of the steps for numbers, none for classes.

    Squared errors have no bound. At full rate the first step of a new head on a thousand positive features overshoots
    (for MobileNetV2 the loss went from 1.1 to 10), and the gradients of the second throw the backbone off.

    >>> default_warmup("regression"), default_warmup("classification")
    (0.1, 0.0)
    """
    return 0.1 if kind_of(kind).is_real_valued else 0.0


def rates_of(optimizer: str, modality: str) -> Rates:
    """The rates of an optimiser for a kind of input.

    >>> rates_of("adamw", "text").grid.learning_rates, rates_of("sgd", "image").default
    ((1e-05, 3e-05, 0.0001), 0.001)
    """
    return _SGD if optimizer == "sgd" else _ADAMW_TEXT if modality in _TEXTS else _ADAMW


def rate_factor(step: int, steps: int, schedule: str, warmup: float | None = None, cooldown: float = 0.2) -> float:
    """What the learning rates are multiplied by at a step, from 0.

    >>> [round(rate_factor(step, 4, "cosine"), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    >>> [round(rate_factor(step, 8, "wsd", warmup=0.25, cooldown=0.5), 3) for step in range(8)]
    [0.333, 0.667, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2]
    """
    rising = round((warmup or 0.0) * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    done = (step - rising) / max(steps - rising, 1)
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    if schedule == "wsd":
        falling = cooldown_steps(steps, cooldown)
        return cooled(step - (steps - falling), falling)
    if schedule == "step":
        return 1.0 if done < 0.6 else 0.1 if done < 0.85 else 0.01
    return 1.0


def cooldown_steps(steps: int, cooldown: float) -> int:
    """How many of a run's steps have a falling rate.

    >>> cooldown_steps(300, 0.2)
    60
    """
    return max(1, round(cooldown * steps))


def cooled(step: int, steps: int) -> float:
    """The factor at a step of a linear cool-down, whose first step is 0; before it 1.

    >>> [cooled(step, 4) for step in (-1, 0, 1, 2, 3)]
    [1.0, 0.8, 0.6, 0.4, 0.2]
    """
    return 1.0 if step < 0 else round(1 - (step + 1) / (steps + 1), 12)


FACTOR = 4.0
"""Between two rates that are tried, as in a race."""
TRIALS = 3
"""Rates that are tried."""
SHARE, LARGEST_SHARE = 0.05, 0.15
"""Of the steps of the run, for each rate: the smaller one, or up to the larger one where that is too few steps."""
ENOUGH_STEPS = 45
"""So many steps tell rates apart: chosen by 15, 300 steps end 1.2 points below the best of three rates, by 45 0.4
(experiments/default_tuning). In fewer steps the rate may rise once, not twice: short runs flatter high rates."""
FEWEST_STEPS = 200
"""Of a run: in a shorter one there is no search."""


CLEARLY = 2.0
"""Standard errors of the log-likelihood that a rate must be ahead by."""


@dataclass(frozen=True)
class RateChoice:
    """A learning rate of the backbone, and why it was chosen."""

    learning_rate: float
    reason: str


def steps_per_rate(steps: int) -> int:
    """How long each rate is tried in a run of so many steps; 0: too short a run for a search.

    >>> [steps_per_rate(steps) for steps in (100, 200, 300, 600, 2000)]
    [0, 30, 45, 45, 100]
    """
    if steps < FEWEST_STEPS:
        return 0
    return int(max(SHARE * steps, min(ENOUGH_STEPS, LARGEST_SHARE * steps)) + 1e-9)


def steps_beside_search(total: float, trials: int = TRIALS) -> int:
    """How long a run is that is as long as `total` steps together with its short runs; 0: too short for them.

    >>> [steps + TRIALS * steps_per_rate(steps) for steps in map(steps_beside_search, (300, 500, 3000))]
    [296, 500, 2998]
    """
    dear, cheap = (1 + trials * share for share in (LARGEST_SHARE, SHARE))
    steps = int(min(total / cheap, max(total / dear, total - trials * ENOUGH_STEPS)))
    return steps if steps_per_rate(steps) else 0


def first_rate(run: SingleRun) -> float:
    """The rate that is tried first."""
    return rates_of(run.arguments.optimizer, run.task.modality).first


def short_run(run: SingleRun, rate: float) -> Outcome:
    """What a run says of validation after a few steps at a rate; it stands where it stood afterwards."""
    arguments, steps = run.arguments, steps_per_rate(run.loop.steps)
    assert arguments.learning_rate is not None
    shape = (rate_factor(step, steps, "wsd", arguments.warmup, arguments.cooldown) for step in range(steps))
    with run.loop.branch([rate / arguments.learning_rate * height for height in shape]):
        return run.outcome(run.validation, run.task.validation)


def search_rate(run: SingleRun, weighing: Weighing | None = None) -> RateChoice:
    """Try three rates from the first step of a run, which stands there again afterwards.

    It climbs from a low rate: a rate four times as high takes its place only if its metric is better and the
    log-likelihood of the same samples by more than two standard errors. A small validation split cannot tell the rates
    apart, and a rate that is too high costs far more than one that is too low. A higher rate that diverges, or throws
    a network off that has learnt something by then, says nothing of those below it: half of it is tried in its place.
    After the deadline of the loop none is begun. The first was tried already where a `weighing` has left the teachers.
    """
    loop, steps = run.loop, steps_per_rate(run.loop.steps)
    name = task_metrics.primary(run.task.kind, run.task.target_names)
    rate = chosen = first_rate(run)
    found: dict[float, Outcome] = {}
    told: dict[float, str] = {}
    doubts: dict[float, str] = {}
    left, halved, late = TRIALS, False, False
    while left:
        known = weighing.outcome if weighing is not None and not told else None
        outcome = short_run(run, rate) if known is None else known
        finite, is_late = bool(np.isfinite(outcome.predicted).all()), loop.is_late
        told[rate] = f"{metric_text(name, outcome.primary)} at {rate:g}" if finite else f"divergence at {rate:g}"
        fails = rate > chosen and not halved and (not finite or _throws_off(loop.watch, outcome, found[chosen]))
        if fails and not is_late:
            rate, halved = round_rate(rate / 2), True
            continue
        left -= 1
        if finite and chosen in found:
            doubts[rate] = why_not_clearly_ahead(outcome, found[chosen], loop.network.loss.scale)
        climbs = finite and not doubts.get(rate)
        if finite:
            found[rate] = outcome
        if climbs:
            chosen = rate
            if halved:
                break
        if found and is_late and (left or fails):  # they take longer than was planned
            late = True
            break
        higher = round_rate(FACTOR * rate)
        rises = climbs and higher not in told and (len(told) == 1 or steps >= ENOUGH_STEPS)
        rate = higher if rises else round_rate(min(told) / FACTOR)
    tried = "" if weighing is None else f"{weighing.told} "
    taught = " with the teachers" if weighing is not None and run.teachers else ""
    values = ", ".join(told[r] for r in sorted(told))
    tried += f"Short runs of {steps} steps{taught} gave a validation {name} of {values}."
    tried += " There is no time to try others." if late else ""
    if not found:
        return RateChoice(min(told), f"{tried} The run continues with the lowest.")
    best = max(found, key=lambda rate: (found[rate].primary, rate == chosen))
    if best != chosen:
        return RateChoice(
            chosen, f"{tried} {best:g} is {doubts[best]}: the run continues with learning_rate={chosen:g}."
        )
    return RateChoice(chosen, f"{tried} The run continues with the best, learning_rate={chosen:g}.")


def _throws_off(watch: LossWatch, one: Outcome, other: Outcome) -> bool:
    """Whether the first is no better than guessing where the other has learnt something: it says the same of all."""
    return watch.is_above_guessing(other.primary) and not watch.is_above_guessing(one.primary)


def why_not_clearly_ahead(one: Outcome, other: Outcome, scale: np.ndarray | None) -> str:
    """Why the first is not clearly ahead of the other; empty if it is."""
    return why_not_ahead(one.primary - other.primary, one.log_likelihoods(scale) - other.log_likelihoods(scale))


def why_not_ahead(lead: float, gains: np.ndarray) -> str:
    """Why a rate is not clearly ahead of another, in words; empty if it is.

    `lead` is how far its metric is ahead, and `gains` what its log-likelihoods are higher by, sample by sample. They
    tell rates apart long before the metric does: a network that has hardly begun gets few samples right.

    >>> why_not_ahead(0.01, np.array([0.1, 0.2, 0.3])), why_not_ahead(0.02, np.array([-0.4, 0.1, 0.1]))
    ('', 'ahead, but not clearly so in log-likelihood (-0.0667 ± 0.1361)')
    """
    if not lead > 0:  # nor where it is NaN
        return "not ahead"
    gain, noise = float(gains.mean()), float(gains.std() / len(gains) ** 0.5)
    if gain <= CLEARLY * noise:
        return f"ahead, but not clearly so in log-likelihood ({gain:+.4f} ± {noise:.4f})"
    return ""


def round_rate(rate: float) -> float:
    """A rate with the digits that a person would give.

    >>> round_rate(0.003 / 3)
    0.001
    """
    return float(f"{rate:.3g}")
