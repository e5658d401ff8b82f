"""How well scores agree with fine-tuning: what more than one table of the classification sets needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np
from outcomes import CLASSIFICATION, Outcome, outcomes

from hubscout.evaluation import weighted_tau

SETS = ("pets", "cifar10", "fashion-mnist", "sign-digits", "omniglot")
WEIGHTS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)
"""Nats for a factor e of capacity that are tried."""
SEEDS = 3

Candidate = TypeVar("Candidate")


def fine_tuned(rates: Collection[float] | None = None) -> dict[str, dict[str, Outcome]]:
    """Set → model → what fine-tuning gave, for the models that have more than one seed; `rates` as in `outcomes`."""
    found = outcomes(CLASSIFICATION / "references.jsonl", rates)
    return {s: {model: one for model, one in found[s].items() if len(one.tests) > 1} for s in SETS}


def between_seeds(found: Mapping[str, Outcome]) -> float:
    """How well one seed of fine-tuning predicts the others: no score can be expected to do better for long."""
    seeds = np.array([one.tests for one in found.values() if len(one.tests) == SEEDS])
    others = [np.delete(seeds, seed, axis=1).mean(axis=1) for seed in range(SEEDS)]
    return float(np.mean([weighted_tau(seeds[:, seed], other) for seed, other in enumerate(others)]))


def leave_one_out(candidates: Mapping[Candidate, Sequence[float]]) -> tuple[list[Candidate], list[float]]:
    """For each set, the candidate that is best on the other sets, and how it does on this one.

    >>> leave_one_out({"steady": [0.5, 0.5, 0.5], "wild": [0.9, 0.8, -0.9]})
    (['steady', 'steady', 'wild'], [0.5, 0.5, -0.9])
    """
    count = len(next(iter(candidates.values())))
    chosen = [max(candidates, key=lambda key: np.mean(np.delete(candidates[key], place))) for place in range(count)]
    return chosen, [candidates[key][place] for place, key in enumerate(chosen)]
