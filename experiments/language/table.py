"""table.md, layers.png and figure.png, all out of results/."""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import Outcome, outcomes  # noqa: E402

from hubscout.evaluation import permutation_p_value, weighted_tau  # noqa: E402

RESULTS = HERE / "results"
REFERENCES = RESULTS / "references.jsonl"
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
BEST_LAYER, CENTRED, CAPACITY = "logme, best layer", "logme, centred", "logme-capacity"
Values = dict[str, float]
References = dict[str, dict[str, Outcome]]
"""By set and model; SICK with the sentences read apart has none."""


def load_scores(set_name: str) -> dict[str, Any]:
    """What `run.py` wrote for a set."""
    found: dict[str, Any] = json.loads((RESULTS / f"{set_name}.json").read_text())
    return found


def metric_values(set_name: str) -> dict[str, Values]:
    """By metric, a value for each model; metrics that some model has no value for are left out."""
    rows = load_scores(set_name)["rows"]
    values = {
        name: {m: row["scores"].get(name) for m, row in rows.items()} for name in rows[next(iter(rows))]["scores"]
    }
    values[BEST_LAYER] = {m: max(row["layers"].values()) for m, row in rows.items()}
    values[CAPACITY] = {m: row["scores"]["logme"] + 0.1 * math.log(row["flops"] / 1e9) for m, row in rows.items()}
    if (RESULTS / f"{set_name}-centred.json").is_file():  # regression is centred anyway
        centred = load_scores(f"{set_name}-centred")["rows"]
        values[CENTRED] = {m: row["scores"]["logme"] for m, row in centred.items()}
    return {name: of for name, of in values.items() if all(value is not None for value in of.values())}


def truth(references: References, set_name: str) -> Values:
    """What fine-tuning gave: the mean over seeds."""
    return {model: outcome.test for model, outcome in references[set_name].items()}


def shown(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e6 else f"{value / 1e6:.1f} M"


def score_table(references: References) -> list[str]:
    """LogME of each encoder on each set, and what fine-tuning gives."""
    lines = ["| set | " + " | ".join(MODELS) + " |", "|---" * (len(MODELS) + 1) + "|"]
    for set_name, (title, measure) in SETS.items():
        rows = load_scores(set_name)["rows"]
        cells = [f"{rows[m]['scores']['logme']:.4f} ± {rows[m]['standard_error']:.4f}" for m in MODELS]
        lines.append(f"| {title}: LogME | " + " | ".join(cells) + " |")
        if set_name in references:
            known = [references[set_name][m] for m in MODELS]
            cells = [f"{100 * k.test:.1f} ({', '.join(f'{100 * test:.1f}' for test in k.tests)})" for k in known]
            lines.append(f"| {title}: fine-tuned, {measure} × 100 | " + " | ".join(cells) + " |")
    return lines


def metric_table() -> list[str]:
    """Every metric's value on every set."""
    lines = ["| set | metric | " + " | ".join(MODELS) + " |", "|---" * (len(MODELS) + 2) + "|"]
    for set_name, (title, _) in SETS.items():
        for name, values in sorted(metric_values(set_name).items()):
            lines.append(f"| {title} | {name} | " + " | ".join(shown(values[m]) for m in MODELS) + " |")
    return lines


def agreement_table(references: References) -> list[str]:
    """Weighted tau of every metric on every set that has references, metrics by their mean."""
    complete = [name for name in SETS if name in references]
    taus: dict[str, dict[str, float]] = defaultdict(dict)
    chances: dict[str, float] = {}
    for set_name in complete:
        goal = truth(references, set_name)
        for metric, values in metric_values(set_name).items():
            taus[metric][set_name] = weighted_tau(values, goal)
        chances[set_name] = permutation_p_value(metric_values(set_name)["logme"], goal)
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
        rows = load_scores(set_name)["rows"]
        cells = []
        for model in MODELS:
            layers = {name: value for name, value in rows[model]["layers"].items() if name}
            best = max(layers, key=lambda name: layers[name])
            last = len(layers) - 1
            number = best.removeprefix("layer.")
            cells.append(f"{number} of {last}: {layers[best]:.4f} (last {layers[f'layer.{last}']:.4f})")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def setting_table(references: References) -> list[str]:
    """What validation chose."""
    lines = ["| set | " + " | ".join(MODELS) + " |", "|---" * (len(MODELS) + 1) + "|"]
    for set_name, (title, _) in SETS.items():
        if set_name in references:
            cells = [f"{references[set_name][m].learning_rate:g}" for m in MODELS]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def protocol_line() -> str:
    """How the references were made, as their records say."""
    trials = [json.loads(line) for line in REFERENCES.read_text().splitlines()]

    def tried(name: str) -> str:
        return ", ".join(f"{value:g}" for value in sorted({trial[name] for trial in trials}))

    options, seconds = trials[0]["run"]["options"], sum(trial["seconds"] for trial in trials)
    return (
        f"Fine-tuning: {options['steps']} steps of {options['batch_size']}, learning rates {tried('learning_rate')}, "
        f"weight decay {tried('weight_decay')}, seeds {tried('seed')}; {len(trials)} runs, {seconds:.0f} seconds of "
        "all together, several at a time on one GPU."
    )


def draw_agreement(references: References) -> None:
    """figure.png: LogME against fine-tuning, a panel per set; bars are standard errors, and the span of the seeds."""

    def fill(axis: Axes, set_name: str) -> None:
        title, measure = SETS[set_name]
        rows = load_scores(set_name)["rows"]
        for model, (colour, marker) in MODELS.items():
            y = 100 * np.array(references[set_name][model].tests)
            x, error = rows[model]["scores"]["logme"], rows[model]["standard_error"]
            spread = [[y.mean() - y.min()], [y.max() - y.mean()]]
            axis.errorbar(x, y.mean(), xerr=error, yerr=spread, color=colour, marker=marker, ms=5, lw=1)
        tau = weighted_tau(metric_values(set_name)["logme"], truth(references, set_name))
        axis.set_title(rf"{title}, $\tau_w = {tau:.2f}$", fontsize=8)
        axis.set_xlabel("LogME", fontsize=7)
        axis.set_ylabel(f"fine-tuned, {measure} × 100", fontsize=7)
        axis.margins(0.1)
        axis.locator_params(nbins=6)

    panels([name for name in SETS if name in references], fill, HERE / "figure.png")


def draw_layers() -> None:
    """layers.png: LogME of every layer, a panel per set."""

    def fill(axis: Axes, set_name: str) -> None:
        for model, row in load_scores(set_name)["rows"].items():
            colour, marker = MODELS[model]
            layers = [value for name, value in row["layers"].items() if name]
            axis.plot(np.linspace(0, 1, len(layers)), layers, color=colour, marker=marker, ms=3, lw=1)
        axis.set_title(SETS[set_name][0], fontsize=8)
        axis.set_xlabel("depth (0: embeddings, 1: last layer)", fontsize=7)
        axis.set_ylabel("LogME", fontsize=7)

    panels(list(SETS), fill, HERE / "layers.png")


def panels(names: list[str], fill: Callable[[Axes, str], None], path: Path) -> None:
    """A small plot for each set, in two rows, and the legend below."""
    figure, axes = plt.subplots(2, -(-len(names) // 2), figsize=(9, 5), dpi=150)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis, set_name in zip(axes.flat, names, strict=False):
        fill(axis, set_name)
        axis.tick_params(labelsize=6)
        axis.spines[["top", "right"]].set_visible(False)
    handles = [
        plt.Line2D([], [], color=colour, marker=marker, ms=5, lw=0, label=model)
        for model, (colour, marker) in MODELS.items()
    ]
    figure.legend(handles=handles, loc="lower center", ncol=len(handles), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    references = outcomes(REFERENCES)
    whole = load_scores("sst2-whole")
    on_all = ", ".join(f"{m} {whole['rows'][m]['scores']['logme']:.4f}" for m in MODELS)
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
        "# Learning rate that validation chose",
        "",
        protocol_line(),
        "",
        *setting_table(references),
        "",
        "# Every metric",
        "",
        *metric_table(),
        "",
        f"LogME on all {whole['n']} training sentences of SST-2: {on_all}.",
        "",
    ]
    text = "\n".join(lines)
    (HERE / "table.md").write_text(text)
    draw_layers()
    draw_agreement(references)
    print(text)


if __name__ == "__main__":
    main()
