"""table.md out of results/scores.json and the references of `experiments/language`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from outcomes import outcomes  # noqa: E402

from hubscout.evaluation import weighted_tau  # noqa: E402

SETS = {
    "sst2": "SST-2",
    "trec": "TREC",
    "agnews": "AG News",
    "cr": "CR",
    "sick": "SICK, together",
    "conll2003": "CoNLL-2003",
}
CHOICES = {"last": "last layer", "best": "best layer", "mean": "mean over layers"}
Values = dict[str, float]


def values(row: dict[str, Any]) -> Values:
    """LogME of a model by each choice of layer."""
    layers = row["layers"]
    single = [value for name, value in layers.items() if name != "mean"]
    return {"last": layers["final"], "best": max(single), "mean": layers["mean"]}


def regret(scores: Values, truth: Values) -> float:
    """Points that taking the first of the ranking costs against the best model."""
    return 100 * (max(truth.values()) - truth[max(scores, key=lambda model: scores[model])])


def judged(rows: dict[str, Any], truth: Values) -> dict[str, tuple[float, float]]:
    """Weighted tau and regret of each choice on one set."""
    found = {}
    for choice in CHOICES:
        scores = {model: values(row)[choice] for model, row in rows.items()}
        found[choice] = (weighted_tau(scores, truth), regret(scores, truth))
    return found


def chosen_elsewhere(by_set: dict[str, dict[str, tuple[float, float]]], left_out: str) -> str:
    """The choice with the highest mean tau on all other sets; of equal ones the one with the least regret."""
    others = [found for name, found in by_set.items() if name != left_out]

    def merit(choice: str) -> tuple[float, float]:
        return (
            round(float(np.mean([found[choice][0] for found in others])), 9),
            -float(np.mean([found[choice][1] for found in others])),
        )

    return max(CHOICES, key=merit)


def main() -> None:
    scores = json.loads((HERE / "results" / "scores.json").read_text())
    references = outcomes(HERE.parent / "language" / "results" / "references.jsonl")
    truths = {name: {model: one.test for model, one in references[name].items()} for name in SETS}
    by_set = {name: judged(scores[name]["first"], truths[name]) for name in SETS}
    lines = [
        "# Weighted tau and regret by layer",
        "",
        "Weighted tau with the test metric after fine-tuning; in brackets, points lost by taking the first.",
        "",
        "| set | " + " | ".join(CHOICES.values()) + " | chosen on the five others |",
        "|---" * 5 + "|",
    ]
    picks = []
    for name, title in SETS.items():
        pick = chosen_elsewhere(by_set, name)
        picks.append(by_set[name][pick])
        cells = [f"{tau:.2f} ({lost:.1f})" for tau, lost in by_set[name].values()]
        lines.append(f"| {title} | " + " | ".join(cells) + f" | {pick}: {picks[-1][0]:.2f} ({picks[-1][1]:.1f}) |")
    means = [np.mean([by_set[name][choice] for name in SETS], axis=0) for choice in CHOICES]
    cells = [f"**{tau:.2f}** ({lost:.1f})" for tau, lost in means]
    tau, lost = np.mean(picks, axis=0)
    lines += ["| mean | " + " | ".join(cells) + f" | **{tau:.2f}** ({lost:.1f}) |", ""]
    lines += [
        "# Tokens of a word, CoNLL-2003",
        "",
        "| tokens | " + " | ".join(CHOICES.values()) + " |",
        "|---" * 4 + "|",
    ]
    for words, rows in scores["conll2003"].items():
        found = judged(rows, truths["conll2003"])
        lines.append(f"| {words} | " + " | ".join(f"{tau:.2f} ({lost:.1f})" for tau, lost in found.values()) + " |")
    seconds = json.loads((HERE / "results" / "cost.json").read_text())
    lines += [
        "",
        "# Cost",
        "",
        "Processor seconds of ranking all-MiniLM-L6-v2 on 300 questions of TREC, each of two runs on a busy machine.",
        "",
    ]
    lines += ["| ranked by | seconds | ratio of the least |", "|---" * 3 + "|"]
    for layer, found in seconds.items():
        each = ", ".join(f"{value:.1f}" for value in found)
        lines.append(f"| {layer} | {each} | {min(found) / min(seconds['final']):.2f} |")
    lines += ["", "# LogME", "", "| set | tokens | model | n | last | best | mean |", "|---" * 7 + "|"]
    for name, title in SETS.items():
        for words, rows in scores[name].items():
            for model, row in rows.items():
                cells = [f"{value:.4f}" for value in values(row).values()]
                lines.append(f"| {title} | {words} | {model} | {row['n']} | " + " | ".join(cells) + " |")
    text = "\n".join(lines) + "\n"
    (HERE / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
