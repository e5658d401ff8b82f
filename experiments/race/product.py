"""What the product itself says of a set: the evidence of all models, and whole races in a share of brute force's time.

Each is a file of its own under the cache folder of `run.py`, which puts them together as `results/product.json`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import run
import shared_hub
from references import vision_identifier
from replay import FEW_ROWS, SMALL_SHARE, widths_for

import hubscout as hs
from hubscout.racing import elimination, race_plan, rungs


def evidence(set_name: str, fold: int) -> None:
    """LogME and sizes of all models on the train part of a fold: what a race knows before its first rung."""
    file = run.CACHE / "product" / f"evidence-{set_name}-fold{fold}.json"
    if file.exists():
        return
    ranking = hs.rank(run.fold(set_name, fold), list(_models()), cache=False, measure_latency=False)
    _write(
        file,
        {
            _models()[row.identifier]: {
                "logme": row.score,
                "standard_error": row.standard_error,
                "params": row.params,
                "flops": row.flops,
            }
            for row in ranking
        },
    )


def whole_race(set_name: str, fold: int, share: float, by: str) -> None:
    """A race within a share of what brute force took on this set, `by` seconds as a user starts it, or `by` steps.

    By steps the race has all the time it wants, and the plan that such a share of steps allows: how busy the machine is
    does not matter. A small share has its evidence from `FEW_ROWS` train rows.
    """
    file = run.CACHE / "product" / f"race-{set_name}-fold{fold}-{share:g}-{by}.json"
    if file.exists():
        return
    budget = share * brute_force_seconds(set_name)
    task = run.fold(set_name, fold)  # opened before: a user's clock starts with the race
    # Brute force's runs were counted in processes that had begun long before: imports, the device, its first kernels.
    known = [vision_identifier(name) for name in ("cifar10_resnet20", "tf_efficientnet_lite0_in1k")]
    hs.rank(task, known, cache=False, limit=64, measure_latency=False)
    options = {**run.OPTIONS, "steps": 2, "learning_rate": 0.0005, "bootstrap_resamples": 1}
    hs.tune(task.subset(64), known[0], method="fine-tune", **options)
    limit = FEW_ROWS if share < SMALL_SHARE else None
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, patch.dict(os.environ), ExitStack() as stack:
        os.environ["XDG_CACHE_HOME"] = scratch  # features of other races are not there to be used
        if by == "steps":
            plan = planned(min(len(task.train), limit or len(task.train)), share)
            stack.enter_context(patch.object(race_plan, "choose_field", lambda models, *_: plan(models)))
            stack.enter_context(patch.object(elimination, "OUT_BELOW", 0.0))
        outcome = hs.race(
            task,
            list(_models()),
            budget=budget if by == "seconds" else None,
            out=Path(scratch) / "run",
            seed=fold,
            limit=limit,
            **run.OPTIONS,
        )
    record = outcome.record()
    for one in record["order"]:
        one["model"] = _models()[one["model"]]
    record["winner"]["model"] = _models()[record["winner"]["model"]]
    beside = outcome.told.beside
    record["probe"] = None if beside is None else beside.probe
    record["evidence"] = {_models()[row.identifier]: row.score for row in outcome.ranking}
    record["looks"] = [
        {
            "model": _models()[look.arm.model],
            "rate": look.arm.learning_rate,
            "steps": look.steps,
            "metric": look.metric,
            "log_likelihood": float(np.mean(look.log_likelihoods)) if look.log_likelihoods else None,
            "seconds": look.seconds,
            "seconds_per_step": look.seconds_per_step,
            "failure": look.failure,
        }
        for look in outcome.looks
    ]
    _write(file, {"budget": budget, "took": time.perf_counter() - started, **record})


def planned(rows: int, share: float) -> Callable[[Sequence[str]], rungs.Field]:
    """The longest race whose steps, with those that the evidence costs, are at most a share of brute force's."""
    count = len(shared_hub.VISION)
    widths = widths_for(share, count, count * rows / run.OPTIONS["batch_size"] / 3)
    started = count if widths[0] else widths[1]
    factors = rungs.RATE_FACTORS if widths[0] else rungs.RATE_FACTORS[:1]
    return lambda models: rungs.Field(tuple(models)[:started], factors, run.STEPS, widths)


def brute_force_seconds(set_name: str) -> float:
    """Five rates for every model, each as long as one that did not diverge took."""
    total = 0.0
    for model in shared_hub.VISION:
        took = []
        for rate in run.GRID:
            file = run.Arm(set_name, model, rate, schedule="cosine").file
            if file.exists():
                with np.load(file) as kept:
                    took += [float(kept["seconds"])] if "failure" not in kept else []
        total += len(run.GRID) * float(np.median(took)) if took else 0.0
    return total


def _models() -> dict[str, str]:
    return {vision_identifier(model): model for model in shared_hub.VISION}


def _write(file: Path, record: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    # Identifiers name the file that builds the models: by its place in the repository, not on this machine.
    repository = f"{Path(__file__).resolve().parents[2]}/"
    partial.write_text(json.dumps(record, default=str).replace(repository, ""))
    partial.replace(file)
