"""Policies replayed on what `run.py` measured: whom each would have chosen, and at what cost.

Costs are counted in training steps of all models alike, a forward pass over a batch being a third of one; brute force,
five rates for every model, is 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import weightedtau

RESULTS = Path(__file__).resolve().parent / "results"
SETS = ("pets", "cifar10", "pets-few", "cifar10-few", "fashion-mnist", "sign-digits", "omniglot")
FAR = ("fashion-mnist", "sign-digits", "omniglot")
"""Sets whose images are far from the photographs that the models were trained on."""
STEPS, BATCH, RUNGS = 300, 64, (15, 45, 110, 300)
BRUTE_FORCE_RATES = 5
STABLE = 0.8
"""Share of a rung's steps before its cool-down: where an arm goes on from."""
LEAST_SEEDS = 3
FLOOR = -6.0
"""Log-likelihoods below count as this: one sample that is surely wrong must not decide."""

_RUN = re.compile(r"(?P<model>.+)-(?P<rate>[\d.e-]+)-fold(?P<fold>\d)-(?P<schedule>wsd|cosine)-seed(?P<seed>\d+)")


@dataclass(frozen=True)
class Measured:
    """One set: the models with at least three fresh seeds, in the order of `models`."""

    name: str
    models: tuple[str, ...]
    truth: np.ndarray
    """Mean test accuracy over fresh seeds, at the rate that brute force chose."""
    brute_force: np.ndarray
    """Best validation accuracy over five rates."""
    train: int
    held_out: int
    arms: Mapping[tuple[str, float], Mapping[str, np.ndarray]]
    logme: np.ndarray
    params: np.ndarray
    flops: np.ndarray

    @property
    def whole(self) -> float:
        """Steps of brute force."""
        return float(len(self.models) * BRUTE_FORCE_RATES * STEPS)

    @property
    def evidence_cost(self) -> float:
        """One pass of every model over the train rows, in steps."""
        return len(self.models) * self.train / BATCH / 3

    def judge(self, score: np.ndarray) -> tuple[float, float]:
        """Weighted tau, and the points that are lost by taking the first."""
        tau = weightedtau(self.truth, score, rank=None).statistic
        return float(tau), float(100 * (self.truth.max() - self.truth[int(np.argmax(score))]))


@cache
def measured(name: str) -> Measured:
    """Read the results of a set."""
    runs: dict[str, dict[str, np.ndarray]] = {}
    with np.load(RESULTS / f"{name}.npz") as file:
        for key in file:
            run, _, what = key.rpartition("/")
            runs.setdefault(run, {})[what] = file[key]
    truth: dict[str, list[float]] = {}
    brute: dict[str, list[float]] = {}
    arms: dict[tuple[str, float], dict[str, np.ndarray]] = {}
    for run, kept in runs.items():
        found = _RUN.fullmatch(run)
        assert found is not None
        model, rate, seed = found["model"], float(found["rate"]), int(found["seed"])
        if found["schedule"] == "wsd" and found["fold"] == "0":
            arms[model, rate] = kept
        elif found["schedule"] == "cosine" and "failure" not in kept:
            if seed:
                truth.setdefault(model, []).append(float(kept["end_test"]))
            else:
                brute.setdefault(model, []).append(float(kept["end_right"].mean()))
    models = tuple(sorted(model for model, tests in truth.items() if len(tests) >= LEAST_SEEDS))
    evidence = evidence_of(name)
    held_out = len(next(kept["rung15_right"] for kept in arms.values() if "rung15_right" in kept))
    return Measured(
        name=name,
        models=models,
        truth=np.array([np.mean(truth[model]) for model in models]),
        brute_force=np.array([max(brute[model]) for model in models]),
        train=4 * held_out,
        held_out=held_out,
        arms=arms,
        logme=np.array([evidence[model]["logme"] for model in models]),
        params=np.array([evidence[model]["params"] for model in models], dtype=float),
        flops=np.array([evidence[model]["flops"] for model in models], dtype=float),
    )


def evidence_of(name: str) -> dict[str, dict[str, float]]:
    """Model → LogME and sizes. Large sets have LogME of all their train images, from the classification experiment."""
    known = json.loads((RESULTS / "evidence.json").read_text())
    if name in known:
        return known[name]
    file = RESULTS.parents[1] / "classification" / "results" / "scores" / f"{name}-layers.json"
    rows = json.loads(file.read_text())["rows"]
    sizes = next(iter(known.values()))
    return {model: {**sizes[model], "logme": rows[model]["scores"]["logme"]} for model in sizes}


def standardised(values: np.ndarray) -> np.ndarray:
    """In deviations from the median; what is missing is far below, and the worst tenth does not stretch the scale."""
    there = values[np.isfinite(values)]
    scale = there[there > np.quantile(there, 0.1)].std() if len(there) > 2 else 0.0
    return np.nan_to_num((values - np.median(there)) / (scale or 1.0), nan=-9.0)


Plan = Sequence[tuple[int, int]]
"""Rungs, and how many arms are in each."""


@dataclass(frozen=True)
class Outcome:
    """What a policy gives on a set."""

    tau: float
    lost: float
    cost: float


def race(on: Measured, plan: Plan, *, prior: Sequence[float], score: str = "both", rows_per_step: int = 20) -> Outcome:
    """Successive halving over model × rate, arms going on from where they were; see `hubscout.racing`.

    `prior` weighs LogME at each rung. Arms are judged on at most `rows_per_step` held-out samples per step of the rung.
    """
    evidence = dict(zip(on.models, standardised(on.logme), strict=True))
    rates = sorted({rate for _, rate in on.arms})
    wanted = plan[0][1]
    if wanted >= len(rates) * len(on.models):
        arms = [(model, rate) for model in on.models for rate in rates]
    else:
        first = sorted(on.models, key=lambda model: -evidence[model])[:wanted]
        arms = [(model, rates[len(rates) // 2]) for model in first]
    standing = {model: -1e3 + evidence[model] for model in on.models}
    cost, before = on.evidence_cost, 0.0
    for number, (rung, most) in enumerate(plan):
        arms = arms[:most]
        rows = min(on.held_out, rows_per_step * rung)
        cost += len(arms) * (rung - before + rows / BATCH / 3)
        before = STABLE * rung
        total = _values(on, arms, rung, rows, score) + prior[number] * np.array([evidence[model] for model, _ in arms])
        order = np.argsort(-total, kind="stable")
        for model in {model for model, _ in arms}:
            standing[model] = max(
                100.0 * (number + 1) + total[place] for place, arm in enumerate(arms) if arm[0] == model
            )
        arms = [arms[place] for place in order]
    cost += STEPS - before
    tau, lost = on.judge(np.array([standing[model] for model in on.models]))
    return Outcome(tau, lost, cost / on.whole)


def _values(on: Measured, arms: Sequence[tuple[str, float]], rung: int, rows: int, score: str) -> np.ndarray:
    def mean(what: str) -> np.ndarray:
        name = f"rung{rung}_{what}"
        found = [
            np.maximum(on.arms[arm][name][:rows].astype(float), FLOOR).mean() if name in on.arms[arm] else np.nan
            for arm in arms
        ]
        return standardised(np.array(found))

    if score == "accuracy":
        return mean("right")
    if score == "log-likelihood":
        return mean("loglik")
    return (mean("right") + mean("loglik")) / 2


def top_k(on: Measured, score: np.ndarray, k: int, cost: float) -> Outcome:
    """The first k of a score tuned fully by brute force, the best on validation taken."""
    order = np.argsort(-score, kind="stable")
    final = score - score.max() - 1.0
    final[order[:k]] = 1.0 + on.brute_force[order[:k]]
    tau, lost = on.judge(final)
    return Outcome(tau, lost, cost + k * BRUTE_FORCE_RATES * STEPS / on.whole)


def after_steps(on: Measured, rung: int) -> tuple[np.ndarray, float]:
    """The best validation accuracy of a model over its rates after a rung, and what that costs."""
    best = np.array(
        [
            max(
                (float(kept[f"rung{rung}_right"].mean()) for (name, _), kept in on.arms.items()
                 if name == model and f"rung{rung}_right" in kept),
                default=-1.0,
            )
            for model in on.models
        ]
    )  # fmt: skip
    rates = len({rate for _, rate in on.arms})
    return best, rates * len(on.models) * (rung + on.held_out / BATCH / 3) / on.whole


def mean_outcome(policy: Callable[[Measured], Outcome], sets: Sequence[str] = SETS) -> Outcome:
    """The mean over sets."""
    found = [policy(measured(name)) for name in sets]
    return Outcome(*(float(np.mean([getattr(one, field) for one in found])) for field in ("tau", "lost", "cost")))
