"""What a race can know, measured once: every arm at every rung, and what brute force and fresh seeds give.

    python experiments/race/run.py arms truth folds --workers 14 --out experiments/race/results

`arms`: each model at four learning rates, trained with a constant rate; at each rung a branch is cooled down and
judged on the same held-out fifth, sample by sample. `truth`: five learning rates with a cosine on the same fifth (brute
force), then five fresh seeds at the rate that it chooses. `folds`: the arms again up to the last rung but the end, with
another fifth held out: two rates on two folds, the model's better rate on the other two. `evidence`: LogME of the train
part of each fold. `races`: the race itself, as the product runs it, at shares of brute force's seconds.
Policies are replayed on these files by `table.py`, so that none of them needs a run of its own. Every finished run is a
file under $HUBSCOUT_EXPERIMENT_CACHE/race at once; what is there, or in `--out`, is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
FOLD_RUNGS, FOLD_RATES = (8, 15, 25, 45, 110), (0.0005, 0.002)
"""Of folds other than the first."""
WHOLE_FOLDS = (1, 2)
"""Folds on which both rates run; on the others each model runs at the one that was better on the first fold."""
COOLDOWN = 0.2
WARMUP = 6 / STEPS
ARM_RATES = (0.0005, 0.002, 0.008, 0.000125)
"""The first two are those of a race, the third one that it may try for its winner; the last is still to be judged."""
GRID = (0.0003, 0.001, 0.004, 0.016, 0.064)
FRESH_SEEDS = (11, 12, 13, 14, 15)
FOLDS = 5
FEW = {
    "pets-few": ("pets", 5),
    "cifar10-few": ("cifar10", 20),
    "fashion-few": ("fashion-mnist", 20),
    "omniglot-few": ("omniglot", 20),
    "sign-few": ("sign-digits", 20),
}
"""Sets with so many images of each class, for training and validation together."""
FOLD_GROUPS = {"folds": (WHOLE_FOLDS, (3, 4)), "evidence": ((0,),), "races": ((3,), (4,))}
"""Folds that belong together, those worth more first. Races have a fold that no choice was made on."""
SHARES = (0.1, 0.03)
RACED_BY = ("steps", "seconds")
SETS = ("pets", "cifar10", "fashion-mnist", "sign-digits", "omniglot", "pets-few", "cifar10-few")
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
def fold(set_name: str, number: int, tested: bool = True) -> Task:
    """The set with its `number`-th fifth as validation; without its test part if that is not needed."""
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
        test=([task.test.inputs[i] for i in range(len(task.test))], np.asarray(task.test.targets)) if tested else None,
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

        task = fold(self.set_name, self.fold, tested=self.fold == 0)
        arguments = TuningArguments.of(
            **OPTIONS,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            seed=self.seed,
            warmup=WARMUP,
            cooldown=COOLDOWN,
            weight_decay=1e-4,
            frozen_norm_statistics=True,
            validate_every_epochs=1e6,
            bootstrap_resamples=1,
            keep_best=False,
        )
        settled = arguments.settled("image", task.kind)
        run = SingleRun(task, vision_identifier(self.model), (), "fine-tune", settled, None, None, silent)
        run.begin()
        test = run.batches_of(task.test, {"model": run.model.preprocessing}, augment=False) if self.fold == 0 else None
        kept: dict[str, np.ndarray] = {}

        def look(name: str, *, tested: bool = False) -> None:
            network = run.loop.network
            found = run.outcome(run.validation, task.validation, network)
            true = found.predicted[np.arange(len(found.targets)), found.targets]
            kept[f"{name}_loglik"] = np.log(np.maximum(true, 1e-12)).astype("f2")
            kept[f"{name}_right"] = found.predicted.argmax(axis=1) == found.targets
            if tested:
                found = run.outcome(test, task.test, network)
                kept[f"{name}_test"] = np.array((found.predicted.argmax(axis=1) == found.targets).mean())

        if self.schedule != "wsd":
            run.loop.run()
            look("end", tested=True)
            return kept
        for rung in FOLD_RUNGS if self.fold else RUNGS:
            falling = round(COOLDOWN * rung)
            run.loop.run(until=rung - falling)
            if rung < STEPS:
                look(f"raw{rung}")
            with run.loop.cooled_down(falling):
                look(f"rung{rung}", tested=rung == STEPS)
        return kept


@dataclass(frozen=True)
class Place:
    """What one process does in one go: a model on a fold of a set. Evidence has no model, a race what it counts by."""

    what: str
    set_name: str
    model: str = ""
    fold: int = 0
    share: float = 0.0
    """Of brute force's seconds: what a race may take."""
    until: float = float("inf")
    """The moment (of `time.time`) after which nothing begins any more."""

    def __str__(self) -> str:
        return f"{self.what} {self.set_name} {self.model} fold {self.fold}" + (f" {self.share:g}" if self.share else "")


def work(place: Place) -> None:
    """All runs of a place, while there is time."""
    import product

    if place.what == "evidence" and time.time() < place.until:
        product.evidence(place.set_name, place.fold)
    elif place.what == "races" and time.time() < place.until:
        product.whole_race(place.set_name, place.fold, place.share, place.model)
    elif place.what == "truth":
        arms = [Arm(place.set_name, place.model, rate, schedule="cosine") for rate in GRID]
        _run(arms, place.until)
        if time.time() < place.until:
            best = replace(arms[0], learning_rate=best_rate(place.set_name, place.model, "cosine"))
            _run([replace(best, seed=seed) for seed in FRESH_SEEDS], place.until)
    elif place.what in ("arms", "folds"):
        rates = ARM_RATES if place.fold == 0 else FOLD_RATES
        if place.fold not in (0, *WHOLE_FOLDS):
            rates = (best_rate(place.set_name, place.model, "wsd"),)
        _run([Arm(place.set_name, place.model, rate, fold=place.fold) for rate in rates], place.until)


def _run(arms: Sequence[Arm], until: float) -> None:
    for arm in arms:
        if time.time() < until:
            arm.run()


def best_rate(set_name: str, model: str, schedule: str) -> float:
    """The rate of the best held-out accuracy on the first fold, of brute force or after the last rung of a race."""
    rates, name = (GRID, "end_right") if schedule == "cosine" else (FOLD_RATES, f"rung{FOLD_RUNGS[-1]}_right")

    def accuracy(rate: float) -> float:
        with np.load(Arm(set_name, model, rate, schedule=schedule).file) as kept:
            return float(kept[name].mean()) if name in kept else -1.0

    return max(rates, key=accuracy)


def places(
    what: Sequence[str],
    sets: Sequence[str],
    models: Sequence[str],
    until: float,
    by: Sequence[str] = RACED_BY,
    raced: Sequence[int] = (),
) -> list[Place]:
    """In the order given, and by model: a process that has compiled the kernels of an architecture uses them again."""
    found: list[Place] = []
    for kind in what:
        groups = ((0,),) if kind in ("arms", "truth") else FOLD_GROUPS[kind]
        if kind == "races" and raced:
            groups = tuple(group for group in groups if set(group) & set(raced))
        for folds in groups:
            for share in SHARES if kind == "races" else (0.0,):
                for model in {"races": tuple(by), "evidence": ("",)}.get(kind, tuple(reversed(models))):
                    found += [Place(kind, name, model, fold, share, until) for fold in folds for name in sets]
    return found


def scatter(out: Path, anew: Sequence[str] = ()) -> None:
    """The runs that `gather` put together, as files again: they are not run again, but for races by what is `anew`."""
    for set_name in dict.fromkeys((*SETS, *FEW)):
        if not (out / f"{set_name}.npz").exists():
            continue
        runs: dict[str, dict[str, np.ndarray]] = {}
        with np.load(out / f"{set_name}.npz") as file:
            for key in file:
                run, _, name = key.rpartition("/")
                if not (CACHE / set_name / f"{run}.npz").exists():
                    runs.setdefault(run, {})[name] = file[key]
        (CACHE / set_name).mkdir(parents=True, exist_ok=True)
        for run, kept in runs.items():
            np.savez(CACHE / set_name / f"{run}.npz", **kept)
    if (out / "product.json").exists():
        (CACHE / "product").mkdir(parents=True, exist_ok=True)
        for name, record in json.loads((out / "product.json").read_text()).items():
            file = CACHE / "product" / f"{name}.json"
            if name.startswith("race-") and name.endswith(tuple(anew)):
                file.unlink(missing_ok=True)
            else:
                file.write_text(json.dumps(record))


def gather(out: Path) -> None:
    """One file per set: the arrays of all runs, by the names of their files."""
    out.mkdir(parents=True, exist_ok=True)
    for set_name in dict.fromkeys((*SETS, *FEW)):
        arrays: dict[str, np.ndarray] = {}
        for file in sorted((CACHE / set_name).glob("*.npz")):
            try:
                with np.load(file) as kept:
                    arrays |= {f"{file.stem}/{name}": kept[name] for name in kept}
            except Exception as error:
                print(file, error)
        if arrays:
            np.savez_compressed(out / f"{set_name}.npz", **arrays)
    records = {file.stem: json.loads(file.read_text()) for file in sorted((CACHE / "product").glob("*.json"))}
    if records:
        (out / "product.json").write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=("arms", "truth", "folds", "evidence", "races"))
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--models", nargs="*", default=shared_hub.VISION)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so many")
    parser.add_argument("--by", nargs="*", default=RACED_BY, choices=RACED_BY, help="what races are counted by")
    parser.add_argument("--folds", nargs="*", type=int, default=(), help="folds of races; all unless told")
    parser.add_argument("--anew", action="store_true", help="run races again that are in `--out`")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    until = time.time() + given.seconds
    scatter(given.out, given.by if given.anew else ())
    for _ in run_jobs(work, places(given.what, given.sets, given.models, until, given.by, given.folds), given.workers):
        pass
    gather(given.out)


if __name__ == "__main__":
    main()
