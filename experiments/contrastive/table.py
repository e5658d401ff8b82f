"""table.md and figure.png out of results/: the paper's table of contrastive models, and how well metrics order them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import Outcome, outcomes  # noqa: E402

from hubscout.evaluation import evaluate, weighted_tau  # noqa: E402

RESULTS = HERE / "results"
LABELS = {
    "moco_v1": "MoCo V1",
    "moco_v2": "MoCo V2",
    "moco_v2_long": "MoCo V2, longer",
    "simclr": "SimCLR",
    "supervised": "supervised",
    "cifar10_resnet20": "supervised, from the hub",
    "random": "random weights",
}
CONTRASTIVE = ("moco_v1", "moco_v2", "moco_v2_long", "simclr")
SOURCE = "cifar10"
"""The set whose images the models were made of: shown, but not part of the means."""
REFERENCES = ("references.jsonl", "references-regression.jsonl")
SETS = ("sign-digits", "fashion-mnist", "omniglot", "pets", SOURCE, "sprites")
STYLES = {
    "moco_v1": ("#0072B2", "o"),
    "moco_v2": ("#0072B2", "s"),
    "moco_v2_long": ("#0072B2", "^"),
    "simclr": ("#D55E00", "D"),
    "supervised": ("#009E73", "P"),
    "cifar10_resnet20": ("#009E73", "X"),
    "random": ("#7F7F7F", "v"),
}


@dataclass(frozen=True)
class Panel:
    """One set: what fine-tuning gave (higher is better) and what the metrics said, by model."""

    name: str
    regression: bool
    seeds: dict[str, tuple[float, ...]]
    rates: dict[str, float]
    scores: dict[str, dict[str, float]]
    """By metric, then model."""

    @property
    def reference(self) -> dict[str, float]:
        return {model: float(np.mean(values)) for model, values in self.seeds.items()}

    def shown(self, model: str) -> str:
        """Accuracy in percent, or the error as a share of the variance."""
        value = self.reference[model]
        return f"{1 - value:.4f}" if self.regression else f"{100 * value:.1f}"

    def tau(self, metric: str, models: tuple[str, ...] = tuple(LABELS)) -> float:
        if metric not in self.scores:
            return float("nan")
        return weighted_tau([self.scores[metric][m] for m in models], [self.reference[m] for m in models])


def records(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines()]


def panels() -> list[Panel]:
    found = {name: of for file in REFERENCES for name, of in outcomes(RESULTS / file).items()}
    return [panel(name, found[name]) for name in SETS]


def panel(name: str, reference: dict[str, Outcome]) -> Panel:
    """What fine-tuning gave, and the scores of every metric that serves the set."""
    scores: dict[str, dict[str, float]] = {}
    for model, row in json.loads((RESULTS / f"scores-{name}.json").read_text())["rows"].items():
        for metric, value in row["scores"].items():
            if value is not None:
                scores.setdefault(metric, {})[model] = value
    seeds = {model: outcome.tests for model, outcome in reference.items()}
    rates = {model: outcome.learning_rate for model, outcome in reference.items()}
    return Panel(name, name == "sprites", seeds, rates, scores)


def number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}"


def pretraining_table() -> list[str]:
    finished = {record["method"]: record for record in records("pretraining.jsonl") if record.get("finished")}
    lines = ["| model | epochs | seconds | last loss | nearest neighbours, % |", "|---|---|---|---|---|"]
    for model in (model for model in LABELS if model in finished):
        record = finished[model]
        loss = "–" if record["loss"] is None else f"{record['loss']:.3f}"
        neighbours = f"{100 * record['neighbours']:.1f}"
        lines.append(f"| {LABELS[model]} | {record['epoch']} | {record['seconds']:.0f} | {loss} | {neighbours} |")
    return lines


def paper_table(found: list[Panel]) -> list[str]:
    """One row a model; of each set the result of fine-tuning and LogME."""
    lines = [
        "| model | " + " | ".join(f"{p.name}, {'MSE' if p.regression else '%'} | LogME" for p in found) + " |",
        "|---" * (1 + 2 * len(found)) + "|",
    ]
    for model, label in LABELS.items():
        cells = (f"{p.shown(model)} | {p.scores['logme'][model]:.3f}" for p in found)
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    for what, models in (("τ_w of the four contrastive", CONTRASTIVE), ("τ_w of all seven", tuple(LABELS))):
        lines.append(f"| {what} | " + " | ".join(f"{number(p.tau('logme', models))} | " for p in found) + "|")
    lines.append("| one-sided p of all seven | " + " | ".join(f"{p_value(p)} | " for p in found) + "|")
    lines.append("| difference between seeds | " + " | ".join(f"{seed_noise(p)} | " for p in found) + "|")
    return lines


def p_value(found: Panel) -> str:
    return f"{evaluate(found.scores['logme'], found.reference, resamples=1).p_value:.3f}"


def seed_noise(found: Panel) -> str:
    """Mean over models of the distance between the two seeds' results."""
    gaps = [max(values) - min(values) for values in found.seeds.values()]
    return f"{np.mean(gaps):.4f}" if found.regression else f"{100 * np.mean(gaps):.1f}"


def tau_table(found: list[Panel]) -> list[str]:
    """τ_w of every metric on every set, over all seven models."""
    metrics = list(dict.fromkeys(metric for p in found for metric in p.scores))
    others = [p for p in found if p.name != SOURCE and not p.regression]
    lines = [
        "| metric | " + " | ".join(p.name for p in found) + f" | mean of {', '.join(p.name for p in others)} |",
        "|---" * (len(found) + 2) + "|",
    ]
    for metric in metrics:
        taus = [p.tau(metric) for p in found]
        mean = float(np.mean([p.tau(metric) for p in others]))
        lines.append(f"| {metric} | " + " | ".join(map(number, taus)) + f" | {number(mean)} |")
    return lines


def figure(found: list[Panel], path: Path) -> None:
    """Fine-tuned result against LogME, a panel a set."""
    drawn, axes = plt.subplots(2, 3, figsize=(9.4, 5.4))
    for axis, each in zip(axes.flat, found, strict=True):
        for model, (colour, marker) in STYLES.items():
            score, value = each.scores["logme"][model], each.reference[model]
            height = 1 - value if each.regression else 100 * value
            axis.scatter(score, height, c=colour, marker=marker, s=42, label=LABELS[model], linewidths=0)
        if each.regression:
            axis.invert_yaxis()
        all_models, contrastive = number(each.tau("logme")), number(each.tau("logme", CONTRASTIVE))
        axis.set_title(f"{each.name}: τ$_w$ {all_models} (contrastive {contrastive})", fontsize=8.5)
        axis.set_ylabel("MSE / variance (reversed)" if each.regression else "fine-tuned accuracy, %", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.locator_params(axis="x", nbins=5)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[1]:
        axis.set_xlabel("LogME", fontsize=8)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="lower center", ncol=4, fontsize=8, frameon=False)
    drawn.tight_layout(rect=(0, 0.09, 1, 1))
    drawn.savefig(path, dpi=150, metadata={"Software": None})


def main() -> None:
    found = panels()
    rates = sorted({rate for p in found for rate in p.rates.values()})
    chosen = ", ".join(f"{rate:g}: {sum(r == rate for p in found for r in p.rates.values())}" for rate in rates)
    text = [
        "# Pre-training",
        "",
        *pretraining_table(),
        "",
        "# Fine-tuned result beside LogME",
        "",
        *paper_table(found),
        "",
        f"How often validation chose each learning rate: {chosen}.",
        "",
        "# τ_w of every metric, all seven models",
        "",
        *tau_table(found),
        "",
    ]
    (HERE / "table.md").write_text("\n".join(text))
    figure(found, HERE / "figure.png")
    print("\n".join(text))


if __name__ == "__main__":
    main()
