"""The paper's comparison of tuning methods in small: Pets, a MobileNetV2 target, teachers from the whole hub.

    python experiments/tuning/run.py rank                    # LogME of the hub on the train split -> ranking.json
    python experiments/tuning/run.py search --workers 6      # every method over its grid, judged on validation
    python experiments/tuning/run.py final --workers 6       # the best setting of each method over fresh seeds
    python experiments/tuning/table.py                       # table.md and figure.png from results/

Every finished run is one line of JSON under `results/`; a run that is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import shared_hub  # noqa: E402

CACHE = Path(os.environ.get("HUBSCOUT_EXPERIMENT_CACHE", Path.home() / ".cache" / "hubscout-experiments"))
TARGET = "mobilenetv2_coral_in1k"
ONE_ARCHITECTURE = ("mobilenetv2_coral_in1k", "mobilenetv2_coral_inat_bird", "mobilenetv2_coral_inat_insect")
STEPS = 624
"""Optimiser steps of every run: twelve epochs of the whole train split."""
BATCH_SIZE = 64
LEARNING_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03)
TRADE_OFFS = {
    "b-tuning": (10.0, 100.0, 1000.0),
    "b-tuning-live": (10.0, 100.0, 1000.0),
    "kd": (0.001, 0.01, 0.1),
}
METHODS = ("fine-tune", "kd", "b-tuning", "b-tuning-live", "zoo", "zoo-lite")
DECODERS = 4
"""Decoding threads of a run; several runs share a machine."""
SEEDS = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Setting:
    """One run. `shots` is the number of train images (None: all); `trade_off` is λ, None where there is none."""

    method: str
    learning_rate: float
    trade_off: float | None
    seed: int
    shots: int | None = None

    @property
    def key(self) -> str:
        return f"{self.method} lr={self.learning_rate} λ={self.trade_off} seed={self.seed} shots={self.shots}"


def grid(method: str, shots: int | None, seed: int = 0) -> list[Setting]:
    """Every setting of a method; the learning rates are the same for all."""
    offs = TRADE_OFFS.get(method, (None,))
    return [Setting(method, rate, off, seed, shots) for rate in LEARNING_RATES for off in offs]


def load_results(folder: Path) -> dict[str, dict]:
    """All finished runs by key."""
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines() if line]
    return {record["key"]: record for record in map(json.loads, lines)}


def best_setting(results: dict[str, dict], method: str, shots: int | None) -> Setting:
    """The setting of a method with the best validation accuracy in the search."""
    found = [results[s.key] for s in grid(method, shots) if s.key in results]
    if not found:
        raise SystemExit(f"{method}: no search result for shots={shots}; run `search` first.")
    best = max(found, key=lambda record: (record["validation"], -(record["trade_off"] or 0)))
    return Setting(method, best["learning_rate"], best["trade_off"], 0, shots)


def open_pets(shots: int | None):
    from hubscout.tasks import Task

    folder = os.environ.get("HUBSCOUT_PETS_FOLDER")
    if folder:
        task = Task.from_image_folder(folder)
    else:
        data = shared_hub.SHARED / "data" / "pets"
        task = Task.from_table(
            {"train": data / "pets-train.parquet", "test": data / "pets-test.parquet"}, target="breed"
        )
    return task if shots is None else task.subset(shots, seed=0)


def teachers_for(method: str, top: int) -> list[str]:
    if method.startswith("zoo"):
        return [shared_hub.identifier(name) for name in ONE_ARCHITECTURE]
    ranking = json.loads((HERE / "ranking.json").read_text())
    return [shared_hub.identifier(name) for name in list(ranking)[:top]]


def batches_per_epoch(task) -> int:
    return -(-len(task.train) // BATCH_SIZE)


def run_one(setting: Setting, task, top: int) -> dict:
    from hubscout.features import FeatureCache
    from hubscout.tuning import tune

    method = setting.method.removesuffix("-live")
    options: dict = {"teacher_targets": "live"} if setting.method.endswith("-live") else {}
    if setting.method.startswith("zoo"):
        method = "zoo"
        options["zoo_lite"] = setting.method == "zoo-lite"
    teachers = [] if method == "fine-tune" else teachers_for(method, top)
    start = time.perf_counter()
    tuned = tune(
        task,
        shared_hub.identifier(TARGET),
        teachers,
        method,
        steps=STEPS,
        batch_size=BATCH_SIZE,
        learning_rate=setting.learning_rate,
        trade_off=setting.trade_off,
        seed=setting.seed,
        cache=FeatureCache(CACHE),
        data_in_memory=True,
        workers=DECODERS,
        validate_every_epochs=STEPS / 4 / batches_per_epoch(task),
        **options,
    )
    return {
        "key": setting.key,
        **asdict(setting),
        "validation": tuned.metric("validation").value,
        "test": tuned.metric("test").value,
        "test_low": tuned.metric("test").low,
        "test_high": tuned.metric("test").high,
        "best_step": tuned.best_step,
        "steps": tuned.steps,
        "seconds": round(time.perf_counter() - start, 1),
        "teachers": [shared_hub.name_of(teacher) for teacher in tuned.teachers],
    }


def start_worker(shots: int | None, top: int) -> None:
    """Open the data once for all runs of this process; held images are taken over from run to run."""
    import torch

    torch.set_num_threads(2)
    worker_state.update(task=open_pets(shots), top=top)


worker_state: dict = {}


def work(setting: Setting) -> dict:
    try:
        return run_one(setting, worker_state["task"], worker_state["top"])
    except Exception as error:  # one bad setting (a diverged learning rate, say) must not end the others
        failed = {"error": f"{type(error).__name__}: {error}", "validation": -1.0, "test": -1.0, "seconds": 0.0}
        return {"key": setting.key, **asdict(setting), **failed}


def rank_hub(top_only: bool = False) -> None:
    import hubscout

    ranking = hubscout.rank(open_pets(None), [shared_hub.identifier(name) for name in shared_hub.VISION], cache=False)
    print(ranking)
    scores = {shared_hub.name_of(row.identifier): row.score for row in ranking}
    (HERE / "ranking.json").write_text(json.dumps(scores, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["rank", "search", "final"])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--rates", type=float, nargs="*", default=LEARNING_RATES, help="learning rates to search")
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS, help="seeds of the final runs")
    parser.add_argument("--shots", type=int, help="train images to keep, stratified; default all")
    parser.add_argument("--top", type=int, default=3, help="how many teachers, by LogME")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    if arguments.stage == "rank":
        rank_hub()
        return
    arguments.results.mkdir(exist_ok=True, parents=True)
    done = load_results(arguments.results)
    if arguments.stage == "search":
        settings = [s for method in arguments.methods for s in grid(method, arguments.shots)]
        settings = [s for s in settings if s.learning_rate in arguments.rates]
    else:
        bests = [best_setting(done, method, arguments.shots) for method in arguments.methods]
        settings = [
            Setting(b.method, b.learning_rate, b.trade_off, seed, b.shots) for seed in arguments.seeds for b in bests
        ]
    settings = [s for s in settings if s.key not in done]
    settings.sort(key=lambda s: (s.method not in ("b-tuning-live", "zoo"), s.method))  # long runs first
    context = multiprocessing.get_context("spawn")
    start = time.perf_counter()
    pool = ProcessPoolExecutor(
        arguments.workers, mp_context=context, initializer=start_worker, initargs=(arguments.shots, arguments.top)
    )
    with pool, (arguments.results / f"{arguments.stage}-{arguments.shots or 'all'}.jsonl").open("a") as file:
        for future in as_completed([pool.submit(work, setting) for setting in settings]):
            record = future.result()
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()
            outcome = record.get("error") or f"validation {record['validation']:.4f} test {record['test']:.4f}"
            print(
                f"{time.perf_counter() - start:5.0f} s  {record['key']}: {outcome} ({record['seconds']} s)", flush=True
            )


if __name__ == "__main__":
    main()
