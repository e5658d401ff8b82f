"""table.md, figure.png and full.png out of results/."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
REGRESSION = ("sprites", "pet-heads", "sick", "sick-siamese")
"""Sets whose targets `rank` centres."""
SHORT = {
    "cifar10_resnet20": "ResNet-20",
    "cifar10_resnet56": "ResNet-56",
    "squeezenet1_1_in1k": "SqueezeNet",
    "alexnet_features_in1k": "AlexNet",
    "mobilenetv2_coral_in1k": "MobileNetV2",
    "tf_efficientnet_lite0_in1k": "EfficientNet-Lite0",
}
IN_FIGURE = ("cifar10_resnet56", "squeezenet1_1_in1k", "mobilenetv2_coral_in1k", "tf_efficientnet_lite0_in1k")
MAP, DIAGONAL = "#0072b2", "#d55e00"
CHANGES = ("twice", "three times", "16 zeros", "D zeros")


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def curves_table(curves: dict[str, Any]) -> list[str]:
    """One line a model."""
    lines = [
        f"# Fixed points on CIFAR-10 ({curves['n']:,} images, ten classes)",
        "",
        "| model | D | LogME | fixed points t* | smallest margin | promised by Theorem 2 | steps from t = 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, found in curves["models"].items():
        steps = found["iteration"]
        lines.append(
            f"| {SHORT[model]} | {found['feature_dim']} | {found['score']:.3f} | "
            f"{number(min(found['fixed_point']))} to {number(max(found['fixed_point']))} | "
            f"{number(min(found['margin']))} | {sum(found['guaranteed'])} of {len(found['guaranteed'])} | "
            f"{steps['median_steps']:g} (most {steps['most_steps']}) |"
        )
    return [
        *lines,
        "",
        "The margin is n Σz²σ² / (‖y‖² Σσ²) − 1, positive where the theorem's sum is. Steps are those of MacKay's",
        "iteration until t moves by less than a thousandth; the released code stops after 11 in any case.",
    ]


def largest(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each set and model the line with most samples."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        place = (line["set"], line["model"])
        if place not in best or line["n"] > best[place]["n"]:
            best[place] = line
    return [best[place] for place in sorted(best)]


def condition_table(lines: list[dict[str, Any]]) -> list[str]:
    """One line a set: how many of its (model, target) pairs have what."""
    header = (
        "set",
        "models",
        "n",
        "pairs",
        "promised",
        "of them r < n",
        "null model best",
        "reach the maximum",
        "in 11 steps",
        "promised, centred",
        "shuffled",
        "shuffled, centred",
    )
    rows = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    totals: dict[str, int] = defaultdict(int)
    by_set: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        by_set[line["set"]].append(line)
    for name, members in by_set.items():
        used = "centred" if name in REGRESSION else "plain"
        sums = {"pairs": sum(line["targets"] for line in members)}
        sums["promised"] = sum(line[used]["guaranteed"] for line in members)
        sums["below"] = sum(line["targets"] for line in members if line[used]["rank_below_n"])
        for key in ("null_model_is_best", "reach_the_maximum", "within_released_limit"):
            sums[key] = sum(line[used][key] for line in members)
        sums["centred"] = sum(line["centred"]["guaranteed"] for line in members)
        sums["shuffled"] = sum(line["plain"]["guaranteed_shuffled"] for line in members)
        sums["shuffled, centred"] = sum(line["centred"]["guaranteed_shuffled"] for line in members)
        counts = sorted({line["n"] for line in members})
        size = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
        rows.append(f"| {name} | {len(members)} | {size} | " + " | ".join(map(str, sums.values())) + " |")
        for key, value in sums.items():
            totals[key] += value
        totals["models"] += len(members)
    rows.append(f"| all | {totals.pop('models')} | | " + " | ".join(map(str, totals.values())) + " |")
    return [
        "# The condition of Theorem 2 on every set, model and target",
        "",
        *rows,
        "",
        "A pair is a model and a class (or a regression target). Promised: the condition holds for features and",
        "targets as `rank` takes them: classes as they are, regression targets centred. Reach the maximum: MacKay's",
        "iteration from t = 1 ends within 1% of the global maximum's t. The last three columns: the condition with the",
        "means of features and targets taken away, for targets whose rows are shuffled, and both.",
    ]


def corollary_table(lines: list[dict[str, Any]]) -> list[str]:
    """What repeating and padding features change, in nats per sample."""
    header = "| model | n | D | code | LogME | " + " | ".join(CHANGES) + " |"
    rows = [header, "|---" * (len(CHANGES) + 5) + "|"]
    for line in lines:
        for code in ("ours", "released"):
            cells = [f"{line[f'{code}, {change}']:+.1e}" for change in CHANGES]
            start = (SHORT[line["model"]], line["n"], line["feature_dim"], code, f"{line[code]:.4f}")
            rows.append("| " + " | ".join([*map(str, start), *cells]) + " |")
    return ["# Corollaries: LogME of repeated and padded features, less LogME of the features", "", *rows]


def draw(curves: dict[str, Any], models: tuple[str, ...], classes: int, size: tuple[float, float], path: Path) -> None:
    """f(t) and t around the fixed points, a panel a model and class, as in the paper."""
    plt.rcParams.update({"font.size": 8})
    figure, axes = plt.subplots(len(models), classes, figsize=size, layout="constrained", squeeze=False)
    for row, model in enumerate(models):
        found = curves["models"][model]
        points = np.array(found["t"])
        for column in range(classes):
            axis, fixed = axes[row, column], found["fixed_point"][column]
            near = (points > fixed / 4) & (points < fixed * 4)
            axis.plot(points[near] / fixed, np.array(found["f"][column])[near] / fixed, color=MAP, label="f(t)")
            axis.plot(points[near] / fixed, points[near] / fixed, color=DIAGONAL, ls="--", lw=1, label="t")
            axis.plot(1, 1, "o", color="black", ms=3.5)
            axis.annotate(f"t* = {number(fixed)}", (0.96, 0.06), xycoords="axes fraction", ha="right", fontsize=7)
            axis.set(xticks=[1, 2, 3, 4], yticks=[1, 2, 3, 4], xlim=(0, 4.1), ylim=(0, 4.1))
            axis.tick_params(labelsize=6, length=2, labelbottom=row == len(models) - 1, labelleft=column == 0)
            axis.spines[["top", "right"]].set_visible(False)
            if row == 0:
                axis.set_title(curves["classes"][column], fontsize=9)
            if column == 0:
                axis.set_ylabel(SHORT[model], fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=7, loc="upper left", handlelength=1.4)
    figure.supxlabel("t, in units of the class's fixed point t*", fontsize=9)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    results = HERE / "results"
    curves = json.loads((results / "curves.json").read_text())
    parts = [
        curves_table(curves),
        condition_table(largest(read_lines(results / "condition.jsonl"))),
        corollary_table(read_lines(results / "corollaries.jsonl")),
    ]
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    (HERE / "table.md").write_text(text)
    print(text)
    draw(curves, IN_FIGURE, 4, (7, 6), HERE / "figure.png")
    draw(curves, tuple(curves["models"]), len(curves["classes"]), (13, 8), HERE / "full.png")


if __name__ == "__main__":
    main()
