"""Which linear probes there is time for under a budget: numbers in, a choice out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PROBE_SHARE = 0.25
"""Of the time that is left before the first step: the longest linear probe that is measured on test too."""
PART_SHARE = 0.5
"""Of that time: what the linear probe may take that is fitted on as many train samples as there is time for."""
FEWEST_STEPS = 30
"""A run of fewer does not come up to a linear probe, from a new head: where there is no time for a whole probe either,
one on some of the train samples is the result."""
ALONE_SHARE = 0.8
"""Of the time that is left for such a result: what its fit may take by our estimate."""
FEWEST_PROBED = 50
"""Train samples without which there is no such probe."""


@dataclass(frozen=True)
class ProbeChoice:
    """Which linear probes are measured."""

    samples: int | None = None
    """None: those of the model and of its teachers, on the whole train split; else the model's own, fitted on so many
    train samples; 0 for none."""
    splits: tuple[str, ...] = ("validation",)
    """On which they are measured: on test, which is for comparing alone, only where that is a part of the time."""
    is_result: bool = False
    """Whether the model's own is the result, since there is no time for training that comes up to it."""


@dataclass(frozen=True)
class ProbeTime:
    """What decides on linear probes under a budget: how many samples there are, and how many seconds.

    Probes cost a third of an epoch, and are better than what a short run learns: they may take all of the time that is
    left. Where that is too short for them, the model's own is fitted on some of the train samples; where it is too
    short for training as well, that is the result, and has the time that validations would take.
    """

    train: int
    validation: int
    test: int
    weights: Sequence[float]
    """Of a pass of the model and of each teacher, in passes of the model."""
    known: Sequence[bool]
    """Of each, whether its features of train are there."""
    left: float
    """Seconds for probes and training; negative where there are none."""
    alone: float
    """Seconds for a probe that is the result, without the validations of training."""
    pace: float
    """Seconds per step of training."""

    @property
    def trains(self) -> bool:
        return self.left >= FEWEST_STEPS * self.pace

    @property
    def room(self) -> float:
        """Seconds for a probe on some of the train samples."""
        return PART_SHARE * self.left if self.trains else ALONE_SHARE * self.alone

    @property
    def last_room(self) -> float:
        """The same, however short the time is: without a probe, a step and validations would take so much."""
        return self.room if self.trains else max(self.room, self.alone - self.left + self.pace)

    @property
    def rows(self) -> float:
        """Samples of all probes, test left out."""
        missing = sum(weight for weight, known in zip(self.weights, self.known, strict=True) if not known)
        return sum(self.weights) * self.validation + missing * self.train

    def can_be_timed(self, per_sample: float) -> bool:
        """Whether there is time for the features of validation, by what a sample is thought to take."""
        return per_sample * min(self.rows, self.validation + FEWEST_PROBED) <= max(self.left, self.last_room)

    def choose(self, per_sample: float) -> ProbeChoice:
        """What is measured where the features of a sample take so many seconds."""
        if per_sample * self.rows <= self.left:
            tested = self.rows + sum(self.weights) * self.test
            on_test = per_sample * tested <= PROBE_SHARE * self.left
            return ProbeChoice(splits=("validation", "test") if on_test else ("validation",))
        for room in (self.room, self.last_room):
            samples = min(int(room / per_sample) - self.validation, self.train)
            if self.known[0] and (samples >= 0 or not self.trains):  # validation is all that is missing
                samples = self.train
            if samples >= min(FEWEST_PROBED, self.train):
                return ProbeChoice(samples, is_result=not self.trains)
        return ProbeChoice(samples=0)
