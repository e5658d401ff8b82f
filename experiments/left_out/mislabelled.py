"""Planted wrong labels: are left-out predictions in closed form as good at finding them as ten folds, and how fast?

    python experiments/left_out/mislabelled.py      # results/mislabelled.json and mislabelled.md; minutes on one core

A share of the labels is replaced by another class at random. Rows are ordered as `hubscout check` orders its suspects;
precision at k is the share of planted ones among the first k, with k as many as were planted.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from data_sets import open_set  # noqa: E402
from shared_hub import text_identifier  # noqa: E402

from hubscout.checking.mislabelled import find_suspects, predict_from_others  # noqa: E402
from hubscout.evidence import logme  # noqa: E402
from hubscout.features import extract  # noqa: E402
from hubscout.tasks import Task  # noqa: E402
from hubscout.tasks.kinds import kind_of  # noqa: E402

SHARES, SEEDS, ROWS, FOLDS = (0.02, 0.05, 0.1), range(5), 1000, 10


def ten_folds(features: np.ndarray, labels: np.ndarray, width: int) -> np.ndarray:
    """Each row from a fit to nine tenths of the others."""
    fold = np.random.default_rng(0).permutation(len(features)) % FOLDS
    predicted = np.empty((len(features), width))
    for one in range(FOLDS):
        rest = fold != one
        evidence = logme(features[rest], labels[rest], classes=range(width), center=True, jackknife="none")
        predicted[~rest] = evidence.predict(features[~rest])
    return predicted


def closed_form(features: np.ndarray, labels: np.ndarray, width: int) -> np.ndarray:
    return predict_from_others(features, labels, kind_of("classification"), width)


def sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Features and labels: pixels of digits, and sentences by an encoder."""
    found = {"digits (pixels)": load_digits(return_X_y=True)}
    for name in ("trec", "cr", "agnews"):
        task = open_set(name).subset(ROWS)
        extraction = extract(text_identifier("all-MiniLM-L6-v2"), task, statistics=False, accelerate="off")
        found[f"{name} (all-MiniLM-L6-v2)"] = (extraction.features(), extraction.targets)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    rows = []
    for name, (features, labels) in sets().items():
        width = int(labels.max()) + 1
        task = Task.from_arrays(np.eye(2 * width), [str(i) for i in range(width)] * 2)
        for share in SHARES:
            for method in (ten_folds, closed_form):
                hits, seconds = [], 0.0
                for seed in SEEDS:
                    rng = np.random.default_rng(seed)
                    planted = rng.choice(len(labels), round(share * len(labels)), replace=False)
                    wrong = labels.copy()
                    wrong[planted] = (wrong[planted] + rng.integers(1, width, len(planted))) % width
                    started = time.process_time()
                    predicted = method(features, wrong, width)
                    seconds += time.process_time() - started
                    suspects = sorted(find_suspects(task, predicted, wrong), key=lambda one: -one.margin)
                    first = {one.row for one in suspects[: len(planted)]}
                    hits.append(len(first & set(planted.tolist())) / len(planted))
                rows.append(
                    {
                        "set": name,
                        "n": len(labels),
                        "share": share,
                        "method": method.__name__,
                        "precision_at_k": float(np.mean(hits)),
                        "cpu_seconds": seconds / len(SEEDS),
                    }
                )
                print(rows[-1], flush=True)
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "mislabelled.json").write_text(json.dumps(rows, indent=1) + "\n")
    lines = [
        "| set | rows | planted | precision at k, ten folds | closed form | CPU seconds, ten folds | closed form |"
    ]
    lines.append("|---" * 7 + "|")
    for folds, closed in zip(rows[::2], rows[1::2], strict=True):
        lines.append(
            f"| {folds['set']} | {folds['n']} | {folds['share']:.0%} | {folds['precision_at_k']:.3f} "
            f"| {closed['precision_at_k']:.3f} | {folds['cpu_seconds']:.2f} | {closed['cpu_seconds']:.2f} |"
        )
    (HERE / "mislabelled.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
