"""Section 4 of the paper on real features: f(t), the condition of Theorem 2, and both corollaries.

    python experiments/convergence/run.py curves                    # CIFAR-10, six models -> results/curves.json
    python experiments/convergence/run.py condition --workers 2     # all features in the cache -> condition.jsonl
    python experiments/convergence/run.py corollaries --peer PATH   # -> corollaries.jsonl

Features come out of the experiments' cache; `curves` and `corollaries` extract what is not there yet, `condition`
takes what it finds. A line that is in the results already is not computed again. `--peer` is a checkout of the paper's
released LogME, which is run beside ours.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "benchmarks")]
import shared_hub  # noqa: E402
from data_sets import SETS, TEXT, open_set  # noqa: E402
from pool import run_jobs  # noqa: E402
from references import CACHE, identifier  # noqa: E402

from evidence import load_peer  # noqa: E402
from hubscout.evidence import Evidence, convergence_margin, fixed_point_map, logme  # noqa: E402
from hubscout.features import Extraction, FeatureCache, extract  # noqa: E402

CURVE_MODELS = (
    "cifar10_resnet20",
    "cifar10_resnet56",
    "squeezenet1_1_in1k",
    "alexnet_features_in1k",
    "mobilenetv2_coral_in1k",
    "tf_efficientnet_lite0_in1k",
)
CURVE_POINTS = 81
STEPS = 200
"""The most repetitions of the fixed-point iteration; the released code stops after 11."""
FEWEST_ROWS = 1000
"""Smaller subsets in the cache are left alone: they are `small_samples`' subject."""
RELEASED_TOLERANCE, RELEASED_STEPS = 1e-3, 11


def features_of(set_name: str, model: str, limit: int | None) -> Extraction:
    """The features of a model on the train split, or on the subset that `rank(limit=...)` takes."""
    task = open_set(set_name)
    task = task if limit is None else task.subset(limit, seed=0)
    return extract(identifier(model, set_name), task, cache=FeatureCache(CACHE / "features"), statistics=False)


def evidence_of(set_name: str, found: Extraction) -> Evidence:
    """The evidence as `rank` takes it for classes: a column each, not centred."""
    names = [open_set(set_name).target_names[index] for index in found.targets]
    return logme(found.features(), names, classes=open_set(set_name).target_names, jackknife="none")


def target_columns(set_name: str, found: Extraction) -> tuple[np.ndarray, str]:
    """The targets that occur as columns, once as they are and once with their rows shuffled; and their kind."""
    task = open_set(set_name)
    if task.kind == "regression":
        columns, kind = np.asarray(found.targets, dtype=np.float64), "regression"
    else:
        columns, kind = np.eye(len(task.target_names), dtype=np.int64)[found.targets], "multilabel"
        columns = columns[:, columns.any(axis=0)]
    shuffled = columns[np.random.default_rng(0).permutation(len(columns))]
    return np.concatenate([columns, shuffled], axis=1), kind


def iterate(evidence: Evidence, goal: np.ndarray) -> dict[str, Any]:
    """MacKay's iteration from t = 1 for the first targets: where it ends beside their best t, and in how many steps.

    Steps are counted until t moves by less than a thousandth, as in the released code; the iteration then goes on.
    """
    t = np.ones(len(goal))
    stopped = np.full(len(goal), STEPS)
    for step in range(1, STEPS + 1):
        moved = np.diag(fixed_point_map(evidence, t))
        change = np.abs(moved / t - 1)
        stopped[(change <= RELEASED_TOLERANCE) & (stopped == STEPS)] = step
        t = np.clip(moved, 1e-300, 1e300)
        if np.all(change < 1e-9):
            break
    finite = np.isfinite(goal)
    return {
        "most_steps": int(stopped.max()),
        "median_steps": float(np.median(stopped)),
        "within_released_limit": int((stopped <= RELEASED_STEPS).sum()),
        "reach_the_maximum": int((np.abs(np.log(t[finite] / goal[finite])) < 0.01).sum()),
    }


def curves(out: Path) -> None:
    """f(t) of the ten classes around each fixed point."""
    found: dict[str, Any] = {"set": "cifar10", "models": {}}
    for model in CURVE_MODELS:
        extraction = features_of("cifar10", model, None)
        evidence = evidence_of("cifar10", extraction)
        centre = float(np.exp(np.log(evidence.ratio).mean()))
        points = centre * np.logspace(-1.5, 1.5, CURVE_POINTS)
        mapped = fixed_point_map(evidence, points)
        found["n"], found["classes"] = evidence.n, list(evidence.targets)
        found["models"][model] = {
            "feature_dim": evidence.feature_dim,
            "rank": evidence.rank,
            "score": round(evidence.score, 6),
            "t": [float(f"{value:.6g}") for value in points],
            "f": [[float(f"{value:.6g}") for value in row] for row in mapped],
            "fixed_point": [float(f"{value:.6g}") for value in evidence.ratio],
            "margin": [float(f"{value:.4g}") for value in convergence_margin(evidence)],
            "guaranteed": [bool(value) for value in evidence.convergence_guaranteed],
            "iteration": iterate(evidence, evidence.ratio),
        }
        print(model, f"LogME {evidence.score:.4f}, t* from {evidence.ratio.min():.3g} to {evidence.ratio.max():.3g}")
    (out / "curves.json").write_text(json.dumps(found) + "\n")


def condition_of(place: tuple[str, str, int | None]) -> dict[str, Any]:
    """Whether Theorem 2 promises a fixed point, for every target of a set; as a control, for shuffled targets too.

    Both with features and targets as they are and with their means taken away. `rank` does the latter for regression
    only.
    """
    set_name, model, limit = place
    found = features_of(set_name, model, limit)
    columns, kind = target_columns(set_name, found)
    count = columns.shape[1] // 2
    record: dict[str, Any] = {"set": set_name, "model": model, "limit": limit, "n": found.n, "targets": count}
    for centred in (False, True):
        evidence = logme(found.features(), columns, kind=kind, center=centred, jackknife="none")
        margins, promised = convergence_margin(evidence), evidence.convergence_guaranteed
        record |= {"feature_dim": evidence.feature_dim} if not centred else {}
        record["centred" if centred else "plain"] = {
            "rank": evidence.rank,
            "rank_below_n": bool(evidence.rank < found.n - centred),
            "positive_sum": int((margins[:count] > 0).sum()),
            "guaranteed": int(promised[:count].sum()),
            "smallest_margin": float(f"{margins[:count].min():.4g}"),
            "median_margin": float(f"{np.median(margins[:count]):.4g}"),
            "null_model_is_best": int(np.isinf(evidence.ratio[:count]).sum()),
            "guaranteed_shuffled": int(promised[count:].sum()),
            "null_model_is_best_shuffled": int(np.isinf(evidence.ratio[count:]).sum()),
            "gain": float(f"{evidence.per_target_gain[:count].mean():.4g}"),
            "gain_shuffled": float(f"{evidence.per_target_gain[count:].mean():.4g}"),
            **iterate(evidence, evidence.ratio[:count]),
        }
    return record


def in_cache() -> list[tuple[str, str, int | None]]:
    """Set, model and limit of all final features of train splits in the cache that these experiments made."""
    expected = {
        (identifier(model, set_name), set_name.partition("-siamese")[0]): (set_name, model)
        for set_name in SETS
        for model in (shared_hub.TEXT if set_name in TEXT else shared_hub.VISION)
    }
    places = []
    for entry in FeatureCache(CACHE / "features").entries():
        place = expected.get((entry.model, entry.task))
        if place is not None and not entry.layer and entry.complete and entry.split == "train":
            limit = None if entry.rows == feature_rows(place[0]) else entry.rows
            if limit is None or limit >= FEWEST_ROWS:
                places.append((*place, limit))
    return sorted(places, key=lambda place: (place[0], place[1], place[2] or 0))


def feature_rows(set_name: str) -> int:
    """Rows of features of a train split: samples, or words."""
    train = open_set(set_name).train
    return sum(map(len, train.targets)) if isinstance(train.targets, list) else len(train)


def corollaries_of(set_name: str, model: str, rows: int, released: Callable[..., float]) -> dict[str, Any]:
    """LogME of features repeated and padded with zeros, less LogME of the features: ours and the released one's."""
    extraction = features_of(set_name, model, None)
    features, labels = extraction.features()[:rows], extraction.targets[:rows]
    dim = features.shape[1]
    changed = {
        "twice": np.tile(features, 2),
        "three times": np.tile(features, 3),
        "16 zeros": np.pad(features, ((0, 0), (0, 16))),
        "D zeros": np.pad(features, ((0, 0), (0, dim))),
    }
    ours = logme(features, labels, jackknife="none").score
    theirs = released(features, labels)
    record: dict[str, Any] = {"set": set_name, "model": model, "n": len(labels), "feature_dim": dim}
    record |= {"rank": logme(features, labels, jackknife="none").rank, "ours": ours, "released": theirs}
    for name, features_now in changed.items():
        record[f"ours, {name}"] = logme(features_now, labels, jackknife="none").score - ours
        record[f"released, {name}"] = released(features_now, labels) - theirs
    return record


def add_line(path: Path, record: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
    print(json.dumps(record), flush=True)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["curves", "condition", "corollaries"])
    parser.add_argument("--workers", type=int, default=1, help="processes of `condition`")
    parser.add_argument("--peer", type=Path, help="folder of a checkout of the released LogME")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.part == "curves":
        curves(arguments.out)
    elif arguments.part == "condition":
        path = arguments.out / "condition.jsonl"
        done = {(line["set"], line["model"], line["limit"]) for line in read_lines(path)}
        places = [place for place in in_cache() if place not in done]
        for _, record in run_jobs(condition_of, places, arguments.workers):
            add_line(path, record)
    else:
        if arguments.peer is None:
            raise SystemExit("corollaries: --peer must name a checkout of the released LogME")
        released = load_peer(arguments.peer)
        path = arguments.out / "corollaries.jsonl"
        done = {(line["set"], line["model"], line["n"]) for line in read_lines(path)}
        for model in CURVE_MODELS:
            for rows in (500, 4500):
                if ("cifar10", model, rows) not in done:
                    add_line(path, corollaries_of("cifar10", model, rows, released))


if __name__ == "__main__":
    main()
