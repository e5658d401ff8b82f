"""table.md and figure.png out of results/."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from scipy import stats

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
MODELS = ("all-MiniLM-L6-v2", "sre-minilm", "paraphrase-MiniLM-L3-v2", "m3e-small")
METHODS = {
    "posterior": "posterior weights m of LogME",
    "posterior_centred": "posterior weights m, centred",
    "logistic": "logistic regression, C = 1",
    "logistic_chosen": "logistic regression, C by leave-one-out",
    "sgd": "logistic head by SGD, default settings",
    "nearest_mean": "nearest class mean",
    "anchors_encoded": "anchor words read as texts, best pair on the ten",
    "anchors_table": "anchor words' input embeddings, best pair on the ten",
}
STYLES = {
    "posterior": ("#0072B2", "o", "posterior weights m"),
    "posterior_centred": ("#56B4E9", "v", "m, centred"),
    "logistic_chosen": ("#D55E00", "s", "logistic, C chosen"),
    "sgd": ("#CC79A7", "D", "SGD head"),
    "anchors_encoded": ("#009E73", "^", "anchor words"),
}
VALIDATED = {
    "posterior_all": "m of the ten and the 872 together",
    "logistic_all": "logistic regression on the ten and the 872 together, C = 1",
    "logistic_all_chosen": "the same, C by ten folds of them (three draws)",
    "logistic_validated": "logistic regression on the ten, C chosen on the 872",
}
TEN = 5
"""Sentences of each class in the experiment with ten."""
PAPER = {"posterior_all": 79.24, "logistic_validated": 51.64}
PAPER_ANCHORS = 61.4


def load(model: str) -> dict[int, dict[str, np.ndarray]]:
    """By sentences of a class and by column, a value for each draw."""
    path = RESULTS / f"accuracy-{model}.csv"
    if not path.is_file():
        return {}
    rows = list(csv.DictReader(path.open()))
    sizes = dict.fromkeys(int(row["per_class"]) for row in rows)
    return {
        size: {
            name: np.array([float(row[name] or "nan") for row in rows if int(row["per_class"]) == size])
            for name in rows[0]
            if name not in ("per_class", "seed")
        }
        for size in sizes
    }


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean over draws and the half-width of its 95% interval by Student's t, and the standard deviation of a draw."""
    deviation = values.std(ddof=1)
    return values.mean(), stats.t.ppf(0.975, len(values) - 1) * deviation / np.sqrt(len(values)), deviation


def accuracy_table(data: dict[str, dict[int, dict[str, np.ndarray]]]) -> list[str]:
    """Mean ± standard deviation over the draws of ten."""
    lines = ["| method | " + " | ".join(data) + " |", "|---" * (len(data) + 1) + "|"]
    for method, title in METHODS.items():
        lines.append(f"| {title} | " + " | ".join(spread(found[TEN][method]) for found in data.values()) + " |")
    for column, title in (("zero", ""), ("zero_centred", ", centred")):
        counts = [[int((found[TEN][column] == number).sum()) for number in (1, 2)] for found in data.values()]
        cells = [f"{one}, {both}" for one, both in counts]
        lines.append(f"| draws in which m is zero for one class, for both{title} | " + " | ".join(cells) + " |")
    return lines


def spread(values: np.ndarray) -> str:
    """Mean ± standard deviation of the draws that have a value."""
    mean, _, deviation = interval(100 * values[~np.isnan(values)])
    return f"{mean:.1f} ± {deviation:.1f}"


def validated_table(data: dict[str, dict[int, dict[str, np.ndarray]]]) -> list[str]:
    """The paper's own comparison, in which there are validation sentences besides the ten."""
    lines = ["| method | " + " | ".join(data) + " | the paper |", "|---" * (len(data) + 2) + "|"]
    for method, title in VALIDATED.items():
        cells = [spread(found[TEN][method]) for found in data.values()]
        lines.append(f"| {title} | " + " | ".join(cells) + f" | {PAPER.get(method, '–')} |")
    for space, title in (("encoded", "anchor words read as texts"), ("table", "anchor words' input embeddings")):
        grids = [json.loads((RESULTS / f"anchors-{model}.json").read_text())[space] for model in data]
        cells = [f"{100 * grid['searched_test']:.1f} ({grid['searched'].replace('/', ', ')})" for grid in grids]
        paper = f"{PAPER_ANCHORS} (great, evil)" if space == "table" else "–"
        lines.append(f"| {title}, searched on the 872 | " + " | ".join(cells) + f" | {paper} |")
    return lines


def difference_table(data: dict[str, dict[int, dict[str, np.ndarray]]]) -> list[str]:
    """The posterior's lead over each other method on the same draws, with its 95% interval."""
    lines = ["| posterior weights m less ... | " + " | ".join(data) + " |", "|---" * (len(data) + 1) + "|"]
    for other, title in METHODS.items():
        if other == "posterior":
            continue
        cells = []
        for found in data.values():
            mean, half, _ = interval(100 * (found[TEN]["posterior"] - found[TEN][other]))
            cells.append(f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def size_table(data: dict[str, dict[int, dict[str, np.ndarray]]]) -> list[str]:
    """Mean accuracy by the number of sentences."""
    sizes = sorted(next(iter(data.values())))
    lines = [
        "| encoder | method | " + " | ".join(str(2 * size) for size in sizes) + " |",
        "|---" * (len(sizes) + 2) + "|",
    ]
    for model, found in data.items():
        for method, title in METHODS.items():
            cells = [f"{100 * found[size][method].mean():.1f}" for size in sizes]
            lines.append(f"| {model} | {title.replace(' on the ten', ' on them')} | " + " | ".join(cells) + " |")
    return lines


def anchor_tables() -> list[str]:
    """What every pair of anchor words gives."""
    lines = []
    for model in MODELS:
        path = RESULTS / f"anchors-{model}.json"
        if not path.is_file():
            continue
        for space, title in (("encoded", "read as texts"), ("table", "input embeddings")):
            grid = json.loads(path.read_text())[space]
            pairs = {tuple(pair.split("/")): value for pair, value in grid["pairs"].items()}
            negatives = list(dict.fromkeys(n for _, n in pairs))
            lines += [
                f"{model}, {title}; searched on 872 labels: {grid['searched'].replace('/', ' and ')}, "
                f"{100 * grid['searched_test']:.1f}",
                "",
            ]
            lines += ["| | " + " | ".join(negatives) + " |", "|---" * (len(negatives) + 1) + "|"]
            for positive in dict.fromkeys(p for p, _ in pairs):
                cells = [f"{100 * pairs[positive, n]:.1f}" if (positive, n) in pairs else "–" for n in negatives]
                lines.append(f"| {positive} | " + " | ".join(cells) + " |")
            lines.append("")
    return lines


def word_tables() -> list[str]:
    """Words nearest to the weight vectors."""
    lines = ["| encoder | fit | space | negative | positive |", "|---|---|---|---|---|"]
    for model in MODELS:
        path = RESULTS / f"words-{model}.json"
        for place, found in (json.loads(path.read_text()) if path.is_file() else {}).items():
            center, fit, space = place.split("; ")
            # A similarity of 0 is that of weights that are zero.
            words = [
                ", ".join(word for word, likeness in found[label][:6] if likeness) or "(m is zero)"
                for label in ("negative", "positive")
            ]
            lines.append(f"| {model} | {fit}, {center} | {space} | {words[0]} | {words[1]} |")
    return lines


def draw(data: dict[str, dict[int, dict[str, np.ndarray]]]) -> None:
    """Accuracy against the number of sentences, a panel an encoder."""
    figure, axes = plt.subplots(1, len(data), figsize=(9, 3.2), dpi=150, sharey=True, squeeze=False)
    for axis, (model, found) in zip(axes[0], data.items(), strict=True):
        sizes = sorted(found)
        for method, (colour, marker, label) in STYLES.items():
            points = [interval(100 * found[size][method]) for size in sizes]
            axis.errorbar(
                [2 * size for size in sizes],
                [mean for mean, _, _ in points],
                yerr=[half for _, half, _ in points],
                color=colour,
                marker=marker,
                ms=4,
                lw=1.2,
                label=label,
            )
        axis.axhline(50, color="0.7", lw=0.8, ls=":")
        axis.set_xscale("log")
        axis.set_xticks([4, 10, 20, 50, 100], ["4", "10", "20", "50", "100"])
        axis.minorticks_off()
        axis.set_title(model, fontsize=9)
        axis.set_xlabel("labelled sentences", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("accuracy on test, %", fontsize=8)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(STYLES), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(HERE / "figure.png", metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    data = {model: found for model in MODELS if (found := load(model))}
    draws = len(next(iter(data.values()))[TEN]["posterior"])
    lines = [
        f"# Ten sentences of SST-2: accuracy on 1000 of test, mean ± standard deviation over {draws} draws, in percent",
        "",
        *accuracy_table(data),
        "",
        "# With 872 labelled sentences more, as the paper had validation data",
        "",
        *validated_table(data),
        "",
        f"# Paired differences over the {draws} draws, in points, with 95% intervals",
        "",
        *difference_table(data),
        "",
        "# Nearest words of the weight vectors",
        "",
        *word_tables(),
        "",
        "# More sentences: mean accuracy by their number, in percent",
        "",
        *size_table(data),
        "",
        "# All pairs of anchor words: accuracy in percent",
        "",
        *anchor_tables(),
    ]
    text = "\n".join(lines)
    (HERE / "table.md").write_text(text)
    draw(data)
    print(text)


if __name__ == "__main__":
    main()
