"""Who stays in a race: the chance of each arm to be the best at the end, from what its rung showed and its evidence.

Arms are judged on the same held-out samples, and so compared in pairs: what is hard for all does not count. Two things
are uncertain. The held-out samples are a sample: they are drawn again, the same for all arms. And a rung is not the
end: arms change places on the way. How much they do, in deviations between arms, was measured on public fine-tuning
curves (`experiments/race/public_curves.py`); it falls from 0.9 after 4% of the steps to nearly nothing at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hubscout.racing.arms import Arm, Look

DRAWS = 2000
OUT_BELOW = 0.01
"""An arm with a smaller chance to be the best is given up, whatever the budget."""
EVIDENCE_WEIGHTS = (0.3, 0.2, 0.1)
"""What a deviation of LogME counts beside one of the held-out scores, at the first rungs; later nothing."""
_SHARE = (0.04, 0.06, 0.10, 0.16, 0.24, 0.36, 0.50, 0.70, 0.96)
_MOVES = (0.90, 0.74, 0.55, 0.40, 0.29, 0.19, 0.11, 0.05, 0.01)


def standardised(values: np.ndarray) -> np.ndarray:
    """In deviations from the median; what is missing is far below. The worst tenth does not stretch the scale."""
    there = values[np.isfinite(values)]
    if not len(there):
        return np.full(len(values), -9.0)
    return np.nan_to_num((values - np.median(there)) / _scale(there), nan=-9.0)


def _scale(values: np.ndarray) -> float:
    upper = values[values > np.quantile(values, 0.1)]
    return (float(upper.std()) if len(values) > 2 and len(upper) > 1 else float(np.ptp(values))) or 1.0


def moves(share: float) -> float:
    """The deviation of an arm's place at the end from its place after this share of the steps.

    >>> moves(0.04), moves(1.0)
    (0.9, 0.01)
    """
    return float(np.interp(share, _SHARE, _MOVES))


def scores(looks: Sequence[Look], evidence: Mapping[str, float]) -> np.ndarray:
    """One number per arm, higher is better: metric and log-likelihood in equal parts, and the evidence of the model."""
    rung = max(look.rung for look in looks)
    metric = np.array([np.nan if look.metric is None else look.metric for look in looks])
    likelihood = np.array([np.mean(look.log_likelihoods) if look.log_likelihoods else np.nan for look in looks])
    return (standardised(metric) + standardised(likelihood)) / 2 + _prior(looks, evidence, rung)


def chances(looks: Sequence[Look], evidence: Mapping[str, float], share: float, seed: int = 0) -> np.ndarray:
    """P(best at the end) of each arm, after `share` of the steps."""
    found = scores(looks, evidence)
    running = np.array([not look.failure for look in looks])
    if running.sum() <= 1:
        return running.astype(float)
    generator = np.random.default_rng(seed)
    rows = min(len(look.log_likelihoods) for look in looks if not look.failure)
    table = np.array([look.log_likelihoods[:rows] for look in looks if not look.failure])
    table = table - table.mean(axis=0)  # paired: how hard a sample is does not count
    weights = generator.multinomial(rows, np.full(rows, 1 / rows), size=DRAWS) / rows
    means = weights @ table.T
    level = table.mean(axis=1)
    noise = (means - level) / _scale(level) + moves(share) * generator.standard_normal(means.shape)
    draws = found[running] + noise
    chance = np.zeros(len(looks))
    chance[running] = np.bincount(draws.argmax(axis=1), minlength=int(running.sum())) / DRAWS
    return chance


def survivors(
    looks: Sequence[Look], evidence: Mapping[str, float], share: float, most: int, seed: int = 0
) -> list[Arm]:
    """The arms that go on, the best first: at most so many, and none without a chance."""
    found, chance = scores(looks, evidence), chances(looks, evidence, share, seed)
    order = [place for place in np.argsort(-found, kind="stable") if not looks[place].failure]
    kept = [place for place in order if chance[place] >= OUT_BELOW] or order[:1]
    return [looks[place].arm for place in kept[:most]]


def _prior(looks: Sequence[Look], evidence: Mapping[str, float], rung: int) -> np.ndarray:
    if rung >= len(EVIDENCE_WEIGHTS) or len(evidence) < 3:
        return np.zeros(len(looks))
    models = list(evidence)
    place = dict(zip(models, standardised(np.array([evidence[model] for model in models])), strict=True))
    return EVIDENCE_WEIGHTS[rung] * np.array([place.get(look.arm.model, 0.0) for look in looks])
