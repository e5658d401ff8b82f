"""table.md and figure.png: LogME of regression tasks against what fine-tuning gave."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import CLASSIFICATION, Outcome, logme_on_all, outcomes, table  # noqa: E402

from hubscout.evaluation import bootstrap_interval, kendall_tau, weighted_tau  # noqa: E402

SETS = ("sprites", "pet-heads")
FEWEST_MODELS = 5
PAPER = 0.79


@dataclass(frozen=True)
class Question:
    """A set: what is known of every model. Higher is better throughout."""

    name: str
    logme: dict[str, float]
    parameters: dict[str, float]
    reference: dict[str, Outcome]
    rates: dict[str, str]
    """Learning rates that were tried, those that diverged in brackets."""

    @property
    def compared(self) -> list[str]:
        """Models with a reference, the best first."""
        return sorted(self.reference, key=lambda model: -self.reference[model].test)

    def goal(self) -> np.ndarray:
        return np.array([self.reference[model].test for model in self.compared])

    def scores(self, metric: dict[str, float]) -> np.ndarray:
        return np.array([metric[model] for model in self.compared])


def read() -> list[Question]:
    references = outcomes(HERE / "results" / "references.jsonl")
    found = []
    for name in SETS:
        rows = json.loads((CLASSIFICATION / "scores" / f"{name}-layers.json").read_text())["rows"]
        parameters = {model: float(row["params"]) for model, row in rows.items()}
        found.append(Question(name, logme_on_all(name), parameters, references.get(name, {}), rates_tried(name)))
    return found


def rates_tried(name: str) -> dict[str, str]:
    trials = [json.loads(line) for line in (HERE / "results" / "references.jsonl").read_text().splitlines()]
    tried: dict[str, list[str]] = {}
    for trial in sorted(trials, key=lambda trial: trial["learning_rate"]):
        if trial["set"] == name:
            rate = f"{trial['learning_rate']:g}"
            tried.setdefault(trial["model"], []).append(rate if trial["test"] is not None else f"({rate})")
    return {model: ", ".join(rates) for model, rates in tried.items()}


def tau_rows(questions: list[Question]) -> list[list[str]]:
    rows = []
    for asked in questions:
        if len(asked.reference) < FEWEST_MODELS:
            continue
        for title, metric in (("LogME", asked.logme), ("parameters", asked.parameters)):
            scores, goal = asked.scores(metric), asked.goal()
            low, high = bootstrap_interval(scores, goal)
            rows.append(
                [
                    asked.name,
                    title,
                    str(len(goal)),
                    f"{weighted_tau(scores, goal):+.2f}",
                    f"{low:+.2f} to {high:+.2f}",
                    f"{kendall_tau(scores, goal):+.2f}",
                ]
            )
    return rows


def model_rows(asked: Question) -> list[list[str]]:
    rows = []
    places = {model: place for place, model in enumerate(sorted(asked.logme, key=lambda m: -asked.logme[m]), 1)}
    rest = sorted(set(asked.logme) - set(asked.reference), key=lambda model: -asked.logme[model])
    for model in [*asked.compared, *rest]:
        outcome = asked.reference.get(model)
        told = ["–", "–", "–", asked.rates.get(model, "–")]
        if outcome is not None:
            told[:3] = [f"{outcome.test:.3f}", f"{1 - outcome.test:.3f}", f"{outcome.learning_rate:g}"]
        rows.append([f"`{model}`", f"{asked.logme[model]:+.3f}", str(places[model]), *told])
    return rows


def short(model: str) -> str:
    """A name that fits beside a point."""
    for word in ("_features", "_in1k", "tf_efficientnet_", "_coral", "cifar10_", "_keras", "_fid"):
        model = model.replace(word, "")
    return model.replace("mobilenetv2", "mnet").replace("_inat", "").replace("_", " ")


def draw(questions: list[Question]) -> None:
    shown = [asked for asked in questions if len(asked.reference) >= FEWEST_MODELS]
    figure, axes = plt.subplots(1, len(shown), figsize=(max(6.5, 5.5 * len(shown)), 4.2), dpi=150)
    for axis, asked in zip(np.atleast_1d(axes), shown, strict=True):
        scores, errors = asked.scores(asked.logme), 1 - asked.goal()
        axis.plot(scores, errors, "o", color="#0072b2", markersize=5)
        for place, index in enumerate(np.argsort(scores)):
            # Neighbours are told apart by writing above and below.
            axis.annotate(
                short(asked.compared[index]), (scores[index], errors[index]), xytext=(0, 6 if place % 2 else -12),
                textcoords="offset points", fontsize=7.5, ha="center",
            )  # fmt: skip
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:.2f}")
        axis.yaxis.set_minor_formatter("{x:.2f}")
        axis.margins(y=0.12)
        axis.margins(x=0.16)
        axis.set_title(f"{asked.name}: τ_w = {weighted_tau(scores, asked.goal()):.2f}", fontsize=10)
        axis.set_xlabel("LogME (centred)")
        axis.spines[["top", "right"]].set_visible(False)
    np.atleast_1d(axes)[0].set_ylabel("test MSE, in variances of the target")
    figure.tight_layout()
    figure.savefig(HERE / "figure.png", metadata={"Software": None})


def main() -> None:
    questions = read()
    header = ["set", "score", "models", "τ_w", "95% over models", "τ"]
    lines = ["# Regression: LogME against fine-tuning", "", *table(header, tau_rows(questions)), ""]
    lines += [f"The paper's τ_w of LogME on dSprites, with its own models and full fine-tuning: {PAPER:+.2f}.", ""]
    for asked in questions:
        columns = ["model", "LogME", "place", "test R²", "test MSE / variance", "learning rate", "tried"]
        lines += [f"## {asked.name}", "", *table(columns, model_rows(asked)), ""]
    lines.append(
        "R² is the mean over the four targets, MSE / variance is 1 − R². – is a model that was not fine-tuned; rates "
        "in brackets diverged. Places by LogME are among all 17 models."
    )
    (HERE / "table.md").write_text("\n".join(lines) + "\n")
    draw(questions)


if __name__ == "__main__":
    main()
