"""Scores that look beyond frozen last features, of every vision model on every set: `results/<family>.jsonl`.

    python experiments/adaptation/run.py tangents --workers 2       # the evidence of the linearised network
    python experiments/adaptation/run.py layers --workers 2         # several layers at once
    python experiments/adaptation/run.py short --workers 2          # twenty steps of tuning, then LogME
    python experiments/adaptation/run.py views --workers 2          # other sizes and mirror images

Each is a module of that name, which says what is computed. Everything runs on the processor, one thread a worker. A
set and a model that are in the results already are not run again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import shared_hub  # noqa: E402
from data_sets import CLASSIFICATION, results_folder  # noqa: E402
from pool import run_jobs  # noqa: E402

FAMILIES = ("tangents", "layers", "short", "views")
DIGITS = 7


@dataclass(frozen=True)
class Job:
    """A model on a set, by one family of scores."""

    family: str
    set_name: str
    model: str

    def __str__(self) -> str:
        return f"{self.family} {self.set_name} {self.model}"


def work(job: Job) -> dict[str, Any]:
    """A line of the results."""
    scores, seconds = importlib.import_module(job.family).measure(job.set_name, job.model)
    return {
        "set": job.set_name,
        "model": job.model,
        "scores": {name: float(f"{value:.{DIGITS}g}") for name, value in scores.items()},
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--sets", nargs="*", default=tuple(CLASSIFICATION))
    parser.add_argument("--models", nargs="*", default=shared_hub.VISION)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=results_folder(__file__))
    arguments = parser.parse_args()
    path = arguments.out / f"{arguments.family}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    done = {(line["set"], line["model"]) for line in lines}
    jobs = [
        Job(arguments.family, set_name, model)
        for model in arguments.models
        for set_name in arguments.sets
        if (set_name, model) not in done
    ]
    arguments.out.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for _, record in run_jobs(work, jobs, arguments.workers):
            file.write(json.dumps(record) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
