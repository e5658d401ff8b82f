"""table.md, figure.png (by case) and sizes.png (by the number of train samples) out of results/."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from scipy import stats

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import explore  # noqa: E402
from outcomes import table as markdown  # noqa: E402

BASE, DEFAULT, UPPER = "fine-tune", "b-tuning", "the best teacher itself, tuned"
CHOSEN_FIRST, CHOSEN_SECOND = "features beside b-tuning", "b-tuning, 3C"
"""What the first and the second exploration chose."""
RECORDS = list(map(json.loads, (HERE / "results" / "runs.jsonl").read_text().splitlines()))
CHOSEN = explore.choose(explore.whole(RECORDS, explore.FIFTH), explore.FIFTH)["default"]
CHOSEN_VIEWS = explore.choose(RECORDS, explore.SECOND)["with views"]
"""What the fifth one chose, and the second one of what costs sixteen passes of the teachers."""
HALFWAY = "crossed, 6C, bounded, halfway"
"""What `tune` does."""
NO_TEACHERS = "crossed, 6C, bounded, no teachers"
"""And what its `method="b-tuning"` does where nobody teaches."""
VARIED = ("uniform", "precision", "tuned teachers", "untrained teachers")
"""How else its teachers are weighed, and other teachers."""
TODAY, BOUNDED = "crossed, 6C", "crossed, 6C, bounded by 0.25"
"""What the third and the fourth exploration chose, and the same with the bound that `tune` has."""
TODAY_BEFORE, CHOSEN_BEFORE = "crossed, 3C", "crossed, 3C, answers 0.1"
"""What `tune` did before, and what the third exploration chose at its first look."""
LABELS, BESIDE_FEATURES = "crossed, 6C, labels", "crossed, 6C, feature kd 0.0003"
"""B-Tuning towards the labels, without teachers; and with the features of `kd` beside it."""
ZERO_MAPS = "feature kd, zero maps"
"""`kd` with maps that begin at zero and not at random."""
NO_KNOBS = tuple(
    f"{name}, no knobs"
    for name in dict.fromkeys(
        (
            "fine-tune",
            HALFWAY,
            NO_TEACHERS,
            "b-tuning",
            CHOSEN_SECOND,
            TODAY_BEFORE,
            TODAY,
            BOUNDED,
            LABELS,
            CHOSEN_BEFORE,
            CHOSEN,
            "feature kd, default",
            ZERO_MAPS,
        )
    )
)
"""B-Tuning at λ = C, which was its default."""
OURS = ("b-tuning", "crossed", "features", "left out", "untrained")
"""How names of what is or holds B-Tuning begin; the others are baselines."""
EQUAL_RATE = "fine-tune, rate of b-tuning"
"""By size, methods are compared with fine-tuning at B-Tuning's rate where that was run."""
LEAST_SEEDS = 5
FRESH = range(1, 11)
STUDENTS = {
    "mobilenetv2_coral_in1k": "MobileNetV2",
    "tf_efficientnet_lite0_in1k": "EfficientNet-Lite0",
    "tf_efficientnet_lite1_in1k": "EfficientNet-Lite1",
    "cifar10_resnet20": "ResNet-20",
    "paraphrase-MiniLM-L3-v2": "MiniLM-L3",
}
SIZES = {
    "Pets, MobileNetV2": {370: "pets-370", 1110: "pets-1110", 3312: "pets-all"},
    "CIFAR-10, MobileNetV2": {500: "cifar10-500", 1500: "cifar10-1500", 4500: "cifar10-all"},
}
DRAWN = {
    HALFWAY: "#CC79A7",
    DEFAULT: "#0072B2",
    "feature kd": "#009E73",
    ZERO_MAPS: "#56B4E9",
    "logit-kd, weak": "#D55E00",
    UPPER: "#888888",
}

Tests = dict[tuple[str, str], dict[int, float]]


@dataclass(frozen=True)
class Method:
    """Whether teachers are used, and what a run costs beside a run of fine-tuning."""

    taught: bool
    cost: str = "1"
    """"1" also has what it takes to show the train samples to the teachers once."""
    control: bool = False
    """A check, and nothing that one would use."""


VIEWS = "1 + 16 passes of the teachers"
METHODS = {
    "fine-tune": Method(False),
    "fine-tune, rate of b-tuning": Method(False),
    CHOSEN_VIEWS: Method(True, VIEWS),
    HALFWAY: Method(True),
    NO_TEACHERS: Method(False),
    f"{HALFWAY}, uniform": Method(True),
    f"{HALFWAY}, precision": Method(True),
    f"{HALFWAY}, tuned teachers": Method(True, "1 + tuning three teachers"),
    f"{HALFWAY}, untrained teachers": Method(True, control=True),
    TODAY: Method(True),
    CHOSEN: Method(True),
    BESIDE_FEATURES: Method(True),
    LABELS: Method(False),
    TODAY_BEFORE: Method(True),
    CHOSEN_BEFORE: Method(True),
    CHOSEN_SECOND: Method(True),
    "b-tuning, 3C, answers 0.1": Method(True),
    "b-tuning, 3C, centred": Method(True, control=True),
    CHOSEN_FIRST: Method(True),
    "b-tuning": Method(True),
    "b-tuning, 16 views": Method(True, VIEWS),
    "b-tuning, live": Method(True, "1 + teachers at each step"),
    "b-tuning, views": Method(True, "1 + 4 passes of the teachers"),
    "b-tuning, uniform": Method(True),
    "b-tuning, precision": Method(True),
    "b-tuning, left out": Method(True),
    "b-tuning, tuned teachers": Method(True, "1 + tuning three teachers"),
    "b-tuning, one teacher": Method(True),
    "b-tuning, one tuned teacher": Method(True, "1 + tuning a teacher"),
    "b-tuning with mixup and ema": Method(True),
    "feature kd": Method(True),
    ZERO_MAPS: Method(True),
    "feature kd, 16 views": Method(True, VIEWS),
    "logit-kd": Method(True),
    "logit-kd, weak": Method(True),
    "logit-kd, one teacher": Method(True),
    "logit-kd, live": Method(True, "1 + teachers at each step"),
    "logit-kd, views": Method(True, "1 + 4 passes of the teachers"),
    "logit-kd, 16 views": Method(True, VIEWS),
    "logit-kd, tuned teachers": Method(True, "1 + tuning three teachers"),
    "logit-kd, one tuned teacher": Method(True, "1 + tuning a teacher"),
    "distill-weighted": Method(True),
    "distill-weighted, uniform": Method(True),
    "self-distillation": Method(True),
    "shuffled teachers": Method(True, control=True),
    "untrained teachers": Method(True, control=True),
    "untrained b-tuning teachers": Method(True, control=True),
    "label smoothing": Method(False),
    "head from the posterior": Method(False),
    "l2-sp": Method(False),
    "mixup": Method(False),
    "ema": Method(False),
    "lora": Method(False),
    "twice the steps": Method(False, "2"),
    "soup of four runs": Method(False, "4"),
    UPPER: Method(False, "a larger network"),
}
"""In the order of the lines."""


def load() -> tuple[Tests, dict[tuple[str, str], dict[str, Any]]]:
    """Test values of the fresh seeds by case and method, and the setting that validation chose."""
    tests: Tests = defaultdict(dict)
    settings: dict[tuple[str, str], dict[str, Any]] = {}
    for record in RECORDS:
        if record["seed"] in FRESH and record.get("test") is not None:
            tests[record["case"], record["method"]][record["seed"]] = 100 * record["test"]
            settings[record["case"], record["method"]] = record
    whole = {pair: found for pair, found in tests.items() if len(found) >= LEAST_SEEDS}
    shared = "pets-370/tf_efficientnet_lite0_in1k", "pets-370/mobilenetv2_coral_in1k"
    if (shared[1], UPPER) in whole:  # the same teacher on the same samples, whoever the student is
        whole.setdefault((shared[0], UPPER), whole[shared[1], UPPER])
    return whole, settings


def difference(ours: dict[int, float], theirs: dict[int, float]) -> tuple[float, float]:
    """Mean over equal seeds, and half the width of its 95% interval by Student's t."""
    gaps = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    return fmean(gaps), float(stats.t.ppf(0.975, len(gaps) - 1)) * stdev(gaps) / len(gaps) ** 0.5


def told(mean: float, half: float) -> str:
    """A difference with its interval, bold where the interval is clear of zero."""
    text = f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"
    return f"**{text}**" if abs(mean) > half else text


def title(case: str) -> str:
    name, student = case.split("/")[:2]
    return f"{name}, {STUDENTS[student]}"


def points(tests: Tests, cases: Sequence[str]) -> list[list[str]]:
    """A row for each method: its cost, and points over fine-tuning on each case."""
    rows = []
    for method, card in METHODS.items():
        cells = []
        for case in cases:
            found = tests.get((case, method))
            if found is None:
                cells.append("–")
            elif method == BASE:
                cells.append(f"{fmean(found.values()):.2f}")
            else:
                cells.append(told(*difference(found, tests[case, BASE])))
        if set(cells) != {"–"}:
            rows.append([method, card.cost, *cells])
    return rows


def rivals(tests: Tests, case: str, method: str, *, baselines: bool = False) -> list[str]:
    """What costs no more than a method on a case and is neither a variant of it nor a check; or baselines alone."""
    family = method.partition(",")[0].partition(" with")[0]
    same = [name for name, card in METHODS.items() if card.cost in ("1", METHODS[method].cost) and not card.control]
    same = [name for name in same if (case, name) in tests and name != method]
    if baselines:
        return [name for name in same if not name.startswith(OURS)]
    return [name for name in same if name in (LABELS, NO_TEACHERS) or not name.startswith(family)]


def verdict(gap: tuple[float, float]) -> str:
    """Of a difference and half of its interval."""
    return "ahead" if gap[0] > gap[1] else "behind" if -gap[0] > gap[1] else "not told apart"


def against_the_best(tests: Tests, cases: Sequence[str], method: str = DEFAULT) -> tuple[list[list[str]], list[str]]:
    """A method beside the best baseline and the best of all others of its cost; how it compares with the former."""
    rows, verdicts = [], []
    for case in cases:
        if (case, method) not in tests:
            continue
        cells = [title(case), told(*difference(tests[case, method], tests[case, BASE]))]
        for only in (True, False):
            known = rivals(tests, case, method, baselines=only)
            best = max(known, key=lambda name: fmean(tests[case, name].values()))
            gap = difference(tests[case, method], tests[case, best])
            cells += [best, told(*gap), *([verdict(gap), str(len(known))] if only else [])]
            verdicts += [verdict(gap)] if only else []
        rows.append(cells)
    return rows, verdicts


def shares_of_the_gap(tests: Tests, cases: Sequence[str], methods: Sequence[str]) -> list[list[str]]:
    """How much of the way from the fine-tuned student to the fine-tuned teacher each method goes."""
    rows = []
    for case in cases:
        if (case, UPPER) not in tests:
            continue
        gap, half = difference(tests[case, UPPER], tests[case, BASE])
        cells = []
        for method in methods:
            if (case, method) not in tests or gap <= half:
                cells.append("–")
            else:
                cells.append(f"{100 * difference(tests[case, method], tests[case, BASE])[0] / gap:.0f}%")
        rows.append([title(case), f"{fmean(tests[case, UPPER].values()):.2f}", told(gap, half), *cells])
    return rows


def at_equal_rates(methods: Sequence[str]) -> list[list[str]]:
    """The searches alone: at each rate that fine-tuning and a method both tried, points of test over fine-tuning."""
    runs: dict[tuple[str, float], dict[str, dict[str, Any]]] = defaultdict(dict)
    for record in RECORDS:
        if record["seed"] == 0 and record.get("test") is not None:
            here = runs[record["case"], record["learning_rate"]]
            known = here.get(record["method"])
            if known is None or record["validation"] > known["validation"]:  # the better strength
                here[record["method"]] = record
    rows = []
    for (case, rate), here in runs.items():
        found = [
            100 * (here[name]["test"] - here[BASE]["test"]) if {name, BASE} <= set(here) else None for name in methods
        ]
        if any(gap is not None for gap in found):
            cells = ["–" if gap is None else f"{gap:+.1f}" for gap in found]
            rows.append([title(case), f"{rate:g}", f"{100 * here[BASE]['test']:.1f}", *cells])
    return sorted(rows)


def without_knobs(tests: Tests, names: Sequence[str]) -> list[list[str]]:
    """What a user gets who gives neither a rate nor a strength."""
    rates: dict[tuple[str, str], set[float]] = defaultdict(set)
    for record in RECORDS:
        if "found_rate" in record:
            rates[record["case"], record["method"]].add(record["found_rate"])
    rows = []
    for case in dict.fromkeys(case for case, method in tests if method == names[0]):
        known = [name for name in names if (case, name) in tests]
        plain = tests[case, names[0]]
        gaps = [told(*difference(tests[case, name], plain)) if name in known else "–" for name in names[1:]]
        found = " / ".join(", ".join(f"{rate:g}" for rate in sorted(rates[case, name])) for name in known)
        rows.append([title(case), f"{fmean(plain.values()):.2f}", *gaps, found])
    return rows


def one_over_another(tests: Tests, cases: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """A row for each case that has any of the pairs: points of the first method of each over the second."""
    rows = []
    for case in cases:
        known = [(tests.get((case, one)), tests.get((case, other))) for one, other in pairs]
        cells = [told(*difference(one, other)) if one and other else "–" for one, other in known]
        if set(cells) != {"–"}:
            rows.append([title(case), *cells])
    return rows


def exploration(name: str, about: explore.Exploration) -> list[str]:
    """What could have become the default: points over fine-tuning on cases of their own."""
    validation, test = (explore.gains(RECORDS, about, part) for part in ("validation", "test"))
    if not validation:
        return []
    cases = [case for case in about.cases if case in validation[BASE]]
    rows = [
        [
            method,
            f"{explore.overall(found, about):+.2f}",
            *(f"{found[case]:+.1f}" if case in found else "–" for case in cases),
            f"{explore.overall(test[method], about):+.2f}",
        ]
        for method, found in sorted(validation.items(), key=lambda pair: -explore.overall(pair[1], about))
    ]
    seeds = {record["seed"] for record in RECORDS} & set(about.seeds)
    lines = [f"## {name}", "", f"Points of validation over fine-tuning, {len(seeds)} seeds; the last column, of test,"]
    lines += ["chose nothing. The rule stands in `explore.py`, from before the runs.", ""]
    lines += markdown(["method", "mean", *map(title, cases), "mean on test"], rows)
    chosen = explore.choose(RECORDS, about)
    return [*lines, "", f"Chosen: {chosen['default']}; with views: {chosen['with views']}.", ""]


def main() -> None:
    tests, settings = load()
    cases = list(dict.fromkeys(case for case, method in tests if method == BASE))
    lines = [
        "# Points over fine-tuning",
        "",
        "Test metric times 100 (accuracy; R² for pet-heads, Spearman's ρ for SICK) over five fresh seeds, or ten where",
        "both have them, with 95% intervals of differences paired by seed; bold: clear of zero. Fine-tuning's row is",
        "its own value. A cost of 1 is that of fine-tuning, and one pass of the teachers over the train samples.",
        "",
    ]
    lines += [*markdown(["method", "cost", *map(title, cases)], points(tests, cases)), ""]
    lines += ["## Against the best of the same cost", ""]
    lines += ["The best has the highest mean on test, which is hard on the other: it is chosen after seeing.", ""]
    lines += [
        "A baseline is what neither is nor holds B-Tuning. What needs several passes has rivals of one pass too.",
        "",
    ]
    header = ["case", "over fine-tuning", "best baseline", "over it", "", "baselines measured", "best other", "over it"]
    for method in dict.fromkeys(
        (
            HALFWAY,
            NO_TEACHERS,
            TODAY,
            LABELS,
            CHOSEN,
            BESIDE_FEATURES,
            TODAY_BEFORE,
            CHOSEN_BEFORE,
            CHOSEN_SECOND,
            CHOSEN_VIEWS,
            CHOSEN_FIRST,
            DEFAULT,
            "feature kd",
            ZERO_MAPS,
            "logit-kd, weak",
        )
    ):
        rows, verdicts = against_the_best(tests, cases, method)
        if not rows:
            continue
        counts = ", ".join(f"{verdicts.count(name)} {name}" for name in ("ahead", "not told apart", "behind"))
        lines += [f"### {method}", "", *markdown(header, rows), "", f"{len(rows)} cases: {counts}.", ""]
    measured = [name for name in NO_KNOBS if any(method == name for _, method in tests)]
    if plain := without_knobs(tests, measured):
        lines += ["## Without knobs", ""]
        lines += [
            "The learning rate that `tune` finds, and one strength: C, 3·C or 6·C for B-Tuning, 0.5 over the number of"
        ]
        lines += ["features for feature kd. Points of test over fine-tuning, whose column is its own value.", ""]
        lines += [*markdown(["case", *measured, "rates found"], plain), ""]
    lines += ["## With teachers over without", ""]
    lines += [f'Points of test of "{HALFWAY}" over "{NO_TEACHERS}".', ""]
    without = [(HALFWAY, NO_TEACHERS), (f"{HALFWAY}, no knobs", f"{NO_TEACHERS}, no knobs")]
    rows = one_over_another(tests, cases, without)
    lines += [*markdown(["case", "at searched rates", "without knobs"], rows), ""]
    lines += ["## Teachers weighed otherwise, and other teachers", ""]
    lines += [f'Points of test over "{HALFWAY}", at its rate.', ""]
    rows = one_over_another(tests, cases, [(f"{HALFWAY}, {name}", HALFWAY) for name in VARIED])
    lines += [*markdown(["case", *VARIED], rows), ""]
    lines += exploration("The fifth exploration", explore.FIFTH)
    lines += exploration("The fourth exploration", explore.FOURTH)
    lines += exploration("The third exploration", explore.THIRD)
    lines += exploration("The second exploration", explore.SECOND)
    lines += exploration("The first exploration", explore.FIRST)
    lines += ["## The share of the gap to the tuned teacher", ""]
    lines += ["The best teacher by LogME, fine-tuned with the same search; – where it is not clearly ahead.", ""]
    shown = [
        HALFWAY,
        NO_TEACHERS,
        TODAY,
        LABELS,
        CHOSEN_VIEWS,
        DEFAULT,
        "b-tuning, live",
        "feature kd",
        "logit-kd, weak",
        "logit-kd, tuned teachers",
    ]
    rows = shares_of_the_gap(tests, cases, shown)
    lines += [*markdown(["case", "tuned teacher", "over the fine-tuned student", *shown], rows), ""]
    lines += ["## At equal learning rates", ""]
    lines += ["The runs of the searches, one seed, so that no choice of a rate is in it; points of test.", ""]
    core = [HALFWAY, TODAY, LABELS, DEFAULT, "feature kd", ZERO_MAPS, "logit-kd, weak"]
    lines += [*markdown(["case", "rate", "fine-tuning", *core], at_equal_rates(core)), ""]
    lines += ["## What validation chose", ""]
    chosen = [
        [case, method, f"{record['learning_rate']:g}", str(record["strength"] or "–")]
        for (case, method), record in settings.items()
        if (case, method) in tests and case in cases
    ]
    lines += markdown(["case", "method", "learning rate", "strength"], chosen)
    (HERE / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(tests, cases)
    draw_sizes(tests)


def draw(tests: Tests, cases: Sequence[str]) -> None:
    cases = [case for case in cases if any((case, name) in tests for name in METHODS if name != BASE)]
    methods = [name for name in METHODS if name != BASE and any((case, name) in tests for case in cases)]
    columns = min(len(cases), 7)
    height = -(-len(cases) // columns)
    figure, grid = plt.subplots(
        height, columns, figsize=(2.6 * columns + 2, 0.21 * len(methods) * height + 1.4), sharey=True, squeeze=False
    )
    for panel, case in zip(grid.flat, cases, strict=False):
        panel.axvline(0, color="#888888", linewidth=1)
        for row, method in enumerate(methods):
            if (case, method) not in tests:
                continue
            mean, half = difference(tests[case, method], tests[case, BASE])
            colour = "#0072B2" if METHODS[method].taught else "#D55E00"
            inside = min(max(mean, -9), 12)
            mark = "o" if inside == mean else "<" if mean < 0 else ">"
            half = half if mark == "o" else 0
            panel.errorbar(inside, row, xerr=half, fmt=mark, color=colour, capsize=2, markersize=4)
        panel.set_title(title(case).replace(", ", "\n"), fontsize=9)
        panel.set_xlim(-9.5, 12.5)
        panel.grid(axis="x", alpha=0.3)
    for panel in grid.flat[len(cases) :]:
        panel.set_visible(False)
    for row in grid:
        row[0].set_yticks(range(len(methods)), methods, fontsize=7)
    grid[0][0].invert_yaxis()
    figure.supxlabel("points over fine-tuning (arrow: further out)", fontsize=9)
    figure.legend(
        handles=[
            plt.Line2D([], [], color="#0072B2", marker="o", label="with teachers"),
            plt.Line2D([], [], color="#D55E00", marker="o", label="without teachers"),
        ],
        loc="upper right",
        fontsize=8,
        ncols=2,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    figure.savefig(HERE / "figure.png", dpi=110)


def draw_sizes(tests: Tests) -> None:
    figure, panels = plt.subplots(1, len(SIZES), figsize=(9, 3.8))
    for panel, (name, sizes) in zip(panels, SIZES.items(), strict=True):
        panel.axhline(0, color="#444444", linewidth=1)
        for place, (method, colour) in enumerate(DRAWN.items()):
            known = {size: f"{case}/mobilenetv2_coral_in1k" for size, case in sizes.items()}
            known = {size: case for size, case in known.items() if (case, method) in tests and (case, BASE) in tests}
            found = [
                difference(tests[case, method], tests.get((case, EQUAL_RATE), tests[case, BASE]))
                for case in known.values()
            ]
            if found:
                moved = [size * 1.04 ** (place - 1.5) for size in known]
                means, halves = zip(*found, strict=True)
                panel.errorbar(moved, means, yerr=halves, color=colour, marker="o", capsize=3, label=method)
        panel.set_xscale("log")
        panel.set_xlim(0.8 * min(sizes), 1.25 * max(sizes))
        panel.set_xticks(list(sizes), [str(size) for size in sizes])
        panel.minorticks_off()
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("train samples")
        panel.grid(axis="y", alpha=0.3)
    panels[0].set_ylabel("points over fine-tuning")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=3, fontsize=8)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    figure.savefig(HERE / "sizes.png", dpi=110)


if __name__ == "__main__":
    main()
