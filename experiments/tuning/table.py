"""table.md and figure.png out of results/: the final runs over seeds, the search behind them, the teachers."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SETS = {"pets": "Pets, 3,312 train images", "cifar10": "CIFAR-10, 500 train images"}
ORDER = ("fine-tune", "kd", "b-tuning", "b-tuning left-out", "b-tuning live", "zoo lite", "zoo")

Line = tuple[str, str]
"""A method and the name of its teachers."""


def load_runs() -> list[dict[str, Any]]:
    """All finished runs, by the order they finished in."""
    return [json.loads(line) for line in (RESULTS / "runs.jsonl").read_text().splitlines()]


def finals(runs: list[dict[str, Any]], set_name: str) -> dict[Line, dict[int, float]]:
    """Test accuracy in percent by seed; the order is that of the table."""
    found: dict[Line, dict[int, float]] = defaultdict(dict)
    for run in runs:
        if run["set_name"] == set_name and run["seed"] > 0 and run["test"] is not None:
            found[run["method"], run["teachers"]][run["seed"]] = 100 * run["test"]
    return {line: found[line] for line in sorted(found, key=lambda line: (line[1], ORDER.index(line[0])))}


def ahead(one: dict[int, float], other: dict[int, float]) -> tuple[float, float, float] | None:
    """Mean difference over the seeds that both have, and its 95% interval by Student's t."""
    pairs = np.array([one[seed] - other[seed] for seed in sorted(set(one) & set(other))])
    if len(pairs) < 2 or not pairs.any():
        return None
    half = stats.t.ppf(0.975, len(pairs) - 1) * pairs.std(ddof=1) / np.sqrt(len(pairs))
    return float(pairs.mean()), float(pairs.mean() - half), float(pairs.mean() + half)


def interval(found: tuple[float, float, float] | None) -> str:
    return "–" if found is None else "{:+.2f} [{:+.2f}, {:+.2f}]".format(*found)


def main_table(runs: list[dict[str, Any]], set_name: str) -> list[str]:
    """One line a method."""
    lines = [
        "| method | teachers | lr | strength | seeds | test accuracy, % | ahead of fine-tuning | ahead of KD, top 3 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    table = finals(runs, set_name)
    for (method, teachers), by_seed in table.items():
        run = next(r for r in runs if (r["set_name"], r["method"], r["teachers"]) == (set_name, method, teachers)
                   and r["seed"] > 0)  # fmt: skip
        values = np.array(list(by_seed.values()))
        strength = "–" if run["strength"] is None else f"{run['strength']:g}"
        cells = [
            method, teachers or "–", f"{run['learning_rate']:g}", strength, str(len(values)),
            f"{values.mean():.2f} ± {values.std(ddof=1):.2f}",
            interval(ahead(by_seed, table["fine-tune", ""])), interval(ahead(by_seed, table["kd", "top3"])),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def search_table(runs: list[dict[str, Any]], set_name: str) -> list[str]:
    """Every setting that was tried with seed 0: validation / test accuracy in percent."""
    found: dict[tuple[str, str, float | None], dict[float, str]] = defaultdict(dict)
    for run in runs:
        if run["set_name"] == set_name and run["seed"] == 0:
            place = (run["method"], run["teachers"], run["strength"])
            found[place][run["learning_rate"]] = f"{100 * run['validation']:.1f} / {100 * run['test']:.1f}"
    rates = sorted({rate for cells in found.values() for rate in cells})
    lines = ["| method | teachers | strength | " + " | ".join(f"{rate:g}" for rate in rates) + " |",
             "|---" * (len(rates) + 3) + "|"]  # fmt: skip
    for method, teachers, strength in sorted(found, key=lambda k: (k[1], ORDER.index(k[0]), k[2] or 0)):
        cells = [found[method, teachers, strength].get(rate, "") for rate in rates]
        shown = "–" if strength is None else f"{strength:g}"
        lines.append(f"| {method} | {teachers or '–'} | {shown} | " + " | ".join(cells) + " |")
    return lines


def teacher_lines(set_name: str) -> list[str]:
    found = json.loads((RESULTS / f"teachers-{set_name}.json").read_text())
    order = ", ".join(f"{name} {score:.3f}" for name, score in found["logme"].items())
    return [f"LogME on the train split: {order}.", "", f"Chosen jointly: {', '.join(found['joint'])}."]


def draw(runs: list[dict[str, Any]]) -> None:
    """Differences from fine-tuning with their intervals; methods that failed altogether are left out."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axis, (set_name, title) in zip(axes, SETS.items(), strict=True):
        table = finals(runs, set_name)
        shown = []
        for line, by_seed in table.items():
            found = ahead(by_seed, table["fine-tune", ""])
            if found is not None and found[0] > -20:
                shown.append((f"{line[0]}\n({'three MobileNets' if line[1] == 'mobilenets' else line[1]})", found))
        for height, (_, (mean, low, high)) in enumerate(reversed(shown)):
            colour = "#0072B2" if low > 0 else "#D55E00" if high < 0 else "#777777"
            axis.plot([low, high], [height, height], color=colour, linewidth=2)
            axis.plot(mean, height, "o", color=colour)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_yticks(range(len(shown)), [name for name, _ in reversed(shown)], fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("points of test accuracy ahead of fine-tuning", fontsize=9)
        axis.grid(axis="x", alpha=0.3)
    figure.savefig(HERE / "figure.png", dpi=150, metadata={"Software": None})


def main() -> None:
    runs = load_runs()
    lines = []
    for set_name, title in SETS.items():
        lines += [f"# {title}", "", "Settings chosen on validation with seed 0, run again with fresh seeds.", ""]
        lines += [*main_table(runs, set_name), "", "## Search, seed 0: validation / test accuracy by learning rate", ""]
        lines += [*search_table(runs, set_name), "", *teacher_lines(set_name), ""]
    (HERE / "table.md").write_text("\n".join(lines))
    if "--no-figure" not in sys.argv:
        draw(runs)


if __name__ == "__main__":
    main()
