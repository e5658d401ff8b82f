"""Scores of every vision model on every set, by every metric: `results/scores/<set>.json`.

    python experiments/classification/run.py scores --workers 12        # all metrics on 1,500 train images
    python experiments/classification/run.py layers --workers 12        # LogME of every layer on all train images
    python experiments/references.py --family vision --workers 12 --out .../classification/results/references.jsonl

Features are kept in $HUBSCOUT_EXPERIMENT_CACHE/features; scores go through `hubscout.rank`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import shared_hub  # noqa: E402
from data_sets import CLASSIFICATION, REGRESSION, open_set  # noqa: E402
from pool import run_jobs  # noqa: E402
from scores import score_set  # noqa: E402

LIMIT = 1500
"""Train images for the metrics that cost more than LogME."""
ONLINE = ("popularity",)


@dataclass(frozen=True)
class Question:
    """What one process is to score."""

    set_name: str
    models: tuple[str, ...]
    metrics: tuple[str, ...]
    layers: bool
    limit: int | None
    center: bool | None = None

    def __str__(self) -> str:
        return f"{self.set_name} {' '.join(self.models[:1])}"


def score(asked: Question) -> dict[str, Any]:
    return score_set(
        asked.set_name,
        list(asked.models),
        list(asked.metrics),
        layers=asked.layers,
        limit=asked.limit,
        center=asked.center,
    )


def metrics_of(set_name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Metrics of one model at a time with LogME first, and those that compare the models of a zoo."""
    from hubscout.metrics import available

    kind = open_set(set_name).kind
    zoo = available(kind, level="zoo")
    single = [name for name in available(kind, level="model") if name not in ("logme", *ONLINE)]
    return ("logme", *single), zoo


class Files:
    """One JSON a set, written again whenever a part comes."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder, self.suffix = folder, suffix
        self.sets: dict[str, dict[str, Any]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, found: dict[str, Any]) -> None:
        whole = self.sets.setdefault(found["set"], {**found, "rows": {}, "failures": {}})
        for model, row in found["rows"].items():
            before = whole["rows"].get(model, row)
            whole["rows"][model] = {**before, "scores": {**row["scores"], **before["scores"]}}
        whole["failures"].update(found["failures"])
        path = self.folder / f"{found['set']}{self.suffix}.json"
        path.write_text(json.dumps(whole, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["scores", "layers", "centred"])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--sets", nargs="*", default=[*CLASSIFICATION, *REGRESSION])
    parser.add_argument("--models", nargs="*", default=list(shared_hub.VISION))
    parser.add_argument("--limit", type=int, help="train images; default 1,500 for `scores`, all for the others")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "scores")
    arguments = parser.parse_args()
    names = {set_name: metrics_of(set_name) for set_name in arguments.sets}
    all_metrics = arguments.stage == "scores"
    files = Files(arguments.out, "" if all_metrics else f"-{arguments.stage}")
    jobs = [
        Question(
            set_name,
            (model,),
            names[set_name][0] if all_metrics else ("logme",),
            layers=arguments.stage == "layers",
            limit=arguments.limit or (LIMIT if all_metrics else None),
            center=True if arguments.stage == "centred" else None,
        )
        for model in arguments.models
        for set_name in arguments.sets
    ]
    for _, found in run_jobs(score, jobs, arguments.workers):
        files.add(found)
    if all_metrics:
        together = [
            Question(set_name, tuple(files.sets[set_name]["rows"]), ("logme", *zoo), False, arguments.limit or LIMIT)
            for set_name, (_, zoo) in names.items()
            if zoo
        ]
        for _, found in run_jobs(score, together, arguments.workers):
            files.add(found)


if __name__ == "__main__":
    main()
