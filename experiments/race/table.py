"""`table.md` and `figure.png` out of `results/`: regret and tau against cost, for every policy on every set."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import rates
import saved_winner
import ties
from figure import draw
from outcomes import table
from replay import (
    FAR,
    LOOKS_AT,
    SETS,
    Measured,
    Outcome,
    after_steps,
    has_races,
    mean_of,
    measured,
    race,
    sets_of,
    top_k,
    whole_race,
)

HERE = Path(__file__).resolve().parent
SHARES = (0.02, 0.03, 0.05, 0.075, 0.1)
JUDGED_ON = 4 if has_races(4, "steps", 0.03) and has_races(4, "steps", 0.1) else 3
"""The fold that the race is judged on: one that nothing was chosen on."""
NEAR = tuple(name for name in SETS if name not in FAR)
PLANS = ((34, 17, 17), (34, 17, 12), (34, 17, 6), (34, 12, 4), (34, 6, 2), (0, 17, 6), (0, 17, 2))
Policy = Callable[[Measured], Outcome]
Found = Mapping[str, Mapping[str, Outcome]]


def static(score: Callable[[Measured], np.ndarray], cost: Callable[[Measured], float] = lambda on: 0.0) -> Policy:
    return lambda on: Outcome(*on.judge(score(on)), cost(on))


def evidence_cost(on: Measured) -> float:
    return on.evidence_cost() / on.whole


def random_order(on: Measured) -> Outcome:
    draw = np.random.default_rng(0)
    found = [on.judge(draw.permutation(len(on.models)).astype(float)) for _ in range(200)]
    return Outcome(*np.mean(found, axis=0).tolist(), 0.0)


def early(steps: int) -> Policy:
    def judge(on: Measured) -> Outcome:
        score, cost = after_steps(on, steps)
        return Outcome(*on.judge(score), cost)

    return judge


def early_top(steps: int, k: int) -> Policy:
    def judge(on: Measured) -> Outcome:
        score, cost = after_steps(on, steps)
        return top_k(on, score, k, cost)

    return judge


def brute_force(on: Measured) -> Outcome:
    return Outcome(*on.judge(on.brute_force), 1.0, on.brute_force_test)


def policies() -> dict[str, Policy]:
    found: dict[str, Policy] = {
        "random order": random_order,
        "parameters": static(lambda on: on.params),
        "LogME": static(lambda on: on.logme, evidence_cost),
        "logme-capacity": static(lambda on: on.logme + 0.1 * np.log(on.flops), evidence_cost),
    }
    for k in (3, 6):
        found[f"LogME's first {k}, tuned fully"] = lambda on, k=k: top_k(on, on.logme, k, evidence_cost(on))
    for steps in LOOKS_AT[:3]:
        found[f"validation after {steps} steps, 3 rates"] = early(steps)
    for steps in LOOKS_AT[:2]:
        found[f"after {steps} steps, the first 3 tuned fully"] = early_top(steps, 3)
    for fold in (0, 1, 2):
        if all(measured(name).complete(fold) for name in SETS):
            for share in SHARES:
                found[f"race at {100 * share:g}%, replayed on fold {fold}"] = lambda on, share=share, fold=fold: race(
                    on, share, fold
                )
    found["race at 10%, replayed on fold 0, rate of the first rung"] = lambda on: race(on, 0.1, rate_again=False)
    for share, by in itertools.product((0.03, 0.1), ("steps", "seconds")):
        told = f"race at {100 * share:g}%" if by == "steps" else f"race in {100 * share:g}% of the seconds"
        if has_races(4, by, share):
            found[f"{told}, run on fold 4"] = lambda on, share=share, by=by: whole_race(on, share, by, fold=4)
    for share in (0.03, 0.1):
        name = f"race at {100 * share:g}%, run on fold 3"
        found[name] = lambda on, share=share: whole_race(on, share, "steps")
        found[f"{name}, its first 3 judged on fold 0 too"] = lambda on, share=share: whole_race(
            on, share, "steps", folds=(0,)
        )
        found[f"race in {100 * share:g}% of the seconds, run on fold 3"] = lambda on, share=share: whole_race(
            on, share, "seconds"
        )
    found["brute force: 5 rates, 300 steps"] = brute_force
    return found


def means(found: Mapping[str, Outcome]) -> tuple[Outcome, Outcome, Outcome]:
    """Over all sets, those near to photographs, those far from them."""
    return tuple(mean_of([found[name] for name in sets if name in found]) for sets in (SETS, NEAR, FAR))


def rows(found: Found) -> list[list[str]]:
    lines = []
    for name, by_set in found.items():
        mean, near, far = means(by_set)
        cells = [f"{by_set[e].tau:.2f} / {by_set[e].lost:.1f}" if e in by_set else "no such fold" for e in SETS]
        tested = "" if math.isnan(mean.tested) else f"{100 * mean.tested:.1f}"
        numbers = [f"{mean.tau:.2f}", f"{mean.lost:.2f}", f"{near.lost:.2f}", f"{far.lost:.2f}"]
        lines.append([name, *cells, *numbers, tested, f"{mean.cost:.3f}"])
    return lines


def bars(found: Found) -> list[list[str]]:
    """What was asked for, and what came out on the fold that nothing was chosen on; on the sets that have it."""
    found = {name: {each: by_set[each] for each in sets_of(JUDGED_ON)} for name, by_set in found.items()}
    brute, evidence = means(found["brute force: 5 rates, 300 steps"]), means(found["LogME"])
    ten, three = (means(found[f"race at {share}%, run on fold {JUDGED_ON}"]) for share in (10, 3))
    asked = [
        ("at 10%: points lost, at most brute force's + 0.2", ten[0].lost, brute[0].lost + 0.2, False),
        ("at 10%: tau, at least brute force's", ten[0].tau, brute[0].tau, True),
        ("at 3%: points lost on far sets, fewer than LogME's", three[2].lost, evidence[2].lost, False),
        ("at 3%: points lost on the others, at most LogME's", three[1].lost, evidence[1].lost, False),
        ("at 10%: test accuracy of the tuned winner, at least brute force's", ten[0].tested, brute[0].tested, True),
    ]
    return [
        [name, f"{value:.3f}", f"{bar:.3f}", "yes" if (value >= bar if more else value <= bar) else "**no**"]
        for name, value, bar, more in asked
    ]


def leave_one_set_out() -> list[list[str]]:
    """Plan, judgement and prior chosen on six sets by a criterion, judged on the seventh; all on fold 0."""
    variants = list(itertools.product(PLANS, ("accuracy", "log-likelihood", "both"), (False, True)))
    outcome = {
        (variant, name): race(measured(name), 0.1, widths=variant[0], score=variant[1], prior=variant[2])
        for variant in variants
        for name in SETS
    }
    criteria: dict[str, Callable[[Outcome], float]] = {
        "fewest points lost": lambda mean: -mean.lost + 1e-3 * mean.tau,
        "highest tau": lambda mean: mean.tau,
    }
    lines = []
    for criterion, worth in criteria.items():
        found = []
        for name in SETS:
            others = [each for each in SETS if each != name]
            means = {variant: mean_of([outcome[variant, each] for each in others]) for variant in variants}
            chosen = max(variants, key=lambda variant, means=means: worth(means[variant]))
            told = f"{chosen[0]}, {chosen[1]}, {'with' if chosen[2] else 'without'} prior"
            found.append(outcome[chosen, name])
            lines.append([criterion, name, told, *_told(found[-1])])
        lines.append([criterion, "mean", "", *_told(mean_of(found))])
    frozen = mean_of([race(measured(name), 0.1) for name in SETS])
    return [*lines, ["the race as it is", "mean", "chosen on all seven", *_told(frozen)]]


def _told(one: Outcome) -> list[str]:
    return [f"{one.tau:.2f}", f"{one.lost:.2f}", f"{one.cost:.3f}"]


def differences(found: Found) -> list[list[str]]:
    """The race less another policy, with what other sets could have given: 95% of 10,000 draws of sets."""
    lines = []
    for fold, share, other in itertools.product(
        dict.fromkeys((JUDGED_ON, 3)), (10, 3), ("LogME", "brute force: 5 rates, 300 steps")
    ):
        sets, name = sets_of(fold), f"race at {share}%, run on fold {fold}"
        draw = np.random.default_rng(0).integers(len(sets), size=(10_000, len(sets)))
        cells = []
        for field in ("tau", "lost"):
            less = np.array([getattr(found[name][each], field) - getattr(found[other][each], field) for each in sets])
            low, high = np.quantile(less[draw].mean(axis=1), (0.025, 0.975))
            cells.append(f"{less.mean():+.2f} [{low:+.2f}, {high:+.2f}]")
        lines.append([name, other.partition(":")[0], *cells])
    return lines


def public() -> tuple[list[list[str]], list[list[str]]]:
    """Halving by eta and first rung, and the product's race, on the curves of others."""
    told = json.loads((HERE / "results" / "public-curves.json").read_text())
    names = ("weighted_tau", "points_lost", "cost")
    halving = [
        [str(row["eta"]), f"{row['first_epochs']} of 50", *(f"{row[name]:.3f}" for name in names)]
        for row in told
        if row.get("by_model") is False
    ]
    return halving, [[row["policy"], *(f"{row[name]:.3f}" for name in names)] for row in told if "policy" in row]


def main() -> None:
    found = {
        name: {each: policy(measured(each)) for each in sets_of(4 if "on fold 4" in name else 0)}
        for name, policy in policies().items()
    }
    header = ["policy", *SETS, "mean tau", "points lost", "near", "far", "winner's test accuracy", "cost"]
    lines = ["# Whom each policy chooses, and at what cost", ""]
    lines += ["Weighted tau / points of test accuracy lost by taking the first; truth: mean over five fresh seeds.", ""]
    lines += table(header, rows(found))
    lines += ["", f"## What was asked for, on the fold that nothing was chosen on ({JUDGED_ON})", ""]
    lines += table(["bar", "race", "bar at", "met"], bars(found))
    lines += ["", "## Less another policy; 95% intervals over draws of the sets", ""]
    lines += table(["policy", "less", "tau", "points lost"], differences(found))
    lines += ["", "## Chosen on six sets, judged on the seventh (fold 0; 42 variants of about 10%)", ""]
    lines += table(["chosen by", "left out", "chosen", "tau", "points lost", "cost"], leave_one_set_out())
    lines += ["", "## Points lost at the end by the way in which a learning rate (0.0005, 0.002, 0.008) is chosen", ""]
    lines += table(["rule", "the five best models", "all 17", *SETS], rates.lines())
    lines += ["", "## Test accuracy by what makes a search of 15 steps leave its default (0.0005 for 0.002)", ""]
    header = ["ahead by more than a standard error in", "the five best models", "all 17"]
    lines += table([*header, "with a cosine from twice the rate: the five best", "all 17"], rates.searches())
    lines += ["", "## A lower rate still: points gained by a cosine from 0.0003 for one from 0.001", ""]
    header = ["set", "train images", "of the five best, those that 0.001 suits better than 0.004", "always"]
    lines += table([*header, "where log-likelihood at the end prefers it"], rates.lower())
    lines += ["", "## Few images: a ResNet-20 at constant rates", ""]
    header = ["set", "rate", "log-likelihood after 110 steps", "after 300", "test accuracy"]
    lines += table(header, rates.far_and_few())
    lines += ["", "## Public curves: two runs of a model at rates that differ; whoever leads early is taken", ""]
    header = ["after epochs", "the higher leads", "the higher is better", "higher taken wrongly", "lower taken wrongly"]
    lines += table([*header, "points lost"], rates.public_lines())
    lines += ["", "## Two arms that accuracy and log-likelihood put in opposite order: who is taken", ""]
    lines += table(["by", "share of ties that take the worse arm", "points lost"], ties.lines())
    for fold in (3, *({JUDGED_ON} - {3})):
        lines += [
            "",
            f"## The saved winner's test accuracy less brute force's (fold {fold}): where the points come from",
        ]
        lines += ["", *table(["part", "race at 3%", "race at 10%"], saved_winner.lines(fold))]
    halving, race_there = public()
    lines += ["", "## Public curves (25 sets, 24 models): the race as it is, two arms per model, no evidence", ""]
    lines += table(["policy", "weighted tau", "points lost", "cost, all arms to the end = 1"], race_there)
    lines += ["", "## Public curves: halving of all arms", ""]
    lines += table(["eta", "first rung, epochs", "weighted tau", "points lost", "cost"], halving)
    (HERE / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw({name: means(by_set)[0] for name, by_set in found.items()}, HERE / "figure.png")


if __name__ == "__main__":
    main()
