"""table.md and figure.png out of results/."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from scipy import stats

HERE = Path(__file__).resolve().parent
BASE = "fine-tune"
LEAST_SEEDS = 5


def load() -> tuple[dict[tuple[str, str], dict[int, float]], dict[tuple[str, str], dict]]:
    """Test values of the fresh seeds by case and method, and the setting that validation chose."""
    tests: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    settings: dict[tuple[str, str], dict] = {}
    for record in map(json.loads, (HERE / "results" / "runs.jsonl").read_text().splitlines()):
        if record["seed"] > 0 and record["test"] is not None:
            tests[record["case"], record["method"]][record["seed"]] = 100 * record["test"]
            settings[record["case"], record["method"]] = record
    whole = {pair: found for pair, found in tests.items() if len(found) >= LEAST_SEEDS}
    return whole, settings


def difference(ours: dict[int, float], theirs: dict[int, float]) -> tuple[float, float]:
    """Mean over equal seeds, and half the width of its 95% interval by Student's t."""
    gaps = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    return fmean(gaps), float(stats.t.ppf(0.975, len(gaps) - 1)) * stdev(gaps) / len(gaps) ** 0.5


def main() -> None:
    tests, settings = load()
    cases = [case for case, method in tests if method == BASE]
    methods = list(dict.fromkeys(method for _, method in tests))
    methods.sort(key=lambda method: list(ORDER).index(method))
    lines = [
        "# Points over fine-tuning",
        "",
        "Test accuracy over five fresh seeds, 95% intervals of paired differences.",
        "",
    ]
    lines += ["| method | " + " | ".join(case.replace("/", ", ") for case in cases) + " |"]
    lines += ["|---" * (len(cases) + 1) + "|"]
    for method in methods:
        cells = []
        for case in cases:
            found = tests.get((case, method))
            if found is None:
                cells.append("–")
            elif method == BASE:
                cells.append(f"{fmean(found.values()):.2f}")
            else:
                mean, half = difference(found, tests[case, BASE])
                cells.append(f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    lines += ["", "## What validation chose", "", "| case | method | learning rate | strength |", "|---|---|---|---|"]
    for (case, method), record in settings.items():
        if (case, method) in tests and case in cases:
            lines.append(f"| {case} | {method} | {record['learning_rate']:g} | {record['strength'] or '–'} |")
    (HERE / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(tests, cases, [method for method in methods if method not in (BASE, "shuffled teachers")])


def draw(tests: dict[tuple[str, str], dict[int, float]], cases: list[str], methods: list[str]) -> None:
    figure, panels = plt.subplots(1, len(cases), figsize=(3.1 * len(cases) + 1.6, 4.6), sharey=True, sharex=True)
    for panel, case in zip(panels, cases, strict=True):
        panel.axvline(0, color="#888888", linewidth=1)
        for row, method in enumerate(methods):
            if (case, method) not in tests:
                continue
            mean, half = difference(tests[case, method], tests[case, BASE])
            colour = "#0072B2" if ORDER[method] else "#D55E00"
            panel.errorbar(max(mean, -9), row, xerr=half, fmt="o" if mean > -9 else "<", color=colour, capsize=3)
        panel.set_title(case.replace("/", "\n"), fontsize=9)
        panel.set_xlim(-9.5, 6)
        panel.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(methods)), methods)
    panels[0].invert_yaxis()
    figure.supxlabel("points over fine-tuning (arrow: further to the left)", fontsize=9)
    figure.legend(
        handles=[
            plt.Line2D([], [], color="#0072B2", marker="o", label="with teachers"),
            plt.Line2D([], [], color="#D55E00", marker="o", label="without teachers"),
        ],
        loc="upper right",
        fontsize=8,
        ncols=2,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.savefig(HERE / "figure.png", dpi=110)


ORDER = {
    "fine-tune": False,
    "b-tuning": True,
    "b-tuning, live": True,
    "feature kd": True,
    "logit-kd": True,
    "logit-kd, one teacher": True,
    "logit-kd, live": True,
    "self-distillation": True,
    "shuffled teachers": True,
    "untrained teachers": True,
    "label smoothing": False,
    "head from the posterior": False,
    "l2-sp": False,
    "twice the steps": False,
    "b-tuning, views": True,
    "b-tuning, uniform": True,
    "b-tuning, precision": True,
    "b-tuning, left out": True,
    "b-tuning, tuned teachers": True,
    "b-tuning, one teacher": True,
    "b-tuning, one tuned teacher": True,
    "b-tuning with mixup and ema": True,
    "logit-kd, weak": True,
    "logit-kd, views": True,
    "logit-kd, tuned teachers": True,
    "logit-kd, one tuned teacher": True,
    "distill-weighted": True,
    "distill-weighted, uniform": True,
    "mixup": False,
    "ema": False,
    "soup of four runs": False,
    "lora": False,
    "the best teacher itself, tuned": False,
}
"""Whether teachers are used, in the order of the lines."""

if __name__ == "__main__":
    main()
