"""The hub ranked on few samples, with our LogME and with the paper's released code: scores of both for every model.

    python experiments/small_samples/run.py --peer PATH --workers 1              # results/scores.csv
    python experiments/small_samples/run.py --peer PATH --workers 1 --shuffled   # results/shuffled.csv, the control

PATH is a checkout of the released LogME, which is run and not copied. Features are those of the 1,500 train images of
each set that `rank(limit=1500)` takes, out of the experiments' cache; subsets of them are stratified, with several
seeds. A set and a model that are in the results already are not run again; `--cached` leaves out those whose features
are not in the cache yet.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import shared_hub  # noqa: E402
from data_sets import CLASSIFICATION, open_set  # noqa: E402
from pool import run_jobs  # noqa: E402
from references import CACHE, identifier  # noqa: E402

from hubscout.evidence import logme  # noqa: E402
from hubscout.features import FeatureCache, extract  # noqa: E402
from hubscout.tasks import Split, Task  # noqa: E402

POOL_ROWS = 1500
SEEDS = {100: 5, 200: 5, 500: 4, 1000: 2}
"""How many subsets of each size; the pool itself is scored once."""
COLUMNS = ("set", "model", "feature_dim", "n", "seed", "targets", "rank", "guaranteed", "ours", "released", "missing")
"""`missing` is what the released formula leaves out where n < D, with its own α: (D - n) log α / 2n, a mean over
classes."""

SHUFFLED_SEEDS = {100: 5, 200: 5}
"""Of the control: the same subsets with their labels shuffled."""

Job = tuple[str, str, str, bool]
"""A set, a model, the folder of the released code, whether labels are shuffled."""


@cache
def released_code(folder: str) -> Any:
    """The released module, compiled once a process."""
    specification = importlib.util.spec_from_file_location("released_logme", Path(folder) / "LogME.py")
    if specification is None or specification.loader is None:
        raise FileNotFoundError(f"no LogME.py in {folder}")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def chosen_rows(labels: np.ndarray, names: tuple[str, ...], n: int, seed: int) -> np.ndarray:
    """The rows that a stratified subset of the pool takes."""
    places = Task("rows", "classification", "array", names, {"train": Split(np.arange(len(labels)), labels)}, "rows")
    return np.array([int(row) for row in places.subset(n, seed=seed).train.inputs])


def score(job: Job) -> list[dict[str, Any]]:
    """Both scores of a model on every subset of a set."""
    set_name, model, peer, shuffled = job
    task = open_set(set_name).subset(POOL_ROWS, seed=0)
    found = extract(identifier(model), task, cache=FeatureCache(CACHE / "features"), statistics=False)
    features, labels = found.features(), found.targets
    sizes = SHUFFLED_SEEDS if shuffled else SEEDS | {len(labels): 1}
    places = [(n, seed) for n, seeds in sizes.items() for seed in range(seeds)]
    records = []
    for n, seed in places:
        rows = chosen_rows(labels, task.target_names, n, seed)
        classes = np.unique(labels[rows], return_inverse=True)[1]  # 0, 1, ... as the released code expects them
        if shuffled:
            classes = np.random.default_rng(seed).permutation(classes)
        evidence = logme(features[rows], classes, jackknife="none")
        released = released_code(peer).LogME(regression=False)
        theirs = float(released.fit(features[rows], classes))
        promised = int(evidence.convergence_guaranteed.sum())
        missing = max(features.shape[1] - n, 0) * np.log(released.alphas).mean() / (2 * n)
        scores = (f"{evidence.score:.6f}", f"{theirs:.6f}", f"{missing:.6f}")
        values = (set_name, model, features.shape[1], n, seed, len(evidence.targets), evidence.rank, promised, *scores)
        records.append(dict(zip(COLUMNS, values, strict=True)))
    return records


def in_cache() -> set[tuple[str, str]]:
    """Sets and models whose features of the pool are there."""
    found = set()
    for entry in FeatureCache(CACHE / "features").entries():
        name = shared_hub.name_of(entry.model)
        pool = entry.task in CLASSIFICATION and entry.rows == min(POOL_ROWS, len(open_set(entry.task).train))
        if pool and name in shared_hub.VISION and entry.model == identifier(name) and entry.complete:
            found.add((entry.task, name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, required=True, help="folder of a checkout of the released LogME")
    parser.add_argument("--sets", nargs="*", default=tuple(CLASSIFICATION))
    parser.add_argument("--models", nargs="*", default=shared_hub.VISION)
    parser.add_argument("--shuffled", action="store_true", help="the control with shuffled labels")
    parser.add_argument("--cached", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / ("shuffled.csv" if arguments.shuffled else "scores.csv")
    done = set()
    if path.is_file():
        with path.open(newline="") as file:
            done = {(line["set"], line["model"]) for line in csv.DictReader(file)}
    ready = in_cache() if arguments.cached else None
    jobs = [
        (set_name, model, str(arguments.peer), arguments.shuffled)
        for set_name in arguments.sets
        for model in arguments.models
        if (set_name, model) not in done and (ready is None or (set_name, model) in ready)
    ]
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not done:
            writer.writeheader()
        for _, records in run_jobs(score, jobs, arguments.workers):
            writer.writerows(records)
            file.flush()


if __name__ == "__main__":
    main()
