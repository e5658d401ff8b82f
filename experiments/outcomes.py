"""What fine-tuning gave, read out of a file that `references.py` wrote; needs no torch, so that tables are quick."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

COLLAPSED = 0.5
"""A seed whose validation is below this share of seed 0's has collapsed."""
CLASSIFICATION = Path(__file__).resolve().parent / "classification" / "results"


@dataclass(frozen=True)
class Outcome:
    """A model on a set, at the setting that validation chose with seed 0."""

    learning_rate: float
    weight_decay: float
    validation: float
    """With seed 0."""
    tests: tuple[float, ...]
    """One a seed, without those that collapsed."""

    @property
    def test(self) -> float:
        return fmean(self.tests)


def outcomes(file: Path, rates: Collection[float] | None = None) -> dict[str, dict[str, Outcome]]:
    """Set → model → outcome; trials that diverged or collapsed are left out: whoever runs one sees it.

    With `rates`, what a search over these learning rates alone would have given.
    """
    trials: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for text in file.read_text().splitlines():
        trial = json.loads(text)
        if rates is not None and trial["learning_rate"] not in rates:
            continue
        if trial["validation"] is not None and trial["test"] is not None:
            trials[trial["set"], trial["model"]].append(trial)
    found: dict[str, dict[str, Outcome]] = defaultdict(dict)
    for (set_name, model), members in sorted(trials.items()):
        first = [trial for trial in members if trial["seed"] == 0]
        if not first:
            continue
        best = max(first, key=lambda trial: (trial["validation"], -trial["learning_rate"]))
        setting = best["learning_rate"], best["weight_decay"]
        same = sorted((t for t in members if (t["learning_rate"], t["weight_decay"]) == setting), key=_seed)
        same = [trial for trial in same if trial["validation"] >= COLLAPSED * best["validation"]]
        found[set_name][model] = Outcome(*setting, best["validation"], tuple(trial["test"] for trial in same))
    return dict(found)


def _seed(trial: dict[str, Any]) -> int:
    return int(trial["seed"])


def logme_on_all(set_name: str, folder: Path = CLASSIFICATION / "scores") -> dict[str, float]:
    """Model → LogME of its final features on all train images of a set."""
    rows = json.loads((folder / f"{set_name}-layers.json").read_text())["rows"]
    return {model: row["scores"]["logme"] for model, row in rows.items()}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
