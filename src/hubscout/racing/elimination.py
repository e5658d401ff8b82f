"""Who stays in a race: the chance of each arm to be the best at the end, from what its rung showed and its evidence.

Arms are judged on the same held-out samples, and so compared in pairs: what is hard for all does not count. Two things
are uncertain. The held-out samples are a sample: they are drawn again, the same for all arms. And a rung is not the
end: arms change places on the way. How much they do, in deviations between arms, was measured on public fine-tuning
curves (`experiments/race/public_curves.py`); it falls from 0.9 after 4% of the steps to nearly nothing at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from hubscout.runs.race_record import TIED_ABOVE, Arm, Look

DRAWS = 2000
OUT_BELOW = 0.01
"""An arm with a smaller chance to be the best is given up, unless time for it was granted."""
MOST_FINALISTS = 3
MANY_ARMS = 10
"""Of fewer, all say how far arms lie apart: without its worst, two of three would seem far apart however close."""
FEWEST_ARMS = 5
"""To learn from fewer how far evidence can be trusted would be guessing."""
LEAST_VARIANCE = 0.001
"""Of arms about what their evidence says, in squared deviations between arms."""
_SHARE = (0.04, 0.06, 0.10, 0.16, 0.24, 0.36, 0.50, 0.70, 0.96)
_MOVES = (0.90, 0.74, 0.55, 0.40, 0.29, 0.19, 0.11, 0.05, 0.01)


def standardised(values: np.ndarray) -> np.ndarray:
    """In deviations from the median; what is missing is far below. The worst of ten does not stretch the scale."""
    there = values[np.isfinite(values)]
    if not len(there):
        return np.full(len(values), -9.0)
    return np.nan_to_num((values - np.median(there)) / _scale(there), nan=-9.0)


def _scale(values: np.ndarray) -> float:
    upper = values[values > np.quantile(values, 0.1)] if len(values) >= MANY_ARMS else values
    return (float(upper.std()) if len(values) > 2 and len(upper) > 1 else float(np.ptp(values))) or 1.0


def moves(share: float) -> float:
    """The deviation of an arm's place at the end from its place after this share of the steps.

    >>> moves(0.04), moves(1.0)
    (0.9, 0.01)
    """
    return float(np.interp(share, _SHARE, _MOVES))


def scores(looks: Sequence[Look], evidence: Mapping[str, float]) -> np.ndarray:
    """One number per arm, higher is better: metric and log-likelihood in equal parts, and the evidence of the model."""
    return _posterior(looks, evidence)[0]


def chances(looks: Sequence[Look], evidence: Mapping[str, float], share: float, seed: int = 0) -> np.ndarray:
    """P(best at the end) of each arm, after `share` of the steps."""
    found, trust = _posterior(looks, evidence)
    running = np.array([not look.failure for look in looks])
    if running.sum() <= 1:
        return running.astype(float)
    generator = np.random.default_rng(seed)
    table = _paired(looks)
    rows = table.shape[1]
    weights = generator.multinomial(rows, np.full(rows, 1 / rows), size=DRAWS) / rows
    level = table.mean(axis=1)
    noise = (weights @ table.T - level) / _scale(level) * np.sqrt(trust[running])
    # How far arms lie apart is itself learnt from these arms: of a few, hardly. Hence Student's t, one scale for all.
    freedom = int(running.sum()) - 1
    scale = moves(share) * np.sqrt(freedom / generator.chisquare(freedom, size=(DRAWS, 1)))
    draws = found[running] + noise + scale * generator.standard_normal(noise.shape)
    chance = np.zeros(len(looks))
    chance[running] = np.bincount(draws.argmax(axis=1), minlength=int(running.sum())) / DRAWS
    return chance


def survivors(
    looks: Sequence[Look], evidence: Mapping[str, float], share: float, most: int, seed: int = 0, fewest: int = 1
) -> list[Arm]:
    """The arms that go on, the best first: at most `most`, and after the first `fewest` none without a chance.

    Of arms that are alike, the one that came first stays ahead.
    """
    found, chance = scores(looks, evidence), chances(looks, evidence, share, seed)
    order = [place for place in np.argsort(-found, kind="stable") if not looks[place].failure]
    kept = [place for number, place in enumerate(order) if number < fewest or chance[place] >= OUT_BELOW]
    return [looks[place].arm for place in kept[:most]]


def one_rate_each(arms: Sequence[Arm]) -> list[Arm]:
    """The first arm of every model."""
    first: dict[str, Arm] = {}
    for arm in arms:
        first.setdefault(arm.model, arm)
    return list(first.values())


def better_rate(looks: Sequence[Look]) -> Arm:
    """The arm of a model that is ahead by log-likelihood, which told rates apart better than accuracy at every rung."""
    running = [look for look in looks if not look.failure and look.log_likelihoods] or list(looks)
    return max(running, key=lambda look: float(np.mean(look.log_likelihoods or -np.inf))).arm


def broken_by_rate(look: Look, earlier: Look) -> bool:
    """Whether an arm is worse, or has failed, where its model was better at another rate on an `earlier` rung."""
    if earlier.metric is None or look.metric is None:
        return earlier.metric is not None
    return earlier.metric > look.metric


def _posterior(looks: Sequence[Look], evidence: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """What is to be thought of each arm, and how much of that comes from the held-out samples (the rest: evidence).

    The prior is a line through the arms, held-out score against evidence, and how far arms lie from it. Where evidence
    does not tell who does well the line is flat and the prior says nothing; where there are many held-out samples their
    noise is small and the prior does not matter. No weight is chosen.
    """
    metric = np.array([np.nan if look.metric is None else look.metric for look in looks])
    likelihood = np.array([np.mean(look.log_likelihoods) if look.log_likelihoods else np.nan for look in looks])
    # Between two arms the two can cancel: a tie, in which rounding must not decide but the order so far.
    seen = np.round((standardised(metric) + standardised(likelihood)) / 2, 6)
    trust = np.ones(len(looks))
    told = np.array([evidence.get(look.arm.model, np.nan) for look in looks])
    known = np.array([not look.failure for look in looks]) & np.isfinite(told)
    if known.sum() < FEWEST_ARMS or not np.ptp(told[known]):
        return seen, trust
    table = _paired([look for look, there in zip(looks, known, strict=True) if there])
    noise = table.var(axis=1) / table.shape[1] / _scale(table.mean(axis=1)) ** 2
    x, y = told[known] - told[known].mean(), seen[known] - seen[known].mean()
    line = max(0.0, float(x @ y / (x @ x))) * x
    spread = float(((y - line) ** 2).sum() / (len(y) - 2) - noise.mean())
    trust[known] = 1 - noise / (noise + max(spread, LEAST_VARIANCE))
    found = seen.copy()
    found[known] = seen[known].mean() + line + trust[known] * (y - line)
    return found, trust


def _paired(looks: Sequence[Look]) -> np.ndarray:
    """Log-likelihoods of the arms that run, on the samples that all have: how hard a sample is does not count."""
    there = [look.log_likelihoods for look in looks if not look.failure]
    rows = min(len(values) for values in there)
    table = np.array([values[:rows] for values in there])
    return table - table.mean(axis=0)


def finalists(looks: Sequence[Look], evidence: Mapping[str, float], share: float, seed: int) -> list[Arm]:
    """The arms of a rung that may still be the best, those of the highest chance first."""
    if not looks:
        return []
    found = sorted(zip(chances(looks, evidence, share, seed), looks, strict=True), key=lambda pair: -pair[0])
    return [look.arm for chance, look in found if chance >= TIED_ABOVE and not look.failure][:MOST_FINALISTS]


def pooled(told: Mapping[Arm, Mapping[int, Look]], rung: int) -> list[Look]:
    """What the folds showed of each arm together: the mean of the metric, and the samples of all held-out parts.

    Folds that an arm was not judged on count for none: some are harder than others.
    """
    folds = sorted(set.intersection(*(set(looks) for looks in told.values())))
    together = []
    for arm, by_fold in told.items():
        looks = [by_fold[fold] for fold in folds]
        together.append(
            Look(
                arm=arm,
                rung=rung,
                steps=looks[0].steps,
                metric=fmean(look.metric for look in looks if look.metric is not None),
                log_likelihoods=tuple(value for look in looks for value in look.log_likelihoods),
                seconds=sum(look.seconds for look in looks[1:]),
            )
        )
    return together
