"""table.md and figure.png: τ_w of the head trained again against the number of trials, beside LogME, and the time."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import CLASSIFICATION, outcomes, table  # noqa: E402

from hubscout.evaluation import weighted_tau  # noqa: E402

SETS = ("pets", "cifar10", "fashion-mnist", "sign-digits", "omniglot")
ORDERS = 100
SHOWN = (1, 2, 3, 5, 9, 17)
BAND = (0.1, 0.9)
HEAD, EVIDENCE = "#d55e00", "#0072b2"


@dataclass(frozen=True)
class Curves:
    """A set: τ_w by number of trials, (orders, trials), and of LogME."""

    name: str
    models: int
    heads: np.ndarray
    own_order: np.ndarray
    alone: np.ndarray
    """τ_w of each strength by itself."""
    logme: float
    seconds: dict[str, np.ndarray]
    """LogME, one trial, all trials: one number a model."""


def curves_of(name: str, lines: list[dict[str, Any]], reference: dict[str, float]) -> Curves:
    kept = sorted((line for line in lines if line["set"] == name), key=lambda line: str(line["model"]))
    goal = [reference[line["model"]] for line in kept]
    accuracies = np.array([[value for _, value in line["trials"]] for line in kept])

    def taus(order: np.ndarray) -> list[float]:
        best = np.maximum.accumulate(accuracies[:, order], axis=1)
        return [weighted_tau(best[:, t], goal) for t in range(best.shape[1])]

    generator = np.random.default_rng(0)
    trials = accuracies.shape[1]
    return Curves(
        name=name,
        models=len(kept),
        heads=np.array([taus(generator.permutation(trials)) for _ in range(ORDERS)]),
        own_order=np.array(taus(np.arange(trials))),
        alone=np.array([weighted_tau(accuracies[:, t], goal) for t in range(trials)]),
        logme=weighted_tau([line["logme"] for line in kept], goal),
        seconds={key: np.array([line["seconds"][key] for line in kept]) for key in kept[0]["seconds"]},
    )


def read() -> list[Curves]:
    lines = [json.loads(text) for text in (HERE / "results" / "trials.jsonl").read_text().splitlines()]
    reference = outcomes(CLASSIFICATION / "references.jsonl")
    return [curves_of(name, lines, {m: outcome.test for m, outcome in reference[name].items()}) for name in SETS]


def tau_rows(found: list[Curves]) -> list[list[str]]:
    rows = []
    for each in found:
        low, high = np.quantile(each.heads, BAND, axis=0)
        means = each.heads.mean(axis=0)
        cells = [f"{means[t - 1]:+.2f} ({low[t - 1]:+.2f} to {high[t - 1]:+.2f})" for t in SHOWN[:-1]]
        # The best of all strengths does not depend on the order.
        rows.append([each.name, str(each.models), f"**{each.logme:+.2f}**", *cells, f"{means[-1]:+.2f}"])
    means = np.mean([each.heads.mean(axis=0) for each in found], axis=0)
    cells = [f"{means[t - 1]:+.2f}" for t in SHOWN]
    return [*rows, ["mean", "", f"**{np.mean([each.logme for each in found]):+.2f}**", *cells]]


def alone_rows(found: list[Curves]) -> list[list[str]]:
    return [
        [
            each.name,
            f"{each.alone.min():+.2f}",
            f"{np.median(each.alone):+.2f}",
            f"{each.alone.max():+.2f}",
            *(f"{each.own_order[t - 1]:+.2f}" for t in SHOWN),
        ]
        for each in found
    ]


def time_rows(found: list[Curves]) -> list[list[str]]:
    rows = []
    for each in found:
        sums = {key: values.sum() for key, values in each.seconds.items()}
        rows.append(
            [
                each.name,
                *(f"{sums[key]:.1f}" for key in ("logme", "one_trial", "all_trials")),
                f"{sums['one_trial'] / sums['logme']:.1f}",
                f"{sums['all_trials'] / sums['logme']:.0f}",
            ]
        )
    return rows


def draw(found: list[Curves]) -> None:
    figure, axes = plt.subplots(1, len(found), figsize=(10, 3.3), dpi=150, sharey=True)
    for axis, each in zip(axes, found, strict=True):
        trials = np.arange(1, each.heads.shape[1] + 1)
        low, high = np.quantile(each.heads, BAND, axis=0)
        axis.fill_between(trials, low, high, color=HEAD, alpha=0.2, linewidth=0)
        axis.plot(trials, each.heads.mean(axis=0), color=HEAD, label="head, best of the first trials")
        axis.axhline(each.logme, color=EVIDENCE, linestyle="--", label="LogME")
        axis.set_title(each.name, fontsize=10)
        axis.set_xlabel("trials")
        axis.set_xticks([1, 5, 9, 13, 17])
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("$\\tau_w$ against fine-tuning")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=2, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(HERE / "figure.png", metadata={"Software": None})


def main() -> None:
    found = read()
    trials = [f"{t} trial{'s' * (t > 1)}" for t in SHOWN]
    lines = [
        "# τ_w against fine-tuning: LogME, and the head trained again with more and more strengths of L2",
        "",
        *table(["set", "models", "LogME", *trials], tau_rows(found)),
        "",
        f"Mean over {ORDERS} random orders of the 17 strengths, in brackets the 10% and 90% quantiles; a model's score "
        "is its best accuracy over five folds of the trials so far.",
        "",
        "## One strength alone, and the order in which `linear-probe` tries them (1, 0.01, 100, ...)",
        "",
        *table(["set", "worst strength", "median", "best strength", *trials], alone_rows(found)),
        "",
        "## Processor seconds for all models of the set, one thread, features at hand",
        "",
        *table(
            ["set", "LogME", "one trial (5 folds)", "17 trials", "one trial / LogME", "17 trials / LogME"],
            time_rows(found),
        ),
    ]
    (HERE / "table.md").write_text("\n".join(lines) + "\n")
    draw(found)


if __name__ == "__main__":
    main()
