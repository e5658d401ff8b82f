"""table.md and figure.png: LogME of regression tasks against what fine-tuning gave."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import CLASSIFICATION, COLLAPSED, Outcome, logme_on_all, outcomes, table  # noqa: E402

from hubscout.evaluation import bootstrap_interval, kendall_tau, weighted_tau  # noqa: E402

REFERENCES = HERE / "results" / "references.jsonl"
SETS = ("sprites", "pet-heads")
PAPER = 0.79
SMALL_IMAGES = "cifar10_"
"""How the names of the models for 32 pixels begin."""
DIVERGED = "diverged"
COLOURS = {"32 pixels": "#d55e00", "96 pixels": "#0072b2"}
SIDES = [
    *((0, 5, "center", "bottom"), (0, -5, "center", "top"), (6, 0, "left", "center"), (-6, 0, "right", "center")),
    *(
        (across, up, "left" if across > 0 else "right", "bottom" if up > 0 else "top")
        for across in (3, -3, 8, -8)
        for up in (4, -4, 14, -14)
    ),
]
"""Where a name can be: points across and up from its mark, and what of it is there."""
ASTRAY = 300.0
"""What a name that is nearest to another's mark is as bad as: so many square pixels covered."""


@dataclass(frozen=True)
class Question:
    """A set: what is known of every model. Higher is better throughout."""

    name: str
    logme: dict[str, float]
    parameters: dict[str, float]
    flops: dict[str, float]
    reference: dict[str, Outcome]
    trials: dict[str, list[dict[str, Any]]]

    @property
    def with_capacity(self) -> dict[str, float]:
        """The metric `logme-capacity`, whose weight was fitted to classification."""
        return {model: value + 0.1 * math.log(self.flops[model] / 1e9) for model, value in self.logme.items()}

    @property
    def compared(self) -> list[str]:
        """Models with a reference, the best first."""
        return sorted(self.reference, key=lambda model: -self.reference[model].test)

    @property
    def at_full_size(self) -> list[str]:
        """Of these, the models for images of more than 32 pixels."""
        return [model for model in self.compared if not model.startswith(SMALL_IMAGES)]

    def goal(self, models: list[str]) -> np.ndarray:
        return np.array([self.reference[model].test for model in models])

    def search(self, model: str) -> str:
        """Validation's R² at every learning rate of the search."""
        tried = sorted((t for t in self.trials[model] if t["seed"] == 0), key=lambda t: float(t["learning_rate"]))
        found = (DIVERGED if t["test"] is None else f"{t['validation']:.2f}".replace("-0.00", "0.00") for t in tried)
        return ", ".join(f"{t['learning_rate']:g}: {value}" for t, value in zip(tried, found, strict=True))

    def seeds(self, model: str) -> str:
        """R² of every seed at the rate that was chosen, and which of them the mean leaves out."""
        outcome = self.reference[model]
        same = [t for t in self.trials[model] if t["learning_rate"] == outcome.learning_rate]
        told = []
        for trial in sorted(same, key=lambda trial: int(trial["seed"])):
            if trial["validation"] is None or trial["test"] is None:
                told.append(DIVERGED)
            else:
                collapsed = trial["validation"] < COLLAPSED * outcome.validation
                told.append(f"{trial['test']:.3f}" + " (collapsed)" * collapsed)
        return ", ".join(told)


def read() -> list[Question]:
    references = outcomes(REFERENCES)
    trials = [json.loads(line) for line in REFERENCES.read_text().splitlines()]
    found = []
    for name in SETS:
        rows = json.loads((CLASSIFICATION / "scores" / f"{name}-layers.json").read_text())["rows"]
        by_model = {model: [t for t in trials if (t["set"], t["model"]) == (name, model)] for model in rows}
        parameters = {model: float(row["params"]) for model, row in rows.items()}
        flops = {model: float(row["flops"]) for model, row in rows.items()}
        found.append(Question(name, logme_on_all(name), parameters, flops, references[name], by_model))
    return found


def tau_rows(questions: list[Question]) -> list[list[str]]:
    rows = []
    for asked in questions:
        for title, metric, models in (
            ("LogME", asked.logme, asked.compared),
            ("`logme-capacity`", asked.with_capacity, asked.compared),
            ("parameters", asked.parameters, asked.compared),
            ("flops", asked.flops, asked.compared),
            ("LogME, without the CIFAR-10 ResNets (chosen afterwards)", asked.logme, asked.at_full_size),
        ):
            scores, goal = np.array([metric[model] for model in models]), asked.goal(models)
            low, high = bootstrap_interval(scores, goal)
            taus = [signed(weighted_tau(scores, goal)), f"{signed(low)} to {signed(high)}"]
            rows.append([asked.name, title, str(len(goal)), *taus, signed(kendall_tau(scores, goal))])
    return rows


def signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # −0.00 is 0


def model_rows(asked: Question) -> list[list[str]]:
    rows = []
    places = {model: place for place, model in enumerate(sorted(asked.logme, key=lambda m: -asked.logme[m]), 1)}
    rest = sorted(set(asked.logme) - set(asked.reference), key=lambda model: -asked.logme[model])
    for model in [*asked.compared, *rest]:
        told = ["–"] * 4
        if model in asked.reference:
            outcome = asked.reference[model]
            told = [f"{outcome.test:.3f}", asked.seeds(model), f"{1 - outcome.test:.3f}", f"{outcome.learning_rate:g}"]
        rows.append([f"`{model}`", f"{asked.logme[model]:+.3f}", str(places[model]), *told, asked.search(model)])
    return rows


def short(model: str) -> str:
    """A name that fits beside a point."""
    for word in ("_features", "_in1k", "tf_efficientnet_", "_coral", "cifar10_", "_keras", "_fid", "1_1"):
        model = model.replace(word, "")
    return model.replace("mobilenetv2", "mobilenet").replace("_inat", "").replace("_", " ")


def draw(questions: list[Question]) -> None:
    figure, axes = plt.subplots(1, len(questions), figsize=(11, 4.4), dpi=150)
    for axis, asked in zip(axes, questions, strict=True):
        scores = np.array([asked.logme[model] for model in asked.compared])
        errors = 1 - asked.goal(asked.compared)
        small = np.array([model.startswith(SMALL_IMAGES) for model in asked.compared])
        for (label, colour), members in zip(COLOURS.items(), (small, ~small), strict=True):
            axis.scatter(scores[members], errors[members], c=colour, s=26, label=label)
        axis.set_yscale("log")
        axis.invert_yaxis()
        axis.yaxis.set_major_formatter("{x:.2f}")
        axis.yaxis.set_minor_formatter("{x:.2f}")
        axis.tick_params(which="both", labelsize=8)
        axis.margins(0.1)
        axis.set_title(f"{asked.name}: $\\tau_w$ = {signed(weighted_tau(scores, -errors))}", fontsize=10)
        axis.set_xlabel("LogME (centred)")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    axes[0].set_ylabel("test MSE / variance (reversed)")
    figure.tight_layout()
    for axis, asked in zip(axes, questions, strict=True):
        write_names(
            axis, {short(model): (asked.logme[model], 1 - asked.reference[model].test) for model in asked.compared}
        )
    figure.savefig(HERE / "figure.png", metadata={"Software": None})


def write_names(axis: Axes, points: dict[str, tuple[float, float]]) -> None:
    """Each name where it covers least of other points and names, and is nearest to its own point."""
    spots = axis.transData.transform(list(points.values()))
    taken = [Bbox.from_extents(*(spot - 6), *(spot + 6)) for spot in spots]
    renderer = axis.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    for own, (name, point) in enumerate(points.items()):
        best, least = None, np.inf
        for across, up, horizontal, vertical in SIDES:
            text = axis.annotate(
                name, point, (across, up), textcoords="offset points", fontsize=7.5, ha=horizontal, va=vertical
            )
            box = text.get_window_extent(renderer)
            bad = sum(shared(box, other) for other in taken) + shared(box, box) - shared(box, axis.bbox)
            bad += ASTRAY * (int(np.argmin([distance(box, spot) for spot in spots])) != own)
            if bad < least:
                if best is not None:
                    best.remove()
                best, least, place = text, bad, box
            else:
                text.remove()
        taken.append(place)


def distance(box: Bbox, spot: np.ndarray) -> float:
    """Pixels from a point to the nearest of a box."""
    return float(np.linalg.norm(spot - np.clip(spot, box.min, box.max)))


def shared(one: Bbox, other: Bbox) -> float:
    """Area in square pixels."""
    common = Bbox.intersection(one, other)
    return 0.0 if common is None else float(common.width * common.height)


def main() -> None:
    questions = read()
    header = ["set", "score", "models", "τ_w", "95% over models", "τ"]
    lines = ["# Regression: LogME against fine-tuning", "", *table(header, tau_rows(questions)), ""]
    lines += [f"The paper's τ_w of LogME on dSprites, with its own models and full fine-tuning: {PAPER:+.2f}.", ""]
    for asked in questions:
        columns = [
            "model",
            "LogME",
            "place",
            "test R²",
            "each seed",
            "test MSE / variance",
            "rate",
            "validation R² by rate",
        ]
        lines += [f"## {asked.name}", "", *table(columns, model_rows(asked)), ""]
    lines.append(
        "R² is the mean over the four targets and over the seeds that neither diverged nor collapsed (validation below "
        f"{COLLAPSED:.0%} of seed 0's); MSE / variance is 1 − R²; an R² of 0 is what predicting the mean gives. Places "
        "by LogME are among all 17."
    )
    (HERE / "table.md").write_text("\n".join(lines) + "\n")
    draw(questions)


if __name__ == "__main__":
    main()
