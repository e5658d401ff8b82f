"""What a race can know, measured once: every arm at every rung, and what brute force and fresh seeds give.

    python experiments/race/run.py arms  --workers 14 --out experiments/race/results
    python experiments/race/run.py folds --workers 14 --out experiments/race/results
    python experiments/race/run.py truth --workers 14 --out experiments/race/results

`arms`: each model at three learning rates, trained with a constant rate; at each rung a branch is cooled down and
judged on the same held-out fifth, sample by sample. `folds`: the middle rate again with other fifths held out. `truth`:
five learning rates with a cosine on the same fifth (brute force), then five fresh seeds at the rate that it chooses.
Policies are replayed on these files by `table.py`, so that none of them needs a run of its own. Every finished run is a
file under $HUBSCOUT_EXPERIMENT_CACHE/race at once; what is there is not run again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import shared_hub
from data_sets import open_set
from pool import run_jobs
from references import vision_identifier

from hubscout.tasks import Task
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.splitting import split_off

CACHE = Path(os.environ.get("HUBSCOUT_EXPERIMENT_CACHE", Path.home() / ".cache" / "hubscout-experiments")) / "race"
STEPS = 300
RUNGS = (15, 45, 110, 300)
"""Steps of a run that ends there, its cool-down included."""
COOLDOWN = 0.2
WARMUP = 6 / STEPS
ARM_RATES = (0.0005, 0.002, 0.008)
GRID = (0.0003, 0.001, 0.004, 0.016, 0.064)
FRESH_SEEDS = (11, 12, 13, 14, 15)
FOLDS = 5
FEW = {"pets-few": ("pets", 5), "cifar10-few": ("cifar10", 20)}
"""Sets with so many images of each class, for training and validation together."""
SETS = ("pets", "cifar10", "fashion-mnist", "sign-digits", "omniglot", *FEW)
OPTIONS = {"steps": STEPS, "batch_size": 64, "data_in_memory": True, "workers": 2, "evaluation_batch_size": 256}


@cache
def pooled(set_name: str) -> tuple[list[Any], np.ndarray, Task]:
    """Inputs and targets of train and validation together, and the task that test comes from."""
    source, count = FEW.get(set_name, (set_name, None))
    task = open_set(source)
    inputs = [part.inputs[i] for part in (task.train, task.validation) for i in range(len(part))]
    targets = np.concatenate([np.asarray(task.train.targets), np.asarray(task.validation.targets)])
    if count is not None:
        order = np.random.default_rng(0).permutation(len(targets))
        kept = np.sort(np.concatenate([order[targets[order] == c][:count] for c in range(len(task.target_names))]))
        inputs, targets = [inputs[i] for i in kept], targets[kept]
    return inputs, targets, task


@cache
def fold(set_name: str, number: int) -> Task:
    """The set with its `number`-th fifth as validation."""
    inputs, targets, task = pooled(set_name)
    groups = kind_of("classification").strata(targets)
    rest, taken = np.arange(len(targets)), np.empty(0, np.int64)
    for _ in range(number + 1):
        stay, part = split_off(groups[rest], len(targets) // FOLDS, seed=1)
        rest, taken = rest[stay], rest[part]
    train = np.setdiff1d(np.arange(len(targets)), taken)
    return Task.from_arrays(
        [inputs[i] for i in train],
        targets[train],
        validation=([inputs[i] for i in taken], targets[taken]),
        test=([task.test.inputs[i] for i in range(len(task.test))], np.asarray(task.test.targets)),
        kind="classification",
        modality="image",
        target_names=task.target_names,
        name=set_name,
    )


@dataclass(frozen=True)
class Arm:
    """A model with a learning rate on a fold."""

    set_name: str
    model: str
    learning_rate: float
    fold: int = 0
    schedule: str = "wsd"
    seed: int = 0

    @property
    def file(self) -> Path:
        name = f"{self.model}-{self.learning_rate:g}-fold{self.fold}-{self.schedule}-seed{self.seed}.npz"
        return CACHE / self.set_name / name

    def run(self) -> None:
        if self.file.exists():
            return
        started = time.perf_counter()
        try:
            kept = self._measure()
        except Exception as error:  # a rate that diverges is a result
            kept = {"failure": np.array(f"{type(error).__name__}: {error}"[:200])}
        kept["seconds"] = np.array(time.perf_counter() - started)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_suffix(f".{os.getpid()}.partial")
        with partial.open("wb") as file:
            np.savez_compressed(file, **kept)
        partial.replace(self.file)

    def _measure(self) -> dict[str, np.ndarray]:
        from hubscout.runs.events import silent
        from hubscout.tuning.arguments import TuningArguments
        from hubscout.tuning.single_run import SingleRun

        task = fold(self.set_name, self.fold)
        arguments = TuningArguments.of(
            **OPTIONS, learning_rate=self.learning_rate, schedule=self.schedule, seed=self.seed, warmup=WARMUP,
            cooldown=COOLDOWN, weight_decay=1e-4, frozen_norm_statistics=True, validate_every_epochs=1e6,
            bootstrap_resamples=1, keep_best=False,
        )  # fmt: skip
        run = SingleRun(
            task, vision_identifier(self.model), (), "fine-tune", arguments.settled("image"), None, None, silent
        )
        run.begin()
        test = run._batches(task.test, {"model": run.model.preprocessing}, augment=False)
        kept: dict[str, np.ndarray] = {}

        def look(name: str, *, tested: bool = False) -> None:
            network = run.loop.network
            predicted, targets, _ = run.judge.outcome(network, run.validation, task.validation)
            kept[f"{name}_loglik"] = np.log(np.maximum(predicted[np.arange(len(targets)), targets], 1e-12)).astype("f2")
            kept[f"{name}_right"] = predicted.argmax(axis=1) == targets
            if tested:
                predicted, targets, _ = run.judge.outcome(network, test, task.test)
                kept[f"{name}_test"] = np.array((predicted.argmax(axis=1) == targets).mean())

        if self.schedule != "wsd":
            run.loop.run()
            look("end", tested=True)
            return kept
        for rung in RUNGS:
            falling = round(COOLDOWN * rung)
            run.loop.run(until=rung - falling)
            if rung < STEPS:
                look(f"raw{rung}")
            with run.loop.cooled_down(falling):
                look(f"rung{rung}", tested=rung == STEPS)
        return kept


@dataclass(frozen=True)
class Place:
    """What one process does in one go: a model on a set."""

    what: str
    set_name: str
    model: str

    def __str__(self) -> str:
        return f"{self.what} {self.set_name} {self.model}"


def work(place: Place) -> None:
    """All runs of a model on a set."""
    if place.what == "arms":
        for rate in ARM_RATES:
            Arm(place.set_name, place.model, rate).run()
    elif place.what == "folds":
        for number in (1, 2):
            Arm(place.set_name, place.model, ARM_RATES[1], fold=number).run()
    else:
        arms = [Arm(place.set_name, place.model, rate, schedule="cosine") for rate in GRID]
        for arm in arms:
            arm.run()
        best = max(arms, key=validation)
        for seed in FRESH_SEEDS:
            Arm(place.set_name, place.model, best.learning_rate, schedule="cosine", seed=seed).run()


def validation(arm: Arm) -> float:
    with np.load(arm.file) as kept:
        return -1.0 if "failure" in kept else float(kept["end_right"].mean())


def gather(out: Path) -> None:
    """One file per set: the arrays of all runs, by the names of their files."""
    out.mkdir(parents=True, exist_ok=True)
    for set_name in SETS:
        arrays: dict[str, np.ndarray] = {}
        for file in sorted((CACHE / set_name).glob("*.npz")):
            try:
                with np.load(file) as kept:
                    arrays |= {f"{file.stem}/{name}": kept[name] for name in kept}
            except Exception as error:
                print(file, error)
        if arrays:
            np.savez_compressed(out / f"{set_name}.npz", **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("arms", "folds", "truth", "gather"))
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--models", nargs="*", default=shared_hub.VISION)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.what != "gather":
        # By model, so that a process that has compiled the kernels of an architecture uses them again.
        places = [Place(given.what, name, model) for model in reversed(given.models) for name in given.sets]
        for _ in run_jobs(work, places, given.workers):
            pass
    gather(given.out)


if __name__ == "__main__":
    main()
