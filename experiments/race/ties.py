"""Two arms of which one is more often right and the other likelier: metric and log-likelihood cancel. Whom to take?

All pairs of arms of different models on fold 0, on each of the three rungs; judged by which ends higher on test.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from replay import BATCH, COOLDOWN, FIRST_RATE, FLOOR, LOOKS_AT, SETS, STEPS, Measured, measured

from hubscout.racing.rungs import RATE_FACTORS, Rung, rungs_of

RULES = ("accuracy", "log-likelihood", "sum of paired z-scores", "evidence", "the order so far")


@dataclass(frozen=True)
class Pair:
    """The first of two arms less the second."""

    metric: float
    likelihood: float
    z_scores: float
    """The paired differences over their standard errors, added."""
    evidence: float
    end: float
    """Test accuracy after all steps."""

    @property
    def tied(self) -> bool:
        return self.metric * self.likelihood < 0


def pairs(on: Measured) -> Iterator[list[Pair]]:
    """Each pair of arms, rung by rung."""
    rungs, end = rungs_of(STEPS, COOLDOWN)[:3], f"rung{STEPS}_test"
    arms = [(model, FIRST_RATE * factor) for model in on.models for factor in RATE_FACTORS]
    for a, b in itertools.combinations((arm for arm in arms if end in on.arms[0][arm]), 2):
        if a[0] != b[0]:
            yield [pair(on, a, b, rung) for rung in rungs]


def pair(on: Measured, a: tuple[str, float], b: tuple[str, float], rung: Rung) -> Pair:
    name, rows = f"rung{LOOKS_AT[rung.number]}", min(on.held_out, rung.rows(BATCH))
    ours, theirs = on.arms[0][a], on.arms[0][b]
    right = ours[f"{name}_right"][:rows].astype(float) - theirs[f"{name}_right"][:rows]
    kept = [np.maximum(each[f"{name}_loglik"][:rows].astype(float), FLOOR) for each in (ours, theirs)]
    likelihood = kept[0] - kept[1]
    z_scores = sum(each.mean() / max(float(each.std()), 1e-9) * rows**0.5 for each in (right, likelihood))
    places = [on.models.index(model) for model, _ in (a, b)]
    end = float(ours[f"rung{STEPS}_test"]) - float(theirs[f"rung{STEPS}_test"])
    evidence = on.logme[places[0]] - on.logme[places[1]]
    return Pair(float(right.mean()), float(likelihood.mean()), float(z_scores), float(evidence), end)


def judged(on: Measured) -> dict[str, list[tuple[float, float]]]:
    """Rule → for each tie, whether the worse arm was taken, and the points lost by that."""
    found: dict[str, list[tuple[float, float]]] = {rule: [] for rule in RULES}
    for climbed in pairs(on):
        ahead = climbed[0].evidence  # the order of the start
        for one in climbed:
            if one.tied:
                votes = (one.metric, one.likelihood, one.z_scores, one.evidence, ahead)
                for rule, vote in zip(RULES, votes, strict=True):
                    lost = 100 * max(0.0, -one.end if vote > 0 else one.end)
                    found[rule].append((float(lost > 0), lost))
            elif one.metric + one.likelihood:
                ahead = one.likelihood or one.metric
    return found


def lines() -> list[list[str]]:
    """Rule, share of ties in which it takes the worse arm, points lost: means over the sets, and leave-one-set-out."""
    by_set = [{rule: np.mean(each, axis=0) for rule, each in judged(measured(name)).items()} for name in SETS]
    rows = [[rule, *_told(np.mean([found[rule] for found in by_set], axis=0))] for rule in RULES]
    for column, criterion in enumerate(("the fewest worse arms", "the fewest points lost")):
        left_out = []
        for number, found in enumerate(by_set):
            others = [each for place, each in enumerate(by_set) if place != number]
            rule = min(RULES, key=lambda rule: np.mean([each[rule][column] for each in others]))
            left_out.append(found[rule])
        rows.append([f"chosen on six sets by {criterion}, judged on the seventh", *_told(np.mean(left_out, axis=0))])
    return rows


def _told(means: np.ndarray) -> list[str]:
    return [f"{means[0]:.2f}", f"{means[1]:.2f}"]
