"""table.md, layers.png and, where `results/references.jsonl` is there, figure.png: all out of results/."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from hubscout.evaluation import permutation_p_value, weighted_tau

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
MODELS = {
    "all-MiniLM-L6-v2": ("#0072B2", "o"),
    "sre-minilm": ("#D55E00", "s"),
    "paraphrase-MiniLM-L3-v2": ("#009E73", "^"),
    "m3e-small": ("#CC79A7", "D"),
}
SETS = {
    "sst2": ("SST-2", "accuracy"),
    "trec": ("TREC", "accuracy"),
    "agnews": ("AG News", "accuracy"),
    "cr": ("CR", "accuracy"),
    "sick": ("SICK, together", "R²"),
    "sick-siamese": ("SICK, apart", "R²"),
    "conll2003": ("CoNLL-2003", "F1"),
}
BEST_LAYER, CENTRED = "logme, best layer", "logme, centred"
Values = dict[str, float]


def load_scores(set_name: str) -> dict[str, Any] | None:
    """What `run.py` wrote for a set."""
    path = RESULTS / f"{set_name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def metric_values(set_name: str) -> dict[str, Values]:
    """By metric, a value for each model; metrics that some model has no value for are left out."""
    found = load_scores(set_name)
    if found is None:
        return {}
    rows = found["rows"]
    values = {
        name: {m: row["scores"].get(name) for m, row in rows.items()} for name in rows[next(iter(rows))]["scores"]
    }
    values[BEST_LAYER] = {m: max(row["layers"].values()) for m, row in rows.items()}
    centred = load_scores(f"{set_name}-centred")
    if centred is not None:
        values[CENTRED] = {m: row["scores"]["logme"] for m, row in centred["rows"].items()}
    return {name: of for name, of in values.items() if all(value is not None for value in of.values())}


def load_references() -> dict[str, dict[str, dict[str, Any]]]:
    """By set and model: the test metric of each seed at the setting that validation chose with seed 0."""
    path = RESULTS / "references.jsonl"
    trials = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    by_place: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for trial in trials:
        if trial["test"] is not None:
            by_place[trial["set"], trial["model"]].append(trial)
    found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for (set_name, model), tried in by_place.items():
        first = [trial for trial in tried if trial["seed"] == 0]
        if not first:
            continue
        best = max(first, key=lambda trial: (trial["validation"], -trial["learning_rate"]))
        setting = (best["learning_rate"], best["weight_decay"])
        tests = [t["test"] for t in tried if (t["learning_rate"], t["weight_decay"]) == setting]
        found[set_name][model] = {"tests": tests, "setting": setting, "seconds": sum(t["seconds"] for t in tried)}
    return found


def shown(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e6 else f"{value / 1e6:.1f} M"


def score_table(references: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """LogME of each encoder on each set, and what fine-tuning gives."""
    lines = ["| set | " + " | ".join(MODELS) + " |", "|---" * (len(MODELS) + 1) + "|"]
    for set_name, (title, measure) in SETS.items():
        found = load_scores(set_name)
        if found is None:
            continue
        rows = found["rows"]
        cells = [f"{rows[m]['scores']['logme']:.4f} ± {rows[m]['standard_error']:.4f}" for m in MODELS]
        lines.append(f"| {title}: LogME | " + " | ".join(cells) + " |")
        known = references.get(set_name, {})
        if known:
            cells = [
                f"{100 * np.mean(known[m]['tests']):.1f} ({', '.join(f'{100 * t:.1f}' for t in known[m]['tests'])})"
                if m in known
                else "–"
                for m in MODELS
            ]
            lines.append(f"| {title}: fine-tuned, {measure} × 100 | " + " | ".join(cells) + " |")
    return lines


def metric_table() -> list[str]:
    """Every metric's value on every set."""
    lines = ["| set | metric | " + " | ".join(MODELS) + " |", "|---" * (len(MODELS) + 2) + "|"]
    for set_name, (title, _) in SETS.items():
        for name, values in sorted(metric_values(set_name).items()):
            lines.append(f"| {title} | {name} | " + " | ".join(shown(values[m]) for m in MODELS) + " |")
    return lines


def agreement_table(references: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Weighted tau of every metric on every set whose references are complete, metrics by their mean."""
    complete = [name for name in SETS if set(references.get(name, {})) == set(MODELS) and load_scores(name)]
    if not complete:
        return ["No reference yet: `results/references.jsonl` is not there."]
    taus: dict[str, dict[str, float]] = defaultdict(dict)
    chances: dict[str, float] = {}
    for set_name in complete:
        truth = {m: float(np.mean(known["tests"])) for m, known in references[set_name].items()}
        for metric, values in metric_values(set_name).items():
            taus[metric][set_name] = weighted_tau(values, truth)
        chances[set_name] = permutation_p_value(metric_values(set_name)["logme"], truth)
    order = sorted(taus, key=lambda metric: (-len(taus[metric]), -np.mean(list(taus[metric].values())), metric))
    lines = [
        "| metric | " + " | ".join(SETS[name][0] for name in complete) + " | mean |",
        "|---" * (len(complete) + 2) + "|",
    ]
    for metric in order:
        cells = [f"{taus[metric][name]:.2f}" if name in taus[metric] else "–" for name in complete]
        of = f" of {len(taus[metric])}" if len(taus[metric]) < len(complete) else ""
        lines.append(f"| {metric} | " + " | ".join(cells) + f" | {np.mean(list(taus[metric].values())):.2f}{of} |")
    lines += ["", "Chance that a random order does as well as LogME: "]
    lines[-1] += ", ".join(f"{SETS[name][0]} {chances[name]:.2f}" for name in complete) + "."
    return lines


def layer_table() -> list[str]:
    """The layer with the highest LogME."""
    lines = ["| set | " + " | ".join(MODELS) + " |", "|---" * (len(MODELS) + 1) + "|"]
    for set_name, (title, _) in SETS.items():
        found = load_scores(set_name)
        if found is None:
            continue
        cells = []
        for model in MODELS:
            layers = {name: value for name, value in found["rows"][model]["layers"].items() if name}
            best = max(layers, key=lambda name: layers[name])
            last = len(layers) - 1
            number = best.removeprefix("layer.")
            cells.append(f"{number} of {last}: {layers[best]:.4f} (last {layers[f'layer.{last}']:.4f})")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def setting_table(references: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """What validation chose."""
    lines = ["| set | " + " | ".join(MODELS) + " |", "|---" * (len(MODELS) + 1) + "|"]
    for set_name, (title, _) in SETS.items():
        known = references.get(set_name, {})
        if known:
            cells = ["{:g}, {:g}".format(*known[m]["setting"]) if m in known else "–" for m in MODELS]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    total = sum(known["seconds"] for of in references.values() for known in of.values())
    return [*lines, "", f"Seconds of all runs together: {total:.0f}."] if references else []


def protocol_line() -> str:
    """How the references were made, as their records say."""
    path = RESULTS / "references.jsonl"
    trials = [json.loads(line) for line in path.read_text().splitlines()]

    def tried(name: str) -> str:
        return ", ".join(f"{value:g}" for value in sorted({trial[name] for trial in trials}))

    options = trials[0]["run"]["options"]
    return (
        f"Fine-tuning: {options['steps']} steps of {options['batch_size']}, learning rates {tried('learning_rate')}, "
        f"weight decays {tried('weight_decay')}, seeds {tried('seed')}; {len(trials)} runs."
    )


def draw_agreement(references: dict[str, dict[str, dict[str, Any]]]) -> None:
    """figure.png: LogME against fine-tuning, a panel a set; bars are standard errors, and the span of the seeds."""

    def fill(axis: Axes, set_name: str) -> None:
        title, measure = SETS[set_name]
        rows, known = load_scores(set_name)["rows"], references[set_name]  # type: ignore[index]
        for model, (colour, marker) in MODELS.items():
            if model in known:
                x = 100 * np.array(known[model]["tests"])
                y, error = rows[model]["scores"]["logme"], rows[model]["standard_error"]
                spread = [[x.mean() - x.min()], [x.max() - x.mean()]]
                axis.errorbar(x.mean(), y, yerr=error, xerr=spread, color=colour, marker=marker, ms=5, lw=1)
        if set(known) == set(MODELS):
            truth = {m: float(np.mean(known[m]["tests"])) for m in MODELS}
            title += rf", $\tau_w$ = {weighted_tau(metric_values(set_name)['logme'], truth):.2f}"
        axis.set_title(title, fontsize=8)
        axis.set_xlabel(f"fine-tuned, {measure} × 100", fontsize=7)

    panels([name for name in SETS if load_scores(name) and references.get(name)], fill, HERE / "figure.png")


def draw_layers() -> None:
    """layers.png: LogME of every layer, a panel a set."""

    def fill(axis: Axes, set_name: str) -> None:
        for model, row in load_scores(set_name)["rows"].items():  # type: ignore[index]
            colour, marker = MODELS[model]
            layers = [value for name, value in row["layers"].items() if name]
            axis.plot(np.linspace(0, 1, len(layers)), layers, color=colour, marker=marker, ms=3, lw=1)
        axis.set_title(SETS[set_name][0], fontsize=8)
        axis.set_xlabel("depth (0: embeddings, 1: last layer)", fontsize=7)

    panels([name for name in SETS if load_scores(name)], fill, HERE / "layers.png")


def panels(names: list[str], fill: Callable[[Axes, str], None], path: Path) -> None:
    """A small plot for each set, four in a row, and the legend in the last place."""
    lines = -(-(len(names) + 1) // 4)
    figure, axes = plt.subplots(lines, 4, figsize=(9, 2.3 * lines), dpi=150, squeeze=False)
    for axis in axes.flat:
        axis.set_visible(False)
    for axis, set_name in zip(axes.flat, names, strict=False):
        axis.set_visible(True)
        fill(axis, set_name)
        axis.tick_params(labelsize=6)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("LogME", fontsize=7)
    handles = [
        plt.Line2D([], [], color=colour, marker=marker, ms=5, lw=0, label=model)
        for model, (colour, marker) in MODELS.items()
    ]
    figure.legend(handles=handles, loc="lower right", bbox_to_anchor=(0.985, 0.24 / lines), fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    references = load_references()
    lines = [
        "# LogME and fine-tuning",
        "",
        "LogME ± standard error on 2000 training rows (CoNLL: 500 sentences); fine-tuned: mean of seeds (each).",
        "",
        *score_table(references),
        "",
        "# Weighted tau of every metric",
        "",
        *agreement_table(references),
        "",
        "# The best layer by LogME",
        "",
        *layer_table(),
        "",
    ]
    if references:
        lines += ["# Learning rate and weight decay that validation chose", "", protocol_line(), ""]
        lines += [*setting_table(references), ""]
    lines += ["# Every metric", "", *metric_table(), ""]
    whole = load_scores("sst2-whole")
    if whole is not None:
        cells = [f"{m} {whole['rows'][m]['scores']['logme']:.4f}" for m in MODELS]
        lines += [f"LogME on all {whole['n']} training sentences of SST-2: {', '.join(cells)}.", ""]
    text = "\n".join(lines)
    (HERE / "table.md").write_text(text)
    draw_layers()
    if references:
        draw_agreement(references)
    print(text)


if __name__ == "__main__":
    main()
