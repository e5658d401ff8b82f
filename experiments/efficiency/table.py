"""table.md and figure.png out of results/, beside the paper's numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
DEVICES = ("cpu", "cuda")
PAPER_SECONDS = {"naive": 802.5, "mackay": 13.1, "fixed-point": 6.1}
"""The paper's table of speed-ups: Aircraft with a ResNet-50."""
PAPER_COST: dict[str, dict[str, Any]] = {
    "vision": {"tune": 161_000, "extract": 37, "rank": 43, "memory": ("6.3 GB", "43 MB", "53 MB")},
    "text": {"tune": 100_200, "extract": 1130, "rank": 1136, "memory": ("88 GB", "1.2 GB", "1.2 GB")},
}
"""The paper's table of costs: ResNet-50 on Aircraft, RoBERTa-D on MNLI; fine-tuning is with hyper-parameter search."""
SOLVERS = {
    "naive": "naive",
    "mackay": "MacKay's, without inversions",
    "fixed-point": "fixed point (the paper's)",
    "released": "the released code",
    "newton": "Newton, all classes at once (our default)",
    "with error bar": "the same with its error bar",
}
COLOURS = {"naive": "#999999", "mackay": "#e69f00", "fixed-point": "#0072b2", "newton": "#009e73"}


def load(part: str, device: str) -> dict[str, Any] | None:
    path = HERE / "results" / f"{part}-{device}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def seconds_of(cost: dict[str, float], device: str) -> float:
    """Of the clock on a GPU; on the CPU, which others used too, of the processor (one thread)."""
    return cost["seconds"] if device == "cuda" else cost["cpu_seconds"]


def label_of(found: dict[str, Any], device: str) -> str:
    return found["device"].removeprefix("NVIDIA ") if device == "cuda" else f"CPU, {found['threads']} thread"


def amount(seconds: float) -> str:
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:,.0f} s"


def megabytes(count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count / 1e6:,.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


def evidence_table(measured: dict[str, dict[str, Any]]) -> list[str]:
    """Seconds of every solver, and how many times as fast as the naive one it is."""
    labels = [label_of(found, device) for device, found in measured.items()]
    lines = [
        "# Maximising the evidence: 6,667 samples, 2,048 features, 100 classes",
        "",
        "| solver | paper | speed-up | " + " | ".join(f"{label} | speed-up" for label in labels) + " |",
        "|---" * (3 + 2 * len(labels)) + "|",
    ]
    for name, words in SOLVERS.items():
        paper = PAPER_SECONDS.get(name)
        cells = [words, "–" if paper is None else f"{paper} s"]
        cells.append("–" if paper is None else f"{PAPER_SECONDS['naive'] / paper:.1f}×")
        for device, found in measured.items():
            cost = found["costs"].get(name)
            spent = None if cost is None else seconds_of(cost, device)
            cells.append("–" if spent is None else amount(spent))
            naive = found["costs"].get("naive")
            if spent is None or naive is None:
                cells.append("–")
            else:
                cells.append(f"{seconds_of(naive, device) / spent:,.0f}×")
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "Features of this shape are made (`benchmarks/evidence.py`), not Aircraft's. The naive solver is timed on one",
        "class and multiplied by 100. The first three stop as the released code stops; Newton goes on to rounding. The",
        "first two repeat on the processors even where the features are on a GPU (there with 16 threads).",
        *[f"{label_of(found, device)}: {found['note']}" for device, found in measured.items() if found["note"]],
    ]
    return lines


def costs_of(family: str, device: str) -> dict[str, Any] | None:
    """Seconds and memory of fine-tuning with its search, of extraction, and of `rank`, for the whole set.

    What was not measured is None.
    """
    ranked, tuned = load(f"{family}-rank", device), load(f"{family}-tune", device)
    if ranked is None:
        return None
    whole = ranked["n_of_the_set"] / ranked["n"]
    base = ranked["before_resident_bytes"]
    cuda = device == "cuda"
    run = seconds_of(tuned["run"], device) if tuned else None
    peak = None
    if tuned:
        peak = tuned["device_bytes"] if cuda else tuned["resident_bytes"] - tuned["before_resident_bytes"]
    return {
        "label": label_of(ranked, device),
        "case": f"{ranked['model']} on {ranked['set']}",
        "n": ranked["n_of_the_set"],
        "tune": run * tuned["grid"] if tuned else None,
        "one run": run,
        "grid": tuned["grid"] if tuned else None,
        "extract": seconds_of(ranked["extract"], device) * whole,
        "rank": seconds_of(ranked["rank"], device) * whole,
        "memory": (
            peak,
            ranked["extract_device_bytes"] if cuda else ranked["extract_resident_bytes"] - base,
            ranked["rank_device_bytes"] if cuda else ranked["rank_resident_bytes"] - base,
        ),
        "features": ranked["feature_bytes"] * whole,
        "scaled": whole > 1,
    }


def cost_table(family: str) -> list[str]:
    """The paper's second table for a family."""
    found = [cost for device in DEVICES if (cost := costs_of(family, device)) is not None]
    if not found:
        return []
    paper = PAPER_COST[family]
    header = ["", "paper", *(cost["label"] for cost in found)]
    lines = [f"# {found[0]['case']} ({found[0]['n']:,} samples)", ""]
    lines += ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    words = {
        "tune": "fine-tuning, whole search",
        "extract": "extracting features",
        "rank": "LogME (extraction + score)",
    }
    for key, name in words.items():
        cells = " | ".join("–" if cost[key] is None else amount(cost[key]) for cost in found)
        lines.append(f"| {name} | {paper[key]:,} s | {cells} |")
    ratios = " | ".join("–" if cost["tune"] is None else f"{cost['tune'] / cost['rank']:,.0f}×" for cost in found)
    lines.append(f"| ranking is faster by | {paper['tune'] / paper['rank']:,.0f}× | {ratios} |")
    over = " | ".join("–" if warmed(cost) else f"{cost['rank'] / cost['extract'] - 1:+.1%}" for cost in found)
    lines.append(f"| LogME beyond extraction | {paper['rank'] / paper['extract'] - 1:+.1%} | {over} |")
    for place, name in enumerate(words.values()):
        cells = " | ".join(megabytes(cost["memory"][place]) for cost in found)
        lines.append(f"| memory: {name} | {paper['memory'][place]} | {cells} |")
    lines.append(
        "| memory: the features themselves | – | " + " | ".join(megabytes(c["features"]) for c in found) + " |"
    )
    timed = [cost for cost in found if cost["one run"] is not None]
    runs = "; ".join(f"{cost['label']} {amount(cost['one run'])}" for cost in timed)
    lines += ["", f"The search is {timed[0]['grid']} runs of 300 steps; one run was timed: {runs}."] if timed else [""]
    if family == "vision":
        lines.append(
            f"The references' own runs of it took {references_seconds():.0f} s in sum on an H200, beside others."
        )
    if any(cost["scaled"] for cost in found):
        lines.append("On the CPU a run is extrapolated from a few steps, and extraction from a part of the set.")
    lines += [f"{cost['label']}: fine-tuning was not measured." for cost in found if cost["tune"] is None]
    lines += [
        f"{cost['label']}: extraction, the first to run in its process, took longer than the ranking after it, so "
        "their difference says nothing."
        for cost in found
        if warmed(cost)
    ]
    return [*lines, "Memory is the device's peak on a GPU, and what the process had above its start on the CPU."]


def references_seconds() -> float:
    """What the references' own runs of the vision search took, on a GPU that others used at the same time."""
    lines = (HERE.parent / "classification" / "results" / "references.jsonl").read_text().splitlines()
    found = load("vision-tune", "cuda")
    place = None if found is None else (found["set"], found["model"], 0)
    return sum(t["seconds"] for t in map(json.loads, lines) if (t["set"], t["model"], t["seed"]) == place)


def warmed(cost: dict[str, Any]) -> bool:
    """Whether extraction alone, which runs first, paid for what `rank` then found done."""
    return cost["rank"] < cost["extract"]


def draw(measured: dict[str, dict[str, Any]], path: Path) -> None:
    """Seconds of the solvers, the paper's and ours, on one logarithmic axis."""
    groups: dict[str, dict[str, float]] = {"paper": dict(PAPER_SECONDS)}
    for device, found in measured.items():
        groups[label_of(found, device)] = {
            name: seconds_of(cost, device) for name, cost in found["costs"].items() if name in COLOURS
        }
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    width = 0.2
    for place, (name, colour) in enumerate(COLOURS.items()):
        spots = [index + (place - 1.5) * width for index, values in enumerate(groups.values()) if name in values]
        heights = [values[name] for values in groups.values() if name in values]
        # Dots: a bar on a logarithmic axis has no bottom, and its length says nothing.
        axis.plot(spots, heights, "o", color=colour, markersize=7, label=SOLVERS[name].partition(",")[0])
        for spot, height in zip(spots, heights, strict=True):
            axis.annotate(amount(height), (spot, height), (0, 6), textcoords="offset points", fontsize=7, ha="center")
    axis.set_xticks(range(len(groups)), groups)
    axis.set_yscale("log")
    axis.set_ylabel("seconds")
    axis.grid(axis="y", alpha=0.3)
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * 3)
    axis.legend(frameon=False, fontsize=8, ncols=2, loc="upper right")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    measured = {device: found for device in DEVICES if (found := load("evidence", device)) is not None}
    parts = [evidence_table(measured), cost_table("vision"), cost_table("text")]
    text = "\n\n".join("\n".join(part) for part in parts if part) + "\n"
    (HERE / "table.md").write_text(text)
    print(text)
    draw(measured, HERE / "figure.png")


if __name__ == "__main__":
    main()
