"""What fine-tuning really gives, by brute force: every model on every set over a grid, through `hubscout.reference`.

    python experiments/references.py --family vision --workers 10 --out results.jsonl
    python experiments/references.py --family vision --sets pets --models cifar10_resnet20 --out results.jsonl
    python experiments/references.py --family text --steps 100 --rates 1e-4 3e-4 --decays 0 --rows 500 --out small.jsonl

With seed 0 every learning rate runs with the first weight decay. Where validation chooses the highest or the lowest of
them, the next one beyond runs too, until the best has worse ones on both sides. Then come the other decays at that
rate; the setting that validation chooses of all runs again with fresh seeds. Every finished trial is in a journal under
$HUBSCOUT_EXPERIMENT_CACHE at once and a line of `--out` soon after; what is in either is not run again. A shorter
protocol (the flags of the last line) needs a $HUBSCOUT_EXPERIMENT_CACHE of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import shared_hub
from data_sets import CLASSIFICATION, MODEL_OPTIONS, REGRESSION, TEXT, open_set, smaller
from pool import attempt, run_jobs

CACHE = Path(os.environ.get("HUBSCOUT_EXPERIMENT_CACHE", Path.home() / ".cache" / "hubscout-experiments"))
PIXELS = 96
"""Side of the inputs of all vision models but those for small images, in ranking and in fine-tuning."""


@dataclass(frozen=True)
class Protocol:
    """How the models of a family are fine-tuned."""

    sets: tuple[str, ...]
    models: tuple[str, ...]
    learning_rates: tuple[float, ...]
    weight_decays: tuple[float, ...]
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    beyond: tuple[float, ...] = ()
    """Learning rates that are tried only next to the best one."""
    fresh_seeds: tuple[int, ...] = (1,)
    rows: int | None = None
    """Keep so many rows of every split; None keeps all."""


SHORT = {"steps": 300, "batch_size": 64, "data_in_memory": True, "workers": 2, "evaluation_batch_size": 256}
SHORT |= {"frozen_norm_statistics": False}
# Norms keep their statistics: some models come with norms that were folded away, and three hundred steps are too few to
# learn statistics anew (classification/results/norm-statistics.csv: EfficientNet-Lite0 on CIFAR-10 84% and 90%).
STILL = {**SHORT, "frozen_norm_statistics": True}
# Crops and mirror images would move what is to be predicted: where something is.
NUMBERS = {**STILL, "augment": "none", "optimizer": "sgd"}
VISION_RATES = (0.0003, 0.001, 0.004)
VISION_BEYOND = (0.00003, 0.0001, 0.016, 0.064)
RESNET20S = (*shared_hub.PRETRAINED_HERE, "cifar10_resnet20")
PROTOCOLS = {
    "vision": Protocol(
        tuple(CLASSIFICATION), shared_hub.VISION, VISION_RATES, (0.0, 0.01), STILL, VISION_BEYOND, (1, 2)
    ),
    "regression": Protocol(tuple(REGRESSION), shared_hub.VISION, VISION_RATES, (0.0,), NUMBERS, VISION_BEYOND),
    "contrastive": Protocol(tuple(CLASSIFICATION), RESNET20S, (0.004, 0.016, 0.064, 0.256), (0.001,), SHORT),
    "contrastive-regression": Protocol(
        ("sprites",),
        RESNET20S,
        (0.004, 0.016, 0.064, 0.256),
        (0.001,),
        {**SHORT, "augment": "none", "optimizer": "sgd"},
    ),
    "text": Protocol(
        # Sentences that are read apart can be ranked and not tuned.
        tuple(name for name in TEXT if name not in MODEL_OPTIONS),
        shared_hub.TEXT,
        (1e-4, 3e-4, 1e-3),
        (0.01,),
        {**SHORT, "batch_size": 32},
        (1e-5, 3e-5, 3e-3, 1e-2),
    ),
}


def vision_identifier(name: str) -> str:
    """A vision model as these experiments use it: small-image models at their own size, all others at `PIXELS`."""
    small = name.startswith("cifar10_") or name in shared_hub.PRETRAINED_HERE
    return shared_hub.identifier(name, None if small else PIXELS)


def identifier(name: str, set_name: str = "") -> str:
    """A model as it is ranked on a set."""
    if name in shared_hub.TEXT:
        return shared_hub.text_identifier(name, **MODEL_OPTIONS.get(set_name, {}))
    return vision_identifier(name)


def tuned_identifier(name: str, set_name: str = "") -> str:
    """A model as it is tuned on a set: a text encoder by the mean of its tokens, as it is ranked.

    Without the option a text encoder is tuned by a new classifier's reading of its first token.
    """
    if name in shared_hub.TEXT:
        return shared_hub.text_identifier(name, pooling="mean", **MODEL_OPTIONS.get(set_name, {}))
    return vision_identifier(name)


@dataclass(frozen=True)
class Place:
    """A set, a model and a seed: one journal."""

    family: str
    set_name: str
    model: str
    seed: int

    @property
    def folder(self) -> Path:
        return CACHE / "references" / self.family / self.set_name / f"{self.model}-seed{self.seed}"


@dataclass(frozen=True)
class Job:
    """A set, a model, and how it is fine-tuned."""

    family: str
    set_name: str
    model: str
    protocol: Protocol

    def __str__(self) -> str:
        return f"{self.set_name} {self.model}"

    def folder(self, seed: int) -> Path:
        return Place(self.family, self.set_name, self.model, seed).folder


def work(job: Job) -> str:
    """All trials of a model on a set."""
    from hubscout.errors import TuningError
    from hubscout.tuning.reference_search import reference

    protocol = job.protocol
    task, opened = open_set(job.set_name), tuned_identifier(job.model, job.set_name)
    if protocol.rows is not None:
        task = smaller(task, protocol.rows)
    options = {**protocol.options, "validate_every_epochs": protocol.options["steps"] / 3 / batches(task, protocol)}
    usual, *others = protocol.weight_decays
    search = partial(reference, task, [opened], out=job.folder(seed=0), seed=0, **options)
    rates = list(protocol.learning_rates)
    wanted = rates
    while True:
        try:
            best = search(grid=[(rate, usual) for rate in wanted]).best(opened)
            rate = rate_beyond(best.learning_rate, rates, protocol.beyond)
        except TuningError:  # all of them diverged
            rate = rate_beyond(min(rates), rates, protocol.beyond)
            if rate is None:
                raise
        if rate is None:
            break
        rates, wanted = [*rates, rate], [rate]
    if others:
        best = search(grid=[(best.learning_rate, decay) for decay in others]).best(opened)
    for seed in protocol.fresh_seeds:
        chosen = [(best.learning_rate, best.weight_decay)]
        reference(task, [opened], out=job.folder(seed=seed), grid=chosen, seed=seed, **options)
    return f"{best.test}"


def rate_beyond(best: float, tried: Sequence[float], others: Sequence[float]) -> float | None:
    """The next learning rate past the best of those tried; None if it has one on both sides, or none is left.

    >>> [rate_beyond(best, [0.1, 1.0], [0.001, 0.01, 10.0]) for best in (0.1, 1.0)]
    [0.01, 10.0]
    >>> rate_beyond(1.0, [0.1, 1.0, 10.0], [0.001, 0.01])
    """
    if best == max(tried):
        return min((rate for rate in others if rate > best), default=None)
    if best == min(tried):
        return max((rate for rate in others if rate < best), default=None)
    return None


@dataclass(frozen=True)
class Jobs:
    """What one process does without a pause."""

    jobs: tuple[Job, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.jobs))


def work_through(several: Jobs) -> list[str]:
    """All jobs of a process; one that fails is said and does not stop the others."""
    outcomes = [attempt(work, job) for job in several.jobs]
    for job, (_, problem) in zip(several.jobs, outcomes, strict=True):
        if problem:
            print(f"{job}: {problem}", flush=True)
    return [str(result) for result, _ in outcomes]


def batches(task: Any, protocol: Protocol) -> int:
    return -(-len(task.train) // protocol.options["batch_size"])


def gather(family: str) -> list[dict[str, Any]]:
    """Every trial in the journals, by names instead of paths."""
    found = []
    for path in sorted((CACHE / "references" / family).glob("*/*/trials.jsonl")):
        model, _, seed = path.parent.name.rpartition("-seed")
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # being written
            found.append({**record, "set": path.parent.parent.name, "model": model, "seed": int(seed)})
    return found


def restore(family: str, file: Path) -> None:
    """Journals out of a file of results, for models and sets that have none here."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    journals: dict[Path, list[str]] = {}
    for record in lines:
        place = Place(family, record.pop("set"), record["model"], record.pop("seed"))
        record["model"] = tuned_identifier(place.model, place.set_name)
        journals.setdefault(place.folder / "trials.jsonl", []).append(json.dumps(record))
    for path, records in journals.items():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(records) + "\n")


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=PROTOCOLS, required=True)
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, help="instead of the protocol's")
    parser.add_argument("--rates", type=float, nargs="*", help="learning rates instead of the protocol's")
    parser.add_argument("--decays", type=float, nargs="*", help="weight decays instead of the protocol's")
    parser.add_argument("--seeds", type=int, nargs="*", help="fresh ones, beside 0, instead of the protocol's")
    parser.add_argument("--rows", type=int, help="of every split; default all")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(given)
    protocol = PROTOCOLS[arguments.family]
    protocol = replace(
        protocol,
        learning_rates=tuple(arguments.rates or protocol.learning_rates),
        weight_decays=tuple(arguments.decays or protocol.weight_decays),
        options={**protocol.options, **({"steps": arguments.steps} if arguments.steps else {})},
        fresh_seeds=protocol.fresh_seeds if arguments.seeds is None else tuple(arguments.seeds),
        rows=arguments.rows,
    )
    restore(arguments.family, arguments.out)

    def write() -> None:
        text = "".join(json.dumps(record) + "\n" for record in gather(arguments.family))
        partial = arguments.out.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(arguments.out)

    ended = threading.Event()

    def keep_writing() -> None:
        while not ended.wait(3):
            write()

    writer = threading.Thread(target=keep_writing, daemon=True)
    writer.start()
    # A process keeps a model for several sets: on a GPU the first steps of an architecture, for which kernels are
    # compiled, cost as much as hundreds of others.
    sets, models = arguments.sets or protocol.sets, arguments.models or protocol.models
    half = -(-len(sets) // 2)
    jobs = [
        Jobs(tuple(Job(arguments.family, set_name, model, protocol) for set_name in some))
        for some in (sets[:half], sets[half:])
        for model in reversed(models)
        if some
    ]
    for _ in run_jobs(work_through, jobs, arguments.workers):
        pass
    ended.set()
    writer.join()
    write()


if __name__ == "__main__":
    main()
