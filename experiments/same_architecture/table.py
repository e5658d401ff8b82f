"""table.md and figure.png: families of models that differ in one thing, ordered by LogME and by fine-tuning.

Everything comes out of the results of `classification` and `regression`; this folder has none of its own.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import CLASSIFICATION, COLLAPSED, Outcome, logme_on_all, outcomes, table  # noqa: E402

REFERENCES = (CLASSIFICATION / "references.jsonl", HERE.parent / "regression" / "results" / "references.jsonl")


@dataclass(frozen=True)
class Family:
    """Models that differ in one thing; `members` is short name → model."""

    title: str
    heading: str
    members: dict[str, str]


FAMILIES = (
    Family(
        "One MobileNetV2, three pre-trainings",
        "MobileNetV2: pre-training",
        {
            "ImageNet": "mobilenetv2_coral_in1k",
            "birds": "mobilenetv2_coral_inat_bird",
            "insects": "mobilenetv2_coral_inat_insect",
        },
    ),
    Family(
        "The same with a second ImageNet training (TF-Hub's)",
        "MobileNetV2 and TF-Hub's",
        {
            "ImageNet": "mobilenetv2_coral_in1k",
            "birds": "mobilenetv2_coral_inat_bird",
            "insects": "mobilenetv2_coral_inat_insect",
            "TF-Hub": "mobilenetv2_tfhub_in1k",
        },
    ),
    Family(
        "One pre-training (CIFAR-10), four depths of ResNet",
        "CIFAR-10 ResNets: depth",
        {str(depth): f"cifar10_resnet{depth}" for depth in (20, 32, 44, 56)},
    ),
    Family(
        "One pre-training (ImageNet), three sizes of EfficientNet-Lite",
        "EfficientNet-Lites: size",
        {f"Lite{size}": f"tf_efficientnet_lite{size}_in1k" for size in range(3)},
    ),
)
SPREAD = 0.1
"""Seeds of one setting that are so far apart did not end in the same place."""
SETS = ("pets", "cifar10", "fashion-mnist", "sign-digits", "omniglot", "sprites", "pet-heads")
COLOURS = dict(zip(SETS[:5], ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"), strict=True))
"""Of the sets in the figure: those for classification."""
MARKS = dict(zip(COLOURS, "osD^v", strict=True))


def order(values: dict[str, float]) -> str:
    """Names from the best down.

    >>> order({"a": 0.5, "b": 0.7, "c": 0.5})
    'b > a = c'
    """
    text, last = "", math.inf
    for name in sorted(values, key=lambda name: -values[name]):
        text += (" = " if math.isclose(values[name], last) else " > ") * bool(text) + name
        last = values[name]
    return text


def clearly_better(one: Outcome, other: Outcome) -> bool:
    """Whether every seed of the one is above every seed of the other; not to be told of a model that has one alone."""
    return min(len(one.tests), len(other.tests)) > 1 and min(one.tests) > max(other.tests)


@dataclass(frozen=True)
class Comparison:
    """A family on a set: short name → LogME, and → outcome."""

    set_name: str
    scores: dict[str, float]
    tuned: dict[str, Outcome]

    @property
    def tests(self) -> dict[str, float]:
        return {name: outcome.test for name, outcome in self.tuned.items()}

    def pairs(self, *, clear: bool) -> tuple[int, int]:
        """Pairs that LogME orders as fine-tuning does, of how many."""
        agreed = counted = 0
        for one, other in combinations(self.tuned, 2):
            first, second = self.tuned[one], self.tuned[other]
            if clear and not (clearly_better(first, second) or clearly_better(second, first)):
                continue
            counted += 1
            tied = math.isclose(first.test, second.test)
            agreed += not tied and (self.scores[one] > self.scores[other]) == (first.test > second.test)
        return agreed, counted


def compare(family: Family, found: dict[str, dict[str, Outcome]]) -> list[Comparison]:
    """The family on every set."""
    return [
        Comparison(
            set_name,
            {name: logme_on_all(set_name)[model] for name, model in family.members.items()},
            {name: found[set_name][model] for name, model in family.members.items()},
        )
        for set_name in SETS
    ]


def rows_of(comparisons: list[Comparison]) -> list[list[str]]:
    return [
        [
            each.set_name,
            " / ".join(f"{score:+.3f}" for score in each.scores.values()),
            " / ".join(f"{100 * test:.1f}" for test in each.tests.values()),
            order(each.scores),
            order(each.tests),
            "{} of {}".format(*each.pairs(clear=False)),
            "{} of {}".format(*each.pairs(clear=True)),
        ]
        for each in comparisons
    ]


def summary(comparisons: list[Comparison]) -> str:
    """How many orders there are, and how many pairs LogME gets right."""
    by_score = {order(each.scores) for each in comparisons}
    by_test = {order(each.tests) for each in comparisons}
    pairs = [sum(column) for column in zip(*(each.pairs(clear=False) for each in comparisons), strict=True)]
    clear = [sum(column) for column in zip(*(each.pairs(clear=True) for each in comparisons), strict=True)]
    return (
        f"Different orders over {len(comparisons)} sets: {len(by_score)} by LogME, {len(by_test)} by fine-tuning. "
        f"LogME orders {pairs[0]} of {pairs[1]} pairs as fine-tuning does, and {clear[0]} of the {clear[1]} clear ones."
    )


def seeds_run() -> dict[tuple[str, str, float, float], list[dict[str, Any]]]:
    """(Set, model, learning rate, weight decay) → the trial of every seed, those that went wrong too."""
    found: dict[tuple[str, str, float, float], list[dict[str, Any]]] = defaultdict(list)
    for text in (line for file in REFERENCES for line in file.read_text().splitlines()):
        trial = json.loads(text)
        found[trial["set"], trial["model"], trial["learning_rate"], trial["weight_decay"]].append(trial)
    return {setting: sorted(trials, key=lambda trial: int(trial["seed"])) for setting, trials in found.items()}


def seed_words(trial: dict[str, Any], outcome: Outcome) -> str:
    """What a seed gave, and whether it is left out of the mean."""
    if trial["validation"] is None or trial["test"] is None:
        return "diverged"
    return f"{100 * trial['test']:.1f}" + " collapsed" * (trial["validation"] < COLLAPSED * outcome.validation)


def failed_line(found: dict[str, dict[str, Outcome]]) -> str:
    """The fresh seeds that went wrong at the setting that seed 0 chose."""
    members = {model for family in FAMILIES for model in family.members.values()}
    seeds = seeds_run()
    told = []
    for set_name in SETS:
        for model, outcome in sorted(found[set_name].items()):
            trials = seeds[set_name, model, outcome.learning_rate, outcome.weight_decay]
            apart = max(outcome.tests) - min(outcome.tests) > SPREAD
            if model in members and (apart or len(outcome.tests) < len(trials)):
                told.append(f"{model} on {set_name} ({', '.join(seed_words(trial, outcome) for trial in trials)})")
    return (
        f"Models of which a seed diverged or collapsed (validation below {COLLAPSED:.0%} of seed 0's), which is left "
        f"out of the mean, or of which the seeds that are kept are more than {100 * SPREAD:.0f} points apart: "
        f"{'; '.join(told)}."
    )


def draw(found: dict[str, dict[str, Outcome]]) -> None:
    """Accuracy less the family's mean against the place by LogME: a line that rises is an order that agrees."""
    chosen = [FAMILIES[0], FAMILIES[2], FAMILIES[3]]
    figure, axes = plt.subplots(1, len(chosen), figsize=(9, 3.7), dpi=150, sharey=True)
    for axis, family in zip(axes, chosen, strict=True):
        axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        places = range(len(family.members), 0, -1)
        for each in compare(family, found):
            if each.set_name not in COLOURS:
                continue
            mean = fmean(each.tests.values())
            heights = [100 * (each.tests[name] - mean) for name in sorted(each.scores, key=each.scores.__getitem__)]
            axis.plot(
                places,
                heights,
                MARKS[each.set_name],
                color=COLOURS[each.set_name],
                markersize=5,
                linestyle="-",
                linewidth=1.0,
                label=each.set_name,
            )
        axis.invert_xaxis()
        axis.set_xticks(list(places), ["best" if place == 1 else str(place) for place in places])
        axis.set_title(family.heading, fontsize=10)
        axis.set_xlabel("place by LogME")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("test accuracy less\nthe family's mean (points)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(HERE / "figure.png", metadata={"Software": None})


def main() -> None:
    found = {name: models for file in REFERENCES for name, models in outcomes(file).items()}
    lines = ["# Families that differ in one thing", ""]
    for family in FAMILIES:
        comparisons = compare(family, found)
        names = " / ".join(family.members)
        header = [
            "set",
            f"LogME: {names}",
            "fine-tuned, %",
            "order by LogME",
            "order by fine-tuning",
            "pairs agreed",
            "clear",
        ]
        lines += [f"## {family.title}", "", *table(header, rows_of(comparisons)), "", summary(comparisons), ""]
    lines += [
        "Fine-tuned: mean over seeds (without those that diverged or collapsed) of the test accuracy, for sprites and "
        "pet-heads of R², all times 100. A pair is clear where every seed of one model is above every seed of "
        "the other, with two seeds each or more.",
        "",
        failed_line(found),
    ]
    (HERE / "table.md").write_text("\n".join(lines) + "\n")
    draw(found)


if __name__ == "__main__":
    main()
