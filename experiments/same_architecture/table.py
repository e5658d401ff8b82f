"""table.md and figure.png: families of models that differ in one thing, ordered by LogME and by fine-tuning.

Everything comes out of the results of `classification` and `regression`; this folder has none of its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import CLASSIFICATION, Outcome, logme_on_all, outcomes, table  # noqa: E402

REGRESSION = HERE.parent / "regression" / "results" / "references.jsonl"


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
SETS = ("pets", "cifar10", "fashion-mnist", "sign-digits", "omniglot", "sprites", "pet-heads")
COLOURS = dict(zip(SETS[:5], ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"), strict=True))
"""Of the sets in the figure: those for classification."""
MARKS = dict(zip(COLOURS, "osD^v", strict=True))


def order(values: dict[str, float]) -> str:
    """Names from the best down."""
    return " > ".join(sorted(values, key=lambda name: -values[name]))


def clearly_better(one: Outcome, other: Outcome) -> bool:
    """Whether every seed of the one is above every seed of the other; not to be told where a model has one seed."""
    return min(len(one.tests), len(other.tests)) > 1 and min(one.tests) > max(other.tests)


@dataclass(frozen=True)
class Comparison:
    """A family on a set: short name → LogME, and → outcome where all its members were fine-tuned."""

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
            agreed += (self.scores[one] - self.scores[other]) * (first.test - second.test) > 0
        return agreed, counted


def compare(family: Family, found: dict[str, dict[str, Outcome]]) -> list[Comparison]:
    """The family on every set."""
    comparisons = []
    for set_name in SETS:
        scores = logme_on_all(set_name)
        outcome = found.get(set_name, {})
        whole = all(model in outcome for model in family.members.values())
        comparisons.append(
            Comparison(
                set_name,
                {name: scores[model] for name, model in family.members.items()},
                {name: outcome[model] for name, model in family.members.items()} if whole else {},
            )
        )
    return comparisons


def rows_of(comparisons: list[Comparison]) -> list[list[str]]:
    rows = []
    for each in comparisons:
        tests = " / ".join(f"{100 * outcome.test:.1f}" for outcome in each.tuned.values()) or "not run"
        agreed = "{} of {}".format(*each.pairs(clear=False)) if each.tuned else ""
        rows.append(
            [
                each.set_name,
                " / ".join(f"{score:+.3f}" for score in each.scores.values()),
                tests,
                order(each.scores),
                order(each.tests),
                agreed,
            ]
        )
    return rows


def summary(comparisons: list[Comparison]) -> str:
    """How many orders there are, and how many pairs LogME gets right."""
    tuned = [each for each in comparisons if each.tuned]
    by_score = {order(each.scores) for each in comparisons}
    by_test = {order(each.tests) for each in tuned}
    pairs = [sum(column) for column in zip(*(each.pairs(clear=False) for each in tuned), strict=True)]
    clear = [sum(column) for column in zip(*(each.pairs(clear=True) for each in tuned), strict=True)]
    return (
        f"Different orders: {len(by_score)} by LogME over {len(comparisons)} sets, {len(by_test)} by fine-tuning over "
        f"{len(tuned)}. LogME orders {pairs[0]} of {pairs[1]} pairs as fine-tuning does, and {clear[0]} of the "
        f"{clear[1]} clear ones: two seeds each, and every seed of one model above every seed of the other."
    )


def draw(found: dict[str, dict[str, Outcome]]) -> None:
    """Accuracy less the family's mean against the place by LogME: a line that rises is an order that agrees."""
    chosen = [FAMILIES[0], FAMILIES[2], FAMILIES[3]]
    figure, axes = plt.subplots(1, len(chosen), figsize=(9, 3.7), dpi=150)
    for axis, family in zip(axes, chosen, strict=True):
        axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        places = range(len(family.members), 0, -1)
        for each in compare(family, found):
            if each.set_name not in COLOURS:
                continue
            mean = fmean(each.tests.values())
            heights = [100 * (each.tests[name] - mean) for name in sorted(each.scores, key=each.scores.__getitem__)]
            axis.plot(
                places, heights, MARKS[each.set_name], color=COLOURS[each.set_name], markersize=5, linestyle="-",
                linewidth=1.0, label=each.set_name,
            )  # fmt: skip
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
    found = outcomes(CLASSIFICATION / "references.jsonl")
    if REGRESSION.is_file():
        found |= outcomes(REGRESSION)
    lines = ["# Families that differ in one thing", ""]
    for family in FAMILIES:
        comparisons = compare(family, found)
        names = " / ".join(family.members)
        header = ["set", f"LogME: {names}", "fine-tuned, %", "order by LogME", "order by fine-tuning", "pairs agreed"]
        lines += [f"## {family.title}", "", *table(header, rows_of(comparisons)), "", summary(comparisons), ""]
    lines.append("Fine-tuned: mean over seeds of the test accuracy, for sprites and pet-heads of R², all times 100.")
    (HERE / "table.md").write_text("\n".join(lines) + "\n")
    draw(found)


if __name__ == "__main__":
    main()
