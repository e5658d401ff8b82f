"""Finalists on several folds: each sample is held out once, and the luck of one split and one run counts less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from hubscout.racing.elimination import chances
from hubscout.runs.race_record import Arm, Look

MOST_FINALISTS = 3
TIED_ABOVE = 0.05
"""An arm with a smaller chance to be the best is not worth further folds."""


def finalists(looks: Sequence[Look], evidence: Mapping[str, float], share: float, seed: int) -> list[Arm]:
    """The arms of a rung that may still be the best, those of the highest chance first."""
    if not looks:
        return []
    found = sorted(zip(chances(looks, evidence, share, seed), looks, strict=True), key=lambda pair: -pair[0])
    return [look.arm for chance, look in found if chance >= TIED_ABOVE and not look.failure][:MOST_FINALISTS]


def pooled(looks: Sequence[Look], rung: int) -> Look:
    """What all folds showed of an arm together: the mean of the metric, and the samples of all held-out parts."""
    first = looks[0]
    return Look(
        arm=first.arm,
        rung=rung,
        steps=first.steps,
        metric=fmean(look.metric for look in looks if look.metric is not None),
        log_likelihoods=tuple(value for look in looks for value in look.log_likelihoods),
        seconds=sum(look.seconds for look in looks[1:]),
        seconds_per_step=0.0,
    )
