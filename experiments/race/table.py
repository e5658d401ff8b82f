"""`table.md` and `figure.png` out of `results/`: regret and tau against cost, for every policy on every set."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from outcomes import table
from replay import FAR, RUNGS, SETS, STEPS, Measured, Outcome, after_steps, mean_outcome, measured, race, top_k

HERE = Path(__file__).resolve().parent
PRIOR = (0.3, 0.2, 0.1, 0.0)
"""What LogME counts beside the held-out score at each rung; see `hubscout.racing.elimination`."""
PLANS = {
    "race, 17 arms, 6": ((RUNGS[0], 17), (RUNGS[1], 6)),
    "race, 17 arms, 6, 2": ((RUNGS[0], 17), (RUNGS[1], 6), (RUNGS[2], 2)),
    "race, 51 arms, 17, 6": ((RUNGS[0], 51), (RUNGS[1], 17), (RUNGS[2], 6)),
    "race, 51 arms, 17, 6, 2": ((RUNGS[0], 51), (RUNGS[1], 17), (RUNGS[2], 6), (RUNGS[3], 2)),
    "race, 51 arms, 25, 12, 4": ((RUNGS[0], 51), (RUNGS[1], 25), (RUNGS[2], 12), (RUNGS[3], 4)),
}
SIDES = {
    "51 arms, 17, 6": (-7, -4, "right"),
    "51 arms, 17, 6, 2": (-7, 3, "right"),
    "51 arms, 25, 12, 4": (7, -3, "left"),
    "17 arms, 6, 2": (7, -3, "left"),
}
"""Where labels stand that would stand on each other."""
Policy = Callable[[Measured], Outcome]


def static(score: Callable[[Measured], np.ndarray], cost: Callable[[Measured], float] = lambda on: 0.0) -> Policy:
    return lambda on: Outcome(*on.judge(score(on)), cost(on))


def evidence_cost(on: Measured) -> float:
    return on.evidence_cost / on.whole


def random_order(on: Measured) -> Outcome:
    draw = np.random.default_rng(0)
    found = [on.judge(draw.permutation(len(on.models)).astype(float)) for _ in range(200)]
    return Outcome(*np.mean(found, axis=0).tolist(), 0.0)


def early(rung: int) -> Policy:
    def judge(on: Measured) -> Outcome:
        score, cost = after_steps(on, rung)
        return Outcome(*on.judge(score), cost)

    return judge


def early_top(rung: int, k: int) -> Policy:
    return lambda on: top_k(on, *_swap(after_steps(on, rung), k))


def _swap(found: tuple[np.ndarray, float], k: int) -> tuple[np.ndarray, int, float]:
    return found[0], k, found[1]


def policies() -> dict[str, Policy]:
    found: dict[str, Policy] = {
        "random order": random_order,
        "parameters": static(lambda on: on.params),
        "LogME": static(lambda on: on.logme, evidence_cost),
        "logme-capacity": static(lambda on: on.logme + 0.1 * np.log(on.flops), evidence_cost),
    }
    for k in (3, 6):
        found[f"LogME's first {k}, tuned fully"] = lambda on, k=k: top_k(on, on.logme, k, evidence_cost(on))
    for rung in RUNGS:
        found[f"validation after {rung} steps, 3 rates"] = early(rung)
    found[f"the same after {RUNGS[0]} steps, its first 3 tuned fully"] = early_top(RUNGS[0], 3)
    for name, plan in PLANS.items():
        found[name] = lambda on, plan=plan: race(on, plan, prior=PRIOR)
    found["brute force: 5 rates, 300 steps"] = static(lambda on: on.brute_force, lambda on: 1.0)
    return found


def rows(found: dict[str, Policy]) -> list[list[str]]:
    lines = []
    for name, policy in found.items():
        by_set = [policy(measured(each)) for each in SETS]
        mean, far = mean_outcome(policy), mean_outcome(policy, FAR)
        near = mean_outcome(policy, [each for each in SETS if each not in FAR])
        cells = [f"{one.tau:.2f} / {one.lost:.1f}" for one in by_set]
        lines.append(
            [
                name,
                *cells,
                f"{mean.tau:.2f}",
                f"{mean.lost:.2f}",
                f"{near.lost:.2f}",
                f"{far.lost:.2f}",
                f"{mean.cost:.3f}",
            ]
        )
    return lines


def variants() -> list[list[str]]:
    plan = PLANS["race, 51 arms, 17, 6"]
    lines = []
    for score in ("accuracy", "log-likelihood", "both"):
        for prior in ((0.0,) * 4, PRIOR, (1.0, 0.5, 0.25, 0.0)):
            mean = mean_outcome(lambda on, s=score, p=prior: race(on, plan, prior=p, score=s))
            lines.append([score, ", ".join(f"{w:g}" for w in prior[:3]), f"{mean.tau:.3f}", f"{mean.lost:.2f}"])
    return lines


def public() -> list[list[str]]:
    lines = []
    for row in json.loads((HERE / "results" / "public-curves.json").read_text()):
        if row.get("by_model") is False:
            lines.append(
                [
                    str(row["eta"]),
                    f"{row['first_epochs']} of 50",
                    *(f"{row[k]:.3f}" for k in ("weighted_tau", "points_lost", "cost")),
                ]
            )
    return lines


def draw(found: dict[str, Policy]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    groups = {"race": "tab:red", "validation": "tab:blue", "LogME": "tab:green", "brute": "black"}
    dots = [(name, mean_outcome(policy)) for name, policy in found.items()]
    dots = sorted((dot for dot in dots if dot[1].cost > 0), key=lambda dot: dot[1].cost)
    for number, (name, outcome) in enumerate(dots):
        group = next((key for key in groups if name.startswith(key)), None)
        if group is None:
            continue
        label = name.removesuffix(", 3 rates").removesuffix(", tuned fully").partition(":")[0]
        label = label.replace("race, ", "").replace("validation after ", "").replace("LogME's ", "")
        for axis, value in zip(axes, (outcome.lost, outcome.tau), strict=True):
            axis.scatter(outcome.cost, value, color=groups[group], s=36, zorder=3)
            x, y, side = SIDES.get(label, (0, 6 if number % 2 else -12, "center"))
            axis.annotate(label, (outcome.cost, value), xytext=(x, y), textcoords="offset points", fontsize=7, ha=side)
    for axis, title in zip(axes, ("points lost by taking the first", "weighted tau"), strict=True):
        axis.set_xscale("log")
        axis.set_xlabel("cost, brute force = 1")
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
        axis.set_xlim(0.004, 2)
    axes[0].set_ylim(bottom=0)
    handles = [
        pyplot.Line2D([], [], marker="o", linestyle="", color=colour, label=name) for name, colour in groups.items()
    ]
    axes[1].legend(handles=handles, fontsize=8, loc="lower right")
    figure.savefig(HERE / "figure.png", dpi=130)


def main() -> None:
    found = policies()
    header = ["policy", *SETS, "mean tau", "points lost", "near", "far", "cost"]
    lines = ["# Whom each policy chooses, and at what cost", ""]
    lines += ["Weighted tau / points of test accuracy lost by taking the first; truth: mean over fresh seeds.", ""]
    lines += table(header, rows(found))
    lines += ["", f"Models with at least three fresh seeds of {STEPS} steps: "]
    lines[-1] += ", ".join(f"{name} {len(measured(name).models)}" for name in SETS) + "."
    lines += ["", "## What the race is judged by (51 arms, 17, 6)", ""]
    lines += table(["held-out score", "weight of LogME", "mean tau", "points lost"], variants())
    lines += ["", "## Halving replayed on public curves (25 sets, 24 models)", ""]
    lines += table(["eta", "first rung, epochs", "weighted tau", "points lost", "cost"], public())
    (HERE / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(found)


if __name__ == "__main__":
    main()
