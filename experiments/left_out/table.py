"""Would the accuracy on samples left out order models better than LogME? `python experiments/left_out/table.py`

Against fine-tuning, from `classification/results/references.jsonl` and `regression/results/references.jsonl`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import CLASSIFICATION, outcomes, table  # noqa: E402

from hubscout.evaluation import weighted_tau  # noqa: E402

SETS = ("pets", "cifar10", "fashion-mnist", "sign-digits", "omniglot", "pet-heads", "sprites")


def main() -> None:
    known = outcomes(CLASSIFICATION / "references.jsonl")
    known |= {
        name: one
        for name, one in outcomes(HERE.parent / "regression" / "results" / "references.jsonl").items()
        if name not in known
    }
    lines, taus = [], []
    for set_name in SETS:
        file = HERE / "results" / f"{set_name}.json"
        if not file.exists():
            continue
        found = json.loads(file.read_text())
        models = sorted(set(found["rows"]) & set(known[set_name]))
        reached = np.array([known[set_name][model].test for model in models])
        rows = [found["rows"][model] for model in models]
        main_metric = next(iter(rows[0]["expected"]))
        scores = [np.array([row["logme"] for row in rows]), np.array([row["expected"][main_metric][0] for row in rows])]
        tau = [float(weighted_tau(score, reached)) for score in scores]
        lost = [100 * float(reached.max() - reached[score.argmax()]) for score in scores]
        taus.append(tau)
        texts = [f"{tau[0]:.2f}", f"{tau[1]:.2f}", f"{lost[0]:.1f}", f"{lost[1]:.1f}"]
        lines.append([set_name, str(len(models)), str(found["n"]), main_metric, *texts])
    mean = np.mean(taus, axis=0)
    lines.append(["mean", "", "", "", f"**{mean[0]:.2f}**", f"**{mean[1]:.2f}**", "", ""])
    head = ["set", "models", "n", "metric", "τ of LogME", "τ of the metric", "points lost by LogME", "by the metric"]
    text = "# Weighted τ with fine-tuning, on the same samples\n\n" + "\n".join(table(head, lines)) + "\n"
    (HERE / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
