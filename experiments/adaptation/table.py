"""table.md and figure.png out of results/: do scores that look beyond frozen features predict fine-tuning better?"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from agreement import SETS, WEIGHTS, between_seeds, fine_tuned, leave_one_out  # noqa: E402
from outcomes import CLASSIFICATION, Outcome, logme_on_all, table  # noqa: E402

from hubscout.evaluation import weighted_tau  # noqa: E402

RESULTS = HERE / "results"
USUAL_WEIGHT = 0.1
RESAMPLES = 200
LARGE = 4
"""Models with the most flops, which one column leaves out."""

Values = Mapping[str, Mapping[str, float]]
"""By set and model."""


@dataclass(frozen=True)
class Family:
    """The scores of a file."""

    file: str
    title: str
    images: int
    baseline: str
    """LogME of the same rows."""
    extraction: str
    """What the seconds of extracting features are called."""
    extra: tuple[str, ...]
    """Those on top."""
    own: tuple[str, ...]
    """How the names of its scores begin; the others are of frozen features."""
    shown: Mapping[str, str]
    """Score → what the table calls it."""

    @property
    def candidates(self) -> list[str]:
        return [name for name in all_scores(self.file) if name.startswith(self.own)]


FAMILIES = (
    Family(
        "tangents",
        "linearised network",
        256,
        "logme",
        "extraction",
        ("sketches",),
        ("random", "class-aware"),
        {
            "logme": "LogME of these rows",
            "frozen density": "frozen features, leave-one-out density",
            "random, alone": "tangents, random direction, alone",
            "class-aware, alone": "tangents, class-aware, alone",
            "random, mixed": "tangents, random direction, mixed",
            "class-aware, mixed": "tangents, class-aware, mixed",
            "class-aware, share 0.3": "tangents, class-aware, share 0.3",
            "class-aware, mixed, density": "tangents, class-aware, mixed, density",
            "class-aware, relative steps, mixed": "tangents, relative steps, mixed",
            "class-aware, layers alike, mixed": "tangents, layers alike, mixed",
            "class-aware, last third, mixed": "tangents, last third, mixed",
        },
    ),
    Family(
        "tangents",
        "outputs of all layers",
        256,
        "logme",
        "",
        (),
        ("pooled outputs",),
        {
            "pooled outputs, alone": "pooled outputs, alone",
            "pooled outputs, mixed": "pooled outputs, mixed",
            "pooled outputs, mixed, density": "pooled outputs, mixed, density",
        },
    ),
    Family(
        "layers",
        "inputs of convolutions",
        400,
        "logme",
        "",
        ("extraction and kernels", "scores"),
        ("all", "last", "components"),
        {
            "logme": "LogME of these rows",
            "all, 1 x 1": "all layers, mixed",
            "all, 1 x 1, density": "all layers, mixed, density",
            "last half, 1 x 1": "last half, mixed",
            "last half, 1 x 1, accuracy": "last half, mixed, accuracy",
            "last third, 1 x 1": "last third, mixed",
            "last third, 1 x 1, density": "last third, mixed, density",
            "all, 4 x 4": "all layers at 4 × 4 places, mixed",
            "components, 1 x 1": "components",
            "components, 1 x 1 and 4 x 4": "components, 1 × 1 and 4 × 4 places",
        },
    ),
    Family(
        "short",
        "twenty steps",
        256,
        "step 0",
        "extraction",
        ("steps",),
        ("step 10", "step 20", "best step", "mean", "accuracy", "log likelihood", "training loss"),
        {
            "step 0": "LogME of these rows",
            "step 10": "LogME after 10 steps",
            "step 20": "LogME after 20 steps",
            "best step": "LogME, best of 0, 10 and 20 steps",
            "mean of 0 and 20": "LogME, mean of 0 and 20 steps",
            "accuracy of the head": "accuracy of the tuned head",
            "training loss, negative": "training loss, negative",
        },
    ),
    Family(
        "views",
        "sizes and mirror images",
        400,
        "usual",
        "usual",
        ("smaller", "larger", "mirror"),
        ("smaller", "larger", "best size", "with", "usual and"),
        {
            "usual": "LogME of these rows",
            "smaller": "smaller images",
            "larger": "larger images",
            "best size": "best of three sizes",
            "with mirror image, average": "with mirror image, average",
            "with mirror image, side by side": "with mirror image, side by side",
            "usual and smaller, side by side": "usual and smaller, side by side",
            "usual and larger, average": "usual and larger, average",
            "usual and larger, side by side": "usual and larger, side by side",
            "usual and larger, scaled": "usual and larger, side by side, scaled",
        },
    ),
)
DERIVED = {
    "short": {
        "best step": lambda s: max(s["step 0"], s["step 10"], s["step 20"]),
        "mean of 0 and 20": lambda s: (s["step 0"] + s["step 20"]) / 2,
    },
    "views": {"best size": lambda s: max(s["smaller"], s["usual"], s["larger"])},
}


# What fine-tuning gave, and what the scores say -----------------------------------------------------------------------


@cache
def found() -> dict[str, dict[str, Outcome]]:
    return fine_tuned()


@cache
def names() -> tuple[str, ...]:
    """The models that are judged: those that have all scores and a reference on every set."""
    known = [set(models) for models in found().values()]
    known += [{line["model"] for line in lines(family.file) if line["set"] == s} for family in FAMILIES for s in SETS]
    return tuple(sorted(set.intersection(*known)))


@cache
def reference() -> Values:
    return {s: {model: found()[s][model].test for model in names()} for s in SETS}


@cache
def log_flops() -> Values:
    files = {s: json.loads((CLASSIFICATION / "scores" / f"{s}-layers.json").read_text())["rows"] for s in SETS}
    return {s: {model: float(np.log(files[s][model]["flops"])) for model in names()} for s in SETS}


@cache
def lines(file: str) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(line) for line in (RESULTS / f"{file}.jsonl").read_text().splitlines())


@cache
def all_scores(file: str) -> dict[str, Values]:
    """Score → its values, those made of others too."""
    collected: dict[str, dict[str, dict[str, float]]] = {}
    for line in lines(file):
        derived = {name: make(line["scores"]) for name, make in DERIVED.get(file, {}).items()}
        for name, value in {**line["scores"], **derived}.items():
            if line["model"] in names():
                collected.setdefault(name, {s: {} for s in SETS})[line["set"]][line["model"]] = value
    return dict(collected)


@cache
def smaller() -> tuple[str, ...]:
    """All models but the largest."""
    order = sorted(names(), key=lambda model: log_flops()["pets"][model])
    return tuple(sorted(order[: len(order) - LARGE]))


def plus_flops(values: Values, weight: float) -> Values:
    return {s: {model: value + weight * log_flops()[s][model] for model, value in values[s].items()} for s in SETS}


# How well they agree --------------------------------------------------------------------------------------------------


@cache
def draws() -> tuple[tuple[str, ...], ...]:
    """Resamples of the models, the same for every score and set."""
    generator = np.random.default_rng(0)
    return tuple(tuple(generator.choice(names(), len(names()))) for _ in range(RESAMPLES))


def taus(values: Values, models: Sequence[str]) -> list[float]:
    return [weighted_tau([values[s][m] for m in models], [reference()[s][m] for m in models]) for s in SETS]


class Judged:
    """A score beside fine-tuning, alone and with flops."""

    def __init__(self, values: Values) -> None:
        self.values = values

    @cached_property
    def alone(self) -> list[float]:
        return taus(self.values, names())

    @cached_property
    def by_weight(self) -> dict[float, list[float]]:
        return {weight: taus(plus_flops(self.values, weight), names()) for weight in WEIGHTS}

    @cached_property
    def with_flops(self) -> float:
        return float(np.mean(self.by_weight[USUAL_WEIGHT]))

    @cached_property
    def resampled(self) -> np.ndarray:
        """Means over the sets: a row a resample, without flops and with."""
        both = self.values, plus_flops(self.values, USUAL_WEIGHT)
        return np.array([[np.mean(taus(values, drawn)) for values in both] for drawn in draws()])

    def interval(self, column: int) -> tuple[float, float]:
        low, high = np.quantile(self.resampled[:, column], (0.025, 0.975))
        return float(low), float(high)

    def ahead_of(self, other: Judged, column: int) -> str:
        """The difference of the means, and 95% of its resamples."""
        means = (np.mean(self.alone), self.with_flops), (np.mean(other.alone), other.with_flops)
        low, high = np.quantile((self.resampled - other.resampled)[:, column], (0.025, 0.975))
        return f"{means[0][column] - means[1][column]:+.2f} [{low:+.2f}, {high:+.2f}]"


@cache
def judged(file: str, name: str) -> Judged:
    return Judged(all_scores(file)[name])


@cache
def frozen() -> Judged:
    """LogME on all train rows."""
    return Judged({s: {model: logme_on_all(s)[model] for model in names()} for s in SETS})


def ceiling() -> list[float]:
    """How well one seed of fine-tuning predicts the mean of the two others, set by set."""
    return [between_seeds({model: found()[s][model] for model in names()}) for s in SETS]


# Tables ---------------------------------------------------------------------------------------------------------------


def numbers(values: Sequence[float]) -> list[str]:
    return [*(f"{value:.2f}" for value in values), f"**{np.mean(values):.2f}**"]


def score_row(label: str, one: Judged, baseline: Judged | None) -> list[str]:
    weights, left_out = leave_one_out(one.by_weight)
    chosen = f"{np.mean(left_out):.2f} ({', '.join(f'{weight:g}' for weight in weights)})"
    few = [np.mean(taus(values, smaller())) for values in (one.values, plus_flops(one.values, USUAL_WEIGHT))]
    ahead = ["–", "–"] if baseline in (None, one) else [one.ahead_of(baseline, 0), one.ahead_of(baseline, 1)]
    return [
        label,
        *numbers(one.alone),
        f"{one.with_flops:.2f}",
        chosen,
        *ahead,
        " / ".join(f"{mean:.2f}" for mean in few),
    ]


def score_tables() -> list[str]:
    header = [
        "score",
        *SETS,
        "mean",
        "+ 0.1 log flops",
        "weight chosen on the other four sets",
        "difference to LogME of the same rows",
        "the same, both + 0.1 log flops",
        f"mean without the {LARGE} largest models, alone / + 0.1 log flops",
    ]
    flops, dashes = Judged(log_flops()), ["–"] * 4
    rows = [
        score_row("LogME, all train rows", frozen(), None),
        ["flops", *numbers(flops.alone), *dashes, f"{np.mean(taus(log_flops(), smaller())):.2f}"],
        ["one seed of fine-tuning against the mean of two others", *numbers(ceiling()), *dashes, "–"],
    ]
    text = [*table(header, rows), ""]
    for family in FAMILIES:
        baseline = judged(family.file, family.baseline)
        rows = [score_row(label, judged(family.file, name), baseline) for name, label in family.shown.items()]
        text += [f"## {family.title.capitalize()}, {family.images} rows", "", *table(header, rows), ""]
    return text


def choice_table() -> list[str]:
    """Score and weight chosen on four sets, judged on the fifth."""
    rows = []
    every: dict[Any, list[float]] = {}
    for family in FAMILIES:
        candidates = {
            (name, weight): by_set
            for name in family.candidates
            for weight, by_set in judged(family.file, name).by_weight.items()
        }
        every |= {(family.title, *key): by_set for key, by_set in candidates.items()}
        rows.append(choice_row(family.title, len(family.candidates), candidates))
    count = sum(len(family.candidates) for family in FAMILIES)
    rows.append(choice_row("all of them", count, every))
    rows.append(choice_row("LogME, all train rows: the weight alone", 1, dict(frozen().by_weight)))
    return list(table(["family", "scores", "with weights", *SETS, "mean", "best in hindsight"], rows))


def choice_row(title: str, count: int, candidates: Mapping[Any, Sequence[float]]) -> list[str]:
    best = max(np.mean(by_set) for by_set in candidates.values())
    return [title, str(count), str(len(candidates)), *numbers(leave_one_out(candidates)[1]), f"{best:.2f}"]


def cost_table() -> list[str]:
    """Of what a family does beside the extraction that LogME needs."""
    rows = []
    for family in (family for family in FAMILIES if family.extra):
        parts = (family.extraction, *family.extra)
        spent = np.array([[line["seconds"].get(name, 0.0) for name in parts] for line in lines(family.file)])
        first, whole = spent[:, 0], spent.sum(axis=1)
        shown = [f"{1000 * np.median(seconds) / family.images:.1f}" for seconds in (first, whole)]
        ratio = f"{np.median(whole / first):.1f}" if family.extraction else "–"
        what = " + ".join(name for name in parts if name)
        rows.append([family.title, what, shown[0] if family.extraction else "–", shown[1], ratio])
    return list(table(["family", "what is timed", "extraction, ms an image", "all, ms an image", "ratio"], rows))


# Figure ---------------------------------------------------------------------------------------------------------------

PLAIN, FLOPS = "#0072B2", "#D55E00"


def draw() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    count = sum(len(family.shown) + 1 for family in FAMILIES)
    figure, axis = plt.subplots(figsize=(7.5, 0.21 * count + 1.2), dpi=150, layout="constrained")
    place, ticks, labels = 0, [], []
    for family in FAMILIES:
        place += 1
        axis.text(-0.13, place, f"{family.title}, {family.images} rows", fontsize=8, fontweight="bold", va="center")
        for name, label in family.shown.items():
            place += 1
            one = judged(family.file, name)
            for column, (mean, colour, marker) in enumerate(
                ((np.mean(one.alone), PLAIN, "o"), (one.with_flops, FLOPS, "s"))
            ):
                height = place + (0.17 if column else -0.17)
                axis.plot(one.interval(column), (height, height), color=colour, linewidth=1, alpha=0.5)
                axis.plot(mean, height, marker, color=colour, markersize=3.5)
            ticks.append(place)
            labels.append(label)
    axis.axvline(float(np.mean(frozen().alone)), color=PLAIN, linestyle="--", linewidth=1)
    axis.axvline(frozen().with_flops, color=FLOPS, linestyle="--", linewidth=1)
    axis.axvline(float(np.mean(ceiling())), color="0.3", linestyle=":", linewidth=1.2)
    axis.plot([], [], "o-", color=PLAIN, markersize=3.5, label="the score")
    axis.plot([], [], "s-", color=FLOPS, markersize=3.5, label="+ 0.1 log flops")
    axis.plot([], [], "--", color="0.5", label="LogME of all train rows, the same way")
    axis.plot([], [], ":", color="0.3", label="one seed of fine-tuning")
    axis.set_yticks(ticks, labels, fontsize=7.5)
    axis.set_ylim(place + 0.8, 0.3)
    axis.set_xlim(-0.15, 0.95)
    axis.set_xlabel("mean $\\tau_w$ against fine-tuning over five sets, 95% over models", fontsize=9)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.savefig(HERE / "figure.png", metadata={"Software": None})


def main() -> None:
    text = [
        "# Weighted τ between scores and fine-tuning",
        "",
        f"{len(names())} models; in brackets 95% of {RESAMPLES} resamples of the models, the same for all scores.",
        "",
        *score_tables(),
        "# Score and weight of log flops chosen on four sets, judged on the fifth",
        "",
        *choice_table(),
        "",
        "# Cost, one thread, medians over models and sets",
        "",
        *cost_table(),
        "",
    ]
    (HERE / "table.md").write_text("\n".join(text))
    if "--no-figure" not in sys.argv:
        draw()


if __name__ == "__main__":
    main()
