"""table.md, figure.png and teachers.png out of results/: final runs over seeds, other teachers, the search."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SETS = {
    "pets": "Pets, 3,312 train images, MobileNetV2",
    "cifar10": "CIFAR-10, 500 train images, MobileNetV2",
    "fashion-mnist": "Fashion-MNIST, 500 train images, ResNet-20",
}
ORDER = ("fine-tune", "kd", "b-tuning", "b-tuning left-out", "b-tuning live", "zoo lite", "zoo")
MAIN = ("", "top3", "mobilenets", "all", "best3")
"""Teachers of the main comparison; all others are of the studies."""
SEARCH_SEEDS = (0, 100)
SHOWN = {"mobilenets": "three MobileNets", "all": "all six", "best3": "best three", "top3": "top 3"}
COLOURS = {"kd": "#E69F00", "b-tuning": "#0072B2", "b-tuning left-out": "#009E73"}

Run = dict[str, Any]
Line = tuple[str, str]
"""A method and the name of its teachers."""


def load_runs() -> list[Run]:
    """All finished runs, by the order they finished in."""
    return [json.loads(line) for line in (RESULTS / "runs.jsonl").read_text().splitlines()]


def setting(run: Run) -> tuple[float, float | None]:
    return run["learning_rate"], run["strength"]


def chosen(runs: list[Run], set_name: str) -> dict[Line, tuple[float, float | None]]:
    """What the search chose: of the settings that ran with both of its seeds, the best mean of validation."""
    found: dict[Line, dict[tuple[float, float | None], list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run["set_name"] == set_name and run["seed"] in SEARCH_SEEDS:
            found[run["method"], run["teachers"]][setting(run)].append(run["validation"])

    def best(settings: dict[tuple[float, float | None], list[float]]) -> tuple[float, float | None]:
        return max(settings, key=lambda s: (len(settings[s]), fmean(settings[s]), -(s[1] or 0), -s[0]))

    return {line: best(settings) for line, settings in found.items()}


def finals(runs: list[Run], set_name: str, *, main: bool = True) -> dict[Line, dict[int, float]]:
    """Test accuracy in percent by seed, at the setting that was chosen; the order is that of the table.

    Teachers of the studies have the setting of the main comparison.
    """
    settings = chosen(runs, set_name)
    found: dict[Line, dict[int, float]] = defaultdict(dict)
    for run in runs:
        line = run["method"], run["teachers"]
        if run["set_name"] != set_name or run["seed"] in SEARCH_SEEDS or run["test"] is None:
            continue
        if (line[1] in MAIN) != main or (main and setting(run) != settings[line]):
            continue
        found[line][run["seed"]] = 100 * run["test"]
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


def distilled(table: dict[Line, dict[int, float]]) -> Line:
    """The distillation that the others are compared with."""
    return next(line for line in (("kd", "top3"), ("kd", "best3")) if line in table)


def main_table(runs: list[Run], set_name: str) -> list[str]:
    """One line a method."""
    table, settings = finals(runs, set_name), chosen(runs, set_name)
    compared = distilled(table)
    lines = [
        "| method | teachers | lr | strength | seeds | test accuracy, % | ahead of fine-tuning | "
        f"ahead of KD, {SHOWN[compared[1]]} |",
        "|---" * 8 + "|",
    ]
    for (method, teachers), by_seed in table.items():
        values = np.array(list(by_seed.values()))
        rate, strength = settings[method, teachers]
        cells = [
            method,
            SHOWN.get(teachers, "–"),
            f"{rate:g}",
            "–" if strength is None else f"{strength:g}",
            str(len(values)),
            f"{values.mean():.2f} ± {values.std(ddof=1):.2f}",
            interval(ahead(by_seed, table["fine-tune", ""])),
            interval(ahead(by_seed, table[compared])),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def other_rates(runs: list[Run], set_name: str) -> list[str]:
    """Fine-tuning at rates that the search did not choose in the end, and how the methods compare with it there."""
    table, (chosen_rate, _) = finals(runs, set_name), chosen(runs, set_name)["fine-tune", ""]
    found: dict[float, dict[int, float]] = defaultdict(dict)
    for run in runs:
        ours = (run["set_name"], run["method"]) == (set_name, "fine-tune") and run["seed"] not in SEARCH_SEEDS
        if ours and run["learning_rate"] != chosen_rate:
            found[run["learning_rate"]][run["seed"]] = 100 * run["test"]
    lines = []
    for rate, by_seed in sorted(found.items()):
        compared = [
            f"{method}, {SHOWN[teachers]} {interval(ahead(of, by_seed))}"
            for (method, teachers), of in table.items()
            if teachers and not method.startswith("zoo")
        ]
        lines.append(f"Fine-tuning at {rate:g}, not chosen in the end: {spread(by_seed)}. Ahead of it: ")
        lines[-1] += "; ".join(compared) + "."
    return [part for line in lines for part in (line, "")]


def study_seeds(runs: list[Run], set_name: str) -> dict[Line, dict[int, float]]:
    """The runs with other teachers, and those of the main comparison with the same seeds."""
    found = finals(runs, set_name, main=False)
    seeds = {seed for by_seed in found.values() for seed in by_seed}
    for line, by_seed in finals(runs, set_name).items():
        if line[1] in ("top3", "mobilenets"):
            found[line] = {seed: value for seed, value in by_seed.items() if seed in seeds}
    return found


def count_table(found: dict[Line, dict[int, float]]) -> list[str]:
    """Test accuracy by the number of teachers, and of those that were chosen jointly."""
    groups = [name for name in ("top1", "top2", "top3", "top5", "top16", "joint3") if ("kd", name) in found]
    lines = ["| method | " + " | ".join(groups) + " |", "|---" * (len(groups) + 1) + "|"]
    for method in COLOURS:
        cells = [spread(found[method, group]) for group in groups]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def spread(by_seed: dict[int, float]) -> str:
    values = np.array(list(by_seed.values()))
    return f"{values.mean():.2f} ± {values.std(ddof=1):.2f}"


def combination_table(found: dict[Line, dict[int, float]]) -> list[str]:
    """Distillation, and B-Tuning, from combinations of teachers of the target's architecture."""
    names = {
        "mobilenetv2_coral_in1k": "ImageNet",
        "mobilenetv2_coral_inat_bird": "birds",
        "mobilenetv2_coral_inat_insect": "insects",
    }
    lines = ["| method | teachers | test accuracy, % |", "|---|---|---|"]
    for (method, teachers), by_seed in found.items():
        parts = teachers.split("+")
        if (parts[0] in names or teachers == "mobilenets") and not method.startswith("zoo"):
            shown = "all three" if teachers == "mobilenets" else " and ".join(names[part] for part in parts)
            lines.append(f"| {method} | {shown} | {spread(by_seed)} |")
    return lines


def search_table(runs: list[Run], set_name: str) -> list[str]:
    """Every setting that was tried: validation / test accuracy in percent, means where two seeds ran."""
    found: dict[tuple[str, str, float | None], dict[float, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run["set_name"] == set_name and run["seed"] in SEARCH_SEEDS:
            found[run["method"], run["teachers"], run["strength"]][run["learning_rate"]].append(run)
    rates = sorted({rate for cells in found.values() for rate in cells})
    lines = [
        "| method | teachers | strength | " + " | ".join(f"{rate:g}" for rate in rates) + " |",
        "|---" * (len(rates) + 3) + "|",
    ]
    for method, teachers, strength in sorted(found, key=lambda k: (k[1], ORDER.index(k[0]), k[2] or 0)):
        cells = [shown(found[method, teachers, strength].get(rate, [])) for rate in rates]
        value = "–" if strength is None else f"{strength:g}"
        lines.append(f"| {method} | {SHOWN.get(teachers, '–')} | {value} | " + " | ".join(cells) + " |")
    return lines


def shown(runs: list[Run]) -> str:
    if any(run["test"] is None for run in runs):
        return "diverged"
    if not runs:
        return ""
    mark = "*" if len(runs) > 1 else ""
    return f"{100 * fmean(r['validation'] for r in runs):.1f} / {100 * fmean(r['test'] for r in runs):.1f}{mark}"


def teacher_lines(set_name: str) -> list[str]:
    found = json.loads((RESULTS / f"teachers-{set_name}.json").read_text())
    order = ", ".join(f"{name} {score:.3f}" for name, score in found["logme"].items())
    return [f"LogME on the train split: {order}.", "", f"Chosen jointly: {', '.join(found['joint'])}."]


AHEAD, BEHIND, UNDECIDED = "#0072B2", "#D55E00", "#777777"


def draw(runs: list[Run]) -> None:
    """Differences from fine-tuning with their intervals; methods that failed altogether are left out."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(SETS), figsize=(12, 3.6), layout="constrained", sharex=True)
    for axis, (set_name, title) in zip(axes, SETS.items(), strict=True):
        table = finals(runs, set_name)
        differences = []
        for (method, teachers), by_seed in table.items():
            found = ahead(by_seed, table["fine-tune", ""])
            if found is not None and found[0] > -20:
                differences.append((f"{method}, {SHOWN[teachers]}", found))
        for height, (_, (mean, low, high)) in enumerate(reversed(differences)):
            colour = AHEAD if low > 0 else BEHIND if high < 0 else UNDECIDED
            axis.plot([low, high], [height, height], color=colour, linewidth=2)
            axis.plot(mean, height, "o", color=colour)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_yticks(range(len(differences)), [name for name, _ in reversed(differences)], fontsize=8)
        axis.set_title(title.rpartition(", ")[0].replace(" train", "") + "\n" + title.rpartition(", ")[2], fontsize=9)
        axis.set_xlabel("points ahead of fine-tuning", fontsize=9)
        axis.grid(axis="x", alpha=0.3)
    meanings = {AHEAD: "ahead of fine-tuning", BEHIND: "behind it", UNDECIDED: "the 95% interval holds 0"}
    keys = [plt.Line2D([], [], color=colour, marker="o", label=words) for colour, words in meanings.items()]
    figure.legend(handles=keys, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(HERE / "figure.png", dpi=150, metadata={"Software": None})
    draw_counts(runs)


def draw_counts(runs: list[Run]) -> None:
    """Test accuracy by the number of teachers, every seed a dot."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axis, set_name in zip(axes, ("pets", "cifar10"), strict=True):
        found = study_seeds(runs, set_name)
        counts = (1, 2, 3, 5, 16)
        places = np.arange(len(counts))
        for offset, (method, colour) in zip((-0.08, 0.0, 0.08), COLOURS.items(), strict=True):
            values = [list(found[method, f"top{count}"].values()) for count in counts]
            axis.plot(places + offset, [fmean(v) for v in values], "-", color=colour, label=method)
            for place, several in zip(places, values, strict=True):
                axis.plot([place + offset] * len(several), several, ".", color=colour, markersize=5)
            if (method, "joint3") in found:
                axis.plot(
                    2 + offset,
                    fmean(found[method, "joint3"].values()),
                    "D",
                    color=colour,
                    markersize=6,
                    markerfacecolor="none",
                )
        plain = fmean(finals(runs, set_name)["fine-tune", ""].values())
        axis.axhline(plain, color="black", linewidth=0.8, linestyle="--", label="fine-tuning, mean")
        if set_name == "pets":
            axis.plot([], [], "D", color="black", markerfacecolor="none", label="three chosen jointly")
        axis.set_xticks(places, [str(count) for count in counts])
        axis.set_xlabel("teachers, best LogME first", fontsize=9)
        axis.set_title(SETS[set_name].rpartition(", ")[0], fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy, %", fontsize=9)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    figure.savefig(HERE / "teachers.png", dpi=150, metadata={"Software": None})


def main() -> None:
    runs = load_runs()
    lines = []
    for set_name, title in SETS.items():
        lines += [f"# {title}", "", "Settings chosen on validation, run again with fresh seeds.", ""]
        lines += [*main_table(runs, set_name), "", *other_rates(runs, set_name)]
        others = study_seeds(runs, set_name)
        if ("kd", "top1") in others:
            lines += ["## By the number of teachers, three seeds", "", *count_table(others), ""]
        if ("kd", "mobilenetv2_coral_in1k") in others:
            lines += ["## Combinations of one architecture, three seeds", "", *combination_table(others), ""]
        lines += ["## Search: validation / test accuracy by learning rate, * with two seeds", ""]
        lines += [*search_table(runs, set_name), "", *teacher_lines(set_name), ""]
    (HERE / "table.md").write_text("\n".join(lines))
    if "--no-figure" not in sys.argv:
        draw(runs)


if __name__ == "__main__":
    main()
