"""table.md and figure.png out of results/, and out of the fine-tuning of `classification`."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import CLASSIFICATION, outcomes  # noqa: E402

from hubscout.evaluation import kendall_tau, weighted_tau  # noqa: E402

TAU = r"$\tau_w$"
SIZES = (100, 200, 500, 1000)
CODES = {"ours": "#0072b2", "released": "#d55e00"}
ONE_DIM = 1280
"""Models of this dimension are compared among themselves too: the MobileNetV2s and the EfficientNets."""

Scores = dict[tuple[str, int, int], dict[str, dict[str, float]]]
"""Set, n and seed → code → model → score."""


def read_scores(name: str) -> list[dict[str, Any]]:
    whole = ("feature_dim", "n", "seed", "targets", "rank", "guaranteed")
    with (HERE / "results" / name).open(newline="") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        line |= {key: int(line[key]) for key in whole} | {key: float(line[key]) for key in (*CODES, "missing")}
    return lines


def by_subset(lines: list[dict[str, Any]]) -> Scores:
    found: Scores = defaultdict(lambda: {code: {} for code in CODES})
    for line in lines:
        for code in CODES:
            found[line["set"], line["n"], line["seed"]][code][line["model"]] = line[code]
    return dict(found)


def references() -> dict[str, dict[str, float]]:
    """Set → model → test accuracy: the mean over seeds at the setting that validation chose with seed 0."""
    found = outcomes(CLASSIFICATION / "references.jsonl")
    return {name: {model: outcome.test for model, outcome in models.items()} for name, models in found.items()}


def offset_table(lines: list[dict[str, Any]]) -> list[str]:
    """Scores by n and feature dimension: means over sets, models and seeds."""
    dims = sorted({line["feature_dim"] for line in lines})
    sizes = sorted({line["n"] for line in lines})
    rows = ["| n | " + " | ".join(f"D = {dim}" for dim in dims) + " |", "|---" * (len(dims) + 1) + "|"]
    for n in sizes:
        cells = []
        for dim in dims:
            here = [line for line in lines if line["n"] == n and line["feature_dim"] == dim]
            means = [np.mean([line[code] for line in here]) if here else float("nan") for code in CODES]
            mark = "**" if n < dim else ""
            cells.append(f"{mark}{means[0]:.2f} / {means[1]:.2f}{mark}" if here else "–")
        rows.append(f"| {n:,} | " + " | ".join(cells) + " |")
    short = [line for line in lines if line["n"] < line["feature_dim"]]
    enough = [line for line in lines if line["n"] > line["feature_dim"]]
    off = np.array([line["released"] - line["ours"] for line in short])
    same = np.array([abs(line["released"] - line["ours"]) for line in enough])
    left = np.abs(off - np.array([line["missing"] for line in short]))
    promised = sum(line["guaranteed"] for line in short), sum(line["targets"] for line in short)
    others = sum(line["guaranteed"] for line in enough), sum(line["targets"] for line in enough)
    return [
        "# LogME in nats per sample, ours / released; n < D in bold",
        "",
        *rows,
        "",
        f"With n < D ({len(short)} scores) the released code is off by {np.median(off):.2f} nats at the median, from "
        f"{off.min():.2f} to {off.max():.2f}. Its formula leaves out the term (D − n) log α / 2n; with it, "
        f"{np.median(left):.1e} nats are left at the median and {left.max():.2f} at most. With n > D "
        f"({len(enough)} scores) the two differ by {np.median(same):.1e} at the median and {same.max():.1e} at most. "
        f"Theorem 2 promises a fixed point for {promised[0]:,} of {promised[1]:,} (model, class, subset) triples with "
        f"n < D, where the rank is nearly always n, and for {others[0]:,} of {others[1]:,} with n > D.",
    ]


def taus(scores: Scores, goal: dict[str, dict[str, float]], set_name: str, n: int, code: str) -> list[float]:
    """τ_w against the goal, a number a seed."""
    found = []
    for (name, size, _), values in scores.items():
        if name == set_name and size == n:
            models = [model for model in values[code] if model in goal[name]]
            scored, wanted = [values[code][model] for model in models], [goal[name][model] for model in models]
            found.append(weighted_tau(scored, wanted))
    return found


def spread(values: list[float]) -> str:
    return f"{np.mean(values):+.2f} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else f"{values[0]:+.2f}"


def tau_table(scores: Scores, goal: dict[str, dict[str, float]], title: str, pools: dict[str, int]) -> list[str]:
    """τ_w by set and n; mean and standard deviation over subsets."""
    header = ["set", *(f"n = {n:,}, {code}" for n in SIZES for code in CODES), "all, ours", "all, released"]
    rows = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    means: dict[tuple[int, str], list[float]] = defaultdict(list)
    for name in pools:
        cells = []
        for n in (*SIZES, pools[name]):
            for code in CODES:
                found = taus(scores, goal, name, n, code)
                cells.append(spread(found))
                means[0 if n == pools[name] else n, code].append(float(np.mean(found)))
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    cells = [f"{np.mean(means[n, code]):+.2f}" for n in (*SIZES, 0) for code in CODES]
    rows.append("| mean | " + " | ".join(cells) + " |")
    return [f"# {title}", "", *rows]


def order_table(lines: list[dict[str, Any]], scores: Scores) -> list[str]:
    """How much of each order is the order of the feature dimensions, and who comes first."""
    dims = {line["model"]: line["feature_dim"] for line in lines}
    rows = ["| n | τ_b with D, ours | τ_b with D, released | first, ours | first, released |", "|---" * 5 + "|"]
    for n in SIZES:
        cells, firsts = [], []
        for code in CODES:
            here = [values[code] for (_, size, _), values in scores.items() if size == n]
            found = [kendall_tau(list(one.values()), [dims[model] for model in one]) for one in here]
            winners = [max(one, key=one.__getitem__) for one in here]
            names = sorted(set(winners), key=lambda name: (-winners.count(name), name))
            cells.append(spread(found))
            firsts.append(", ".join(f"{name} {winners.count(name)}×" for name in names[:3]))
        rows.append(f"| {n:,} | " + " | ".join([*cells, *firsts]) + " |")
    return ["# What the orders follow", "", *rows, "", "Over all sets and subsets; D is the number of features."]


def control_table(
    lines: list[dict[str, Any]], scores: Scores, shuffled: Scores, tuned: dict[str, dict[str, float]]
) -> list[str]:
    """τ_w against fine-tuning of what knows nothing of the labels: D alone, and scores of shuffled labels."""
    sets = pool_sizes(lines)
    by_dim: Scores = {
        (name, 0, 0): {
            "dimension": {line["model"]: float(line["feature_dim"]) for line in lines if line["set"] == name}
        }
        for name in sets
    }
    columns: dict[str, tuple[Scores, int, str]] = {"D alone": (by_dim, 0, "dimension")}
    for code in CODES:
        columns[f"{code}, n = 100"] = (scores, 100, code)
        columns[f"{code}, n = 100, labels shuffled"] = (shuffled, 100, code)
    rows = ["| set | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    means: dict[str, list[float]] = defaultdict(list)
    for name in sets:
        cells = []
        for column, (source, n, code) in columns.items():
            found = taus(source, tuned, name, n, code)
            cells.append(spread(found))
            means[column].append(float(np.mean(found)))
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    cells = [f"{np.mean(means[column]):+.2f}" for column in columns]
    return ["# Controls: τ_w against fine-tuning without the labels", "", *rows, "| mean | " + " | ".join(cells) + " |"]


def draw(
    lines: list[dict[str, Any]],
    scores: Scores,
    shuffled: Scores,
    tuned: dict[str, dict[str, float]],
) -> None:
    """How far the released score is off; τ_w of both against n; on 100 samples with true and shuffled labels."""
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right, control) = plt.subplots(1, 3, figsize=(11, 3.5), layout="constrained")
    dims = sorted({line["feature_dim"] for line in lines})
    for dim, shade in zip(dims, plt.get_cmap("viridis")(np.linspace(0, 0.85, len(dims))), strict=True):
        sizes = [n for n in (*SIZES, 1500) if any(line["n"] == n and line["feature_dim"] == dim for line in lines)]
        off = [
            np.mean([abs(r["released"] - r["ours"]) for r in lines if r["n"] == n and r["feature_dim"] == dim])
            for n in sizes
        ]
        left.plot(sizes, off, "o-", color=shade, ms=3.5, label=f"D = {dim}")
    left.set(xscale="log", yscale="log", xlabel="samples n", ylabel="|released − ours|, nats per sample")
    left.set_xticks([*SIZES, 1500], [str(n) for n in (*SIZES, 1500)], fontsize=8)
    left.minorticks_off()
    left.legend(frameon=False, fontsize=8)
    pools = pool_sizes(lines)
    for code, colour in CODES.items():
        curves = []
        for name in pools:
            curves.append([float(np.mean(taus(scores, tuned, name, n, code))) for n in SIZES])
            right.plot(SIZES, curves[-1], color=colour, lw=0.8, alpha=0.35)
        right.plot(SIZES, np.mean(curves, axis=0), "o-", color=colour, ms=4, lw=2, label=code)
    right.axhline(0, color="#bbbbbb", lw=0.8)
    right.set(
        xscale="log",
        xlabel="samples n",
        ylabel=f"{TAU} against fine-tuning",
        ylim=(min(-0.1, right.get_ylim()[0]), 1.25),
    )
    right.set_xticks(SIZES, [str(n) for n in SIZES], fontsize=8)
    right.minorticks_off()
    right.legend(frameon=False, fontsize=8, loc="upper left", ncols=2, title="mean; thin: one set", title_fontsize=8)
    bars = [(code, source, words) for code in CODES for source, words in ((scores, "true"), (shuffled, "shuffled"))]
    for place, (code, source, words) in enumerate(bars):
        heights = [float(np.mean(taus(source, tuned, name, 100, code))) for name in pools]
        spots = np.arange(len(pools)) + (place - 1.5) * 0.2
        alpha = 1.0 if words == "true" else 0.4
        control.bar(spots, heights, 0.18, color=CODES[code], alpha=alpha, label=f"{code}, {words} labels")
    control.axhline(0, color="#bbbbbb", lw=0.8)
    control.set_xticks(range(len(pools)), [name.replace("-", "-\n") for name in pools], fontsize=8)
    control.set(ylabel=f"{TAU} against fine-tuning, n = 100", ylim=(-0.45, 1.15))
    control.legend(frameon=False, fontsize=7, ncols=2, loc="upper left")
    figure.savefig(HERE / "figure.png", dpi=150, metadata={"Software": None})
    plt.close(figure)


def pool_sizes(lines: list[dict[str, Any]]) -> dict[str, int]:
    """Set → all its samples here."""
    pools: dict[str, int] = {}
    for line in lines:
        pools[line["set"]] = max(pools.get(line["set"], 0), line["n"])
    return pools


def main() -> None:
    lines, shuffled = read_scores("scores.csv"), read_scores("shuffled.csv")
    scores, pools = by_subset(lines), pool_sizes(lines)
    tuned = references()
    whole = {name: scores[name, n, 0]["ours"] for name, n in pools.items()}
    alike = {line["model"] for line in lines if line["feature_dim"] == ONE_DIM}
    tuned_alike = {name: {m: value for m, value in of.items() if m in alike} for name, of in tuned.items()}
    parts = [
        offset_table(lines),
        tau_table(scores, tuned, "τ_w against fine-tuning, mean ± standard deviation over subsets", pools),
        tau_table(scores, tuned_alike, f"The same among the {len(alike)} models of D = {ONE_DIM:,} alone", pools),
        tau_table(scores, whole, "τ_w against our LogME of all samples here (1,500; sign digits 1,390)", pools),
        order_table(lines, scores),
        control_table(lines, scores, by_subset(shuffled), tuned),
    ]
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    (HERE / "table.md").write_text(text)
    print(text)
    draw(lines, scores, by_subset(shuffled), tuned)


if __name__ == "__main__":
    main()
