"""Policies replayed on what `run.py` measured: whom each would have chosen, and at what cost.

The race is replayed with the product's own code (`hubscout.racing`): its plans, its elimination, its order of models.
Costs are counted in training steps of all models alike, a forward pass over a batch being a third of one; brute force,
five rates for every model, is 1.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import weightedtau

from hubscout.racing.arms import Arm, Look
from hubscout.racing.elimination import better_rate, broken_by_rate, one_rate_each, scores
from hubscout.racing.rungs import HIGHER_FACTOR, RATE_FACTORS, plans, rungs_of, work

RESULTS = Path(__file__).resolve().parent / "results"
SETS = ("pets", "cifar10", "pets-few", "cifar10-few", "fashion-mnist", "sign-digits", "omniglot")
FAR = ("fashion-mnist", "sign-digits", "omniglot")
"""Sets whose images are far from the photographs that the models were trained on."""
STEPS, BATCH, COOLDOWN, LOOKS_AT = 300, 64, 0.2, (15, 45, 110, 300)
FIRST_RATE, BRUTE_FORCE_RATES = 0.0005, 5
SMALL_SHARE, FEW_ROWS = 0.05, 1000
"""Below such a share of brute force, a race has its evidence from so many train rows."""
FLOOR = -6.0
"""Log-likelihoods below count as this, as in the product: one sample that is surely wrong must not decide."""
LEAST_SEEDS = 4

_RUN = re.compile(r"(?P<model>.+)-(?P<rate>[\d.e-]+)-fold(?P<fold>\d)-(?P<schedule>wsd|cosine)-seed(?P<seed>\d+)")
Kept = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Measured:
    """One set: everything by model, in the order of `models`."""

    name: str
    models: tuple[str, ...]
    truth: np.ndarray
    """Mean test accuracy over fresh seeds, at the rate that brute force chose."""
    brute_force: np.ndarray
    """Best validation accuracy over five rates."""
    brute_force_test: float
    """Test accuracy of the run that brute force takes."""
    train: int
    held_out: int
    arms: Mapping[int, Mapping[tuple[str, float], Kept]]
    """Fold → arm → what its rungs showed."""
    logme: np.ndarray
    params: np.ndarray
    flops: np.ndarray

    @property
    def whole(self) -> float:
        """Steps of brute force."""
        return float(len(self.models) * BRUTE_FORCE_RATES * STEPS)

    def evidence_cost(self, share: float = 1.0) -> float:
        """One pass of every model over the train rows, in steps; over few of them for a small share."""
        rows = min(self.train, FEW_ROWS) if share < SMALL_SHARE else self.train
        return len(self.models) * rows / BATCH / 3

    def judge(self, score: np.ndarray) -> tuple[float, float]:
        """Weighted tau, and the points that are lost by taking the first."""
        tau = weightedtau(self.truth, score, rank=None).statistic
        return float(tau), float(100 * (self.truth.max() - self.truth[int(np.argmax(score))]))

    def complete(self, fold: int) -> bool:
        """Whether all models ran at both rates of a race on this fold."""
        rates = [FIRST_RATE * factor for factor in RATE_FACTORS]
        return all((model, rate) in self.arms.get(fold, {}) for model in self.models for rate in rates)


@cache
def product() -> dict[str, Any]:
    """Evidence and whole races, as the product gave them."""
    return json.loads((RESULTS / "product.json").read_text())


@cache
def measured(name: str) -> Measured:
    """Read the results of a set."""
    runs: dict[str, dict[str, np.ndarray]] = {}
    with np.load(RESULTS / f"{name}.npz") as file:
        for key in file:
            run, _, what = key.rpartition("/")
            runs.setdefault(run, {})[what] = file[key]
    truth: dict[str, list[float]] = {}
    brute: dict[str, list[tuple[float, float]]] = {}
    arms: dict[int, dict[tuple[str, float], Kept]] = {}
    for run, kept in runs.items():
        found = _RUN.fullmatch(run)
        assert found is not None
        model, rate, seed = found["model"], float(found["rate"]), int(found["seed"])
        if found["schedule"] == "wsd":
            arms.setdefault(int(found["fold"]), {})[model, rate] = kept
        elif "failure" not in kept and seed:
            truth.setdefault(model, []).append(float(kept["end_test"]))
        elif "failure" not in kept:
            brute.setdefault(model, []).append((float(kept["end_right"].mean()), float(kept["end_test"])))
    assert all(len(tests) >= LEAST_SEEDS for tests in truth.values())
    models = tuple(sorted(truth))
    evidence = product()[f"evidence-{name}-fold0"]
    held_out = len(next(kept["rung15_right"] for kept in arms[0].values() if "rung15_right" in kept))
    best = [max(brute[model]) for model in models]
    return Measured(
        name=name,
        models=models,
        truth=np.array([np.mean(truth[model]) for model in models]),
        brute_force=np.array([validation for validation, _ in best]),
        brute_force_test=max(best)[1],
        train=4 * held_out,
        held_out=held_out,
        arms=arms,
        logme=np.array([evidence[model]["logme"] for model in models]),
        params=np.array([evidence[model]["params"] for model in models], dtype=float),
        flops=np.array([evidence[model]["flops"] for model in models], dtype=float),
    )


@dataclass(frozen=True)
class Outcome:
    """What a policy gives on a set."""

    tau: float
    lost: float
    cost: float
    tested: float = math.nan
    """Test accuracy of the tuned winner that one has in the end."""


def widths_for(share: float, models: int, evidence_steps: float) -> tuple[int, ...]:
    """The longest race whose steps, with those that the evidence costs, are at most a share of brute force's."""
    steps = share * models * BRUTE_FORCE_RATES * STEPS - evidence_steps
    rungs = rungs_of(STEPS, COOLDOWN)
    fitting = (widths for widths in plans(models) if work(widths, rungs, STEPS) <= steps)
    return next(fitting, list(plans(models))[-1])


def race(
    on: Measured,
    share: float,
    fold: int = 0,
    *,
    score: str = "both",
    prior: bool = True,
    widths: Sequence[int] = (),
    rate_again: bool = True,
) -> Outcome:
    """A race at a share of brute force's steps, on a fold; with other `widths`, or judged otherwise.

    With `rate_again`, the rates of the winner are compared once more where its model has won, and with a higher one if
    the higher leads there.
    """
    evidence = dict(zip(on.models, on.logme.tolist(), strict=True))
    known = evidence if prior else {}
    widths = widths or widths_for(share, len(on.models), on.evidence_cost(share))
    first = sorted(on.models, key=lambda model: -evidence[model])
    factors = RATE_FACTORS if widths[0] else RATE_FACTORS[:1]
    arms = [Arm(model, FIRST_RATE * factor) for model in first for factor in factors]
    place = {model: -1e6 + evidence[model] for model in on.models}
    cost, before = on.evidence_cost(share), 0
    earlier: dict[Arm, Look] = {}
    for rung, width in zip(rungs_of(STEPS, COOLDOWN), widths, strict=False):
        if not width:
            continue
        arms = arms[:width]
        rows = min(on.held_out, rung.rows(BATCH))
        looks = [_look(on.arms[fold][arm.model, arm.learning_rate], arm, rung.number, rows, score) for arm in arms]
        cost += len(arms) * (rung.steps - before + rows / BATCH / 3)
        before = rung.stable
        for arm in (arm for look in looks[:] for arm in earlier if _instead(look, earlier[arm])):
            looks.append(_look(on.arms[fold][arm.model, arm.learning_rate], arm, rung.number, rows, score))
            cost += rung.steps + rows / BATCH / 3
        earlier |= {look.arm: look for look in looks}
        arms = [look.arm for look in looks]
        values = dict(zip(arms, scores(looks, known).tolist(), strict=True))
        arms = [look.arm for look in looks if not look.failure]
        arms.sort(key=lambda arm: -values[arm])  # of arms that are alike, the one that came first stays ahead
        for number, arm in enumerate(arms):
            place[arm.model] = max(place[arm.model], 1e3 * rung.number + values[arm] - 1e-9 * number)
        arms = one_rate_each(arms)
    winner = arms[0]
    if rate_again and widths[0]:
        rates = [Arm(winner.model, FIRST_RATE * factor) for factor in factors]
        looks = [_look(on.arms[fold][arm.model, arm.learning_rate], arm, rung.number, rows, score) for arm in rates]
        cost += rung.steps + rows / BATCH / 3
        winner = better_rate(looks)
        higher = Arm(winner.model, FIRST_RATE * HIGHER_FACTOR)
        if winner == rates[-1] and (kept := on.arms[fold].get((higher.model, higher.learning_rate))) is not None:
            winner = better_rate([*looks, _look(kept, higher, rung.number, rows, score)])
            cost += rung.steps + rows / BATCH / 3
    tau, lost = on.judge(np.array([place[model] for model in on.models]))
    tested = on.arms[0][winner.model, winner.learning_rate]["rung300_test"]
    return Outcome(tau, lost, (cost + STEPS - before) / on.whole, float(tested))


def _instead(look: Look, earlier: Look) -> bool:
    """Whether the arm of an earlier look is trained further instead of another of its model."""
    return look.arm.model == earlier.arm.model and look.arm != earlier.arm and broken_by_rate(look, earlier)


def _look(kept: Kept, arm: Arm, rung: int, rows: int, score: str) -> Look:
    """What the product would have seen; `score` "accuracy" or "log-likelihood" leaves it one of the two."""
    name = f"rung{LOOKS_AT[rung]}"
    if f"{name}_right" not in kept:
        return Look(
            arm=arm,
            rung=rung,
            steps=0,
            metric=None,
            log_likelihoods=(),
            seconds=0.0,
            seconds_per_step=0.0,
            failure="diverged",
        )
    right = kept[f"{name}_right"][:rows].astype(float)
    likelihood = np.maximum(kept[f"{name}_loglik"][:rows].astype(float), FLOOR)
    seen = right if score == "accuracy" else likelihood
    return Look(
        arm=arm,
        rung=rung,
        steps=LOOKS_AT[rung],
        metric=float((likelihood if score == "log-likelihood" else right).mean()),
        log_likelihoods=tuple(seen),
        seconds=0.0,
        seconds_per_step=0.0,
    )


def sets_of(fold: int) -> tuple[str, ...]:
    """The sets that have this fold: four images of each class of Pets make four."""
    return SETS if fold < 4 else tuple(name for name in SETS if name != "pets-few")


def has_races(fold: int, by: str, share: float) -> bool:
    """Whether the races on a fold were run on all sets that have it."""
    return all(f"race-{name}-fold{fold}-{share:g}-{by}" in product() for name in sets_of(fold))


def whole_race(on: Measured, share: float, by: str, *, fold: int = 3, folds: Sequence[int] = ()) -> Outcome:
    """A race that was really run, on a fold that nothing was chosen on. Its cost is in steps, or in seconds.

    With `folds` its three leaders are judged again on what these showed of them, all together.
    """
    record = product()[f"race-{on.name}-fold{fold}-{share:g}-{by}"]
    order = [one["model"] for one in record["order"]]
    extra = 0.0
    if folds:
        order, extra = _cross_fitted(on, record, order, folds)
    place = {model: -float(number) for number, model in enumerate(order)}
    tau, lost = on.judge(np.array([place.get(model, -1e3) for model in on.models]))
    tested = math.nan if folds else record["tuned"]["test"]["accuracy"]["value"]
    if by == "seconds":
        return Outcome(tau, lost, record["took"] * share / record["budget"], tested)
    rungs, reached, steps = {rung.steps: rung for rung in rungs_of(STEPS, COOLDOWN)}, {}, 0.0
    for look in record["looks"]:
        arm, rung = (look["model"], look["rate"]), rungs[look["steps"]]
        steps += rung.steps - reached.get(arm, 0) + min(on.held_out, rung.rows(BATCH)) / BATCH / 3
        reached[arm] = rung.stable
    steps += on.evidence_cost(share) + STEPS - max(reached.values(), default=0)
    if record.get("probe") is not None:  # that of the first model by evidence, on train and held-out samples
        steps += (on.train + on.held_out) / BATCH / 3
    return Outcome(tau, lost, (steps + extra) / on.whole, tested)


def _cross_fitted(
    on: Measured, record: Mapping[str, Any], order: Sequence[str], folds: Sequence[int]
) -> tuple[list[str], float]:
    last = max(look["steps"] for look in record["looks"])
    name = f"rung{min(LOOKS_AT, key=lambda steps: abs(steps - last))}"
    seen = {look["model"]: look for look in record["looks"] if look["steps"] == last}
    leaders = [model for model in order if model in seen][:3]
    values = []
    for model in leaders:
        kept = [on.arms[fold][model, seen[model]["rate"]] for fold in folds]
        right = [seen[model]["metric"], *(one[f"{name}_right"].mean() for one in kept)]
        floored = (np.maximum(one[f"{name}_loglik"].astype(float), FLOOR) for one in kept)
        likelihood = [seen[model]["log_likelihood"], *(one.mean() for one in floored)]
        values.append([np.mean(right), np.mean(likelihood)])
    table = np.array(values)
    total = ((table - table.mean(axis=0)) / np.maximum(table.std(axis=0), 1e-9)).mean(axis=1)
    again = [leaders[number] for number in np.argsort(-total, kind="stable")]
    cost = len(folds) * len(leaders) * (last + on.held_out / BATCH / 3)
    return [*again, *(model for model in order if model not in again)], cost


def top_k(on: Measured, score: np.ndarray, k: int, cost: float) -> Outcome:
    """The first k of a score tuned fully by brute force, the best on validation taken."""
    order = np.argsort(-score, kind="stable")
    final = score - score.max() - 1.0
    final[order[:k]] = 1.0 + on.brute_force[order[:k]]
    tau, lost = on.judge(final)
    return Outcome(tau, lost, cost + k * BRUTE_FORCE_RATES * STEPS / on.whole)


def after_steps(on: Measured, steps: int) -> tuple[np.ndarray, float]:
    """The best validation accuracy of a model over three rates after so many steps, and what that costs."""
    name, best = f"rung{steps}_right", dict.fromkeys(on.models, -1.0)
    arms = {arm: kept for arm, kept in on.arms[0].items() if arm[1] >= FIRST_RATE}
    for (model, _), kept in arms.items():
        if name in kept:
            best[model] = max(best[model], float(kept[name].mean()))
    rates = len({rate for _, rate in arms})
    cost = rates * len(on.models) * (steps + on.held_out / BATCH / 3) / on.whole
    return np.array([best[model] for model in on.models]), cost


def mean_outcome(policy: Callable[[Measured], Outcome], sets: Sequence[str] = SETS) -> Outcome:
    """The mean over sets."""
    found = [policy(measured(name)) for name in sets]
    return mean_of(found)


def mean_of(found: Sequence[Outcome]) -> Outcome:
    """The mean of outcomes."""
    return Outcome(*np.mean([(one.tau, one.lost, one.cost, one.tested) for one in found], axis=0).tolist())
