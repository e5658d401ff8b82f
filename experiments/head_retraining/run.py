"""The head trained again with several strengths of L2 regularisation, and LogME, on the same features: scores and time.

    python experiments/head_retraining/run.py --workers 1           # results/trials.jsonl
    python experiments/head_retraining/run.py --cached              # only models whose features are there already

Features are those of the 1,500 train images of a set that `rank(limit=1500)` takes, out of the experiments' cache; a
score of the head is the accuracy of `hubscout.metrics`' linear probe over five folds. Seconds are of the processor, one
thread. A set and a model that are in the results already are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import shared_hub  # noqa: E402
from data_sets import CLASSIFICATION, open_set, results_folder  # noqa: E402
from pool import run_jobs  # noqa: E402
from references import CACHE, identifier  # noqa: E402

from hubscout.evidence import logme  # noqa: E402
from hubscout.features import FeatureCache, extract  # noqa: E402
from hubscout.metrics import score  # noqa: E402
from hubscout.tasks import Task  # noqa: E402

IMAGES = 1500
TRIALS = 17
"""Inverse strengths 10⁻⁴ to 10⁴ in steps of half a power of ten: what the probe tries first."""
FOLDS = 5
TIMED_TWICE = 2
"""The quicker of so many runs is told where only time is asked for."""

Job = tuple[str, str]
"""A set and a model."""


def pool_of(set_name: str) -> Task:
    """The images that `rank(limit=1500)` scores on."""
    whole = open_set(set_name)
    return whole if len(whole.train) <= IMAGES else whole.subset(IMAGES, seed=0)


def seconds_of(work: Callable[[], Any]) -> float:
    """Processor time, which other programs on the machine do not lengthen much."""
    found = []
    for _ in range(TIMED_TWICE):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def measure(job: Job) -> dict[str, Any]:
    """Every trial of the head and LogME for one model on one set."""
    set_name, model = job
    found = extract(
        identifier(model),
        pool_of(set_name),
        cache=FeatureCache(CACHE / "features"),
        precision="float32",
        device="cpu",
        statistics=False,
    )
    features, labels = found.features(), found.targets
    asked = {"features": features, "targets": labels, "kind": "classification"}
    evidence = score("logme", **asked)
    start = time.process_time()
    probe = score("linear-probe", **asked, trials=TRIALS, folds=FOLDS)
    all_trials = time.process_time() - start
    return {
        "set": set_name,
        "model": model,
        "images": len(labels),
        "feature_dim": features.shape[1],
        "logme": evidence.value,
        "trials": [[strength, value] for strength, value in probe.details["each"].items()],
        "seconds": {
            "logme": seconds_of(lambda: logme(features, labels, jackknife="none")),
            "one_trial": seconds_of(lambda: score("linear-probe", **asked, trials=1, folds=FOLDS)),
            "all_trials": all_trials,
        },
    }


def in_cache() -> set[Job]:
    """Sets and models whose features of the pool are there."""
    found = set()
    for entry in FeatureCache(CACHE / "features").entries():
        name = shared_hub.name_of(entry.model)
        ours = name in shared_hub.VISION and entry.task in CLASSIFICATION and entry.model == identifier(name)
        if ours and entry.complete and entry.rows == len(pool_of(entry.task).train):
            found.add((entry.task, name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=tuple(CLASSIFICATION))
    parser.add_argument("--models", nargs="*", default=shared_hub.VISION)
    parser.add_argument("--cached", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=results_folder(__file__))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "trials.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    done = {(line["set"], line["model"]) for line in lines}
    ready = in_cache() if arguments.cached else None
    jobs = [
        (set_name, model)
        for set_name in arguments.sets
        for model in arguments.models
        if (set_name, model) not in done and (ready is None or (set_name, model) in ready)
    ]
    with path.open("a") as file:
        for _, record in run_jobs(measure, jobs, arguments.workers):
            file.write(json.dumps(record) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
