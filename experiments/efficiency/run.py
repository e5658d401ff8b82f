"""The paper's two tables of efficiency: maximising the evidence, and what fine-tuning, extraction and LogME cost.

    python experiments/efficiency/run.py --device cpu --peer PATH --note "..."     # results/*-cpu.json
    python experiments/efficiency/run.py --device cuda                             # results/*-cuda.json
    python experiments/efficiency/run.py --device cuda --parts evidence vision-rank vision-tune

Every part runs in a process of its own, so that its peak memory is its own, and is stored at once; one that is stored
is not run again. On the CPU fine-tuning is timed over a few steps and ranking over a subset (the numbers say so); on a
GPU both run whole. `--peer` is a checkout of the paper's released LogME, which is timed beside ours on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "benchmarks")]

CASES = {"vision": ("pets", "resnet50_keras_in1k"), "text": ("sst2", "all-MiniLM-L6-v2")}
"""A set and a model by family: the nearest to the paper's ResNet-50 on Aircraft and RoBERTa-D on MNLI."""
PARTS = ("evidence", "vision-rank", "vision-tune", "text-rank", "text-tune")
CPU_ROWS = {"vision": 384, "text": 1000}
CPU_STEPS = (2, 6)
"""A step on the CPU is the difference of two runs of so many steps, divided by the difference."""
LEARNING_RATE = {"vision": 0.0003, "text": 1e-4}


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock and of the processors; the latter say more on a machine that others use too."""

    seconds: float
    cpu_seconds: float

    def minus(self, other: Cost) -> Cost:
        return Cost(self.seconds - other.seconds, self.cpu_seconds - other.cpu_seconds)

    def times(self, factor: float) -> Cost:
        return Cost(self.seconds * factor, self.cpu_seconds * factor)


def timed(work: Callable[[], Any], device: str) -> tuple[Cost, Any]:
    """What it takes until the device has finished, and the result."""
    import torch

    began, cpu_began = time.perf_counter(), time.process_time()
    result = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return Cost(time.perf_counter() - began, time.process_time() - cpu_began), result


def resident_bytes() -> int:
    """The most resident memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def start_device(device: str) -> None:
    """Start the device and forget what that took."""
    import torch

    if device == "cuda":
        square = torch.randn(64, 64, device=device)
        torch.linalg.eigh(square @ square.T)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()


def device_bytes(device: str) -> int:
    import torch

    return torch.cuda.max_memory_allocated() if device == "cuda" else 0


def measure_evidence(device: str, peer: Path | None) -> dict[str, Any]:
    """Every solver on features of the shape of Aircraft under a ResNet-50, stopped as the released code stops."""
    import numpy as np
    import torch

    from evidence import AS_RELEASED, SHAPES, load_peer, make
    from hubscout.evidence import logme

    shape = SHAPES[0]
    features, labels = make(shape)
    columns = (labels[:, None] == np.arange(shape.naive_classes)).astype(np.int64)
    rows: Any = features if device == "cpu" else torch.from_numpy(features).to(device)
    ids: Any = labels if device == "cpu" else torch.from_numpy(labels).to(device)
    column: Any = columns if device == "cpu" else torch.from_numpy(columns).to(device)
    wide: Any = features.astype(np.float64) if device == "cpu" else rows.double()
    works: dict[str, Callable[[], Any]] = {
        "gram": lambda: wide.T @ wide,
        "newton": lambda: logme(rows, ids, jackknife="none").score,
        "with error bar": lambda: logme(rows, ids).score,
        "fixed-point": lambda: logme(rows, ids, solver="fixed-point", **AS_RELEASED).score,
        "mackay": lambda: logme(rows, ids, solver="mackay", **AS_RELEASED).score,
        "naive": lambda: logme(rows, column, kind="multilabel", solver="naive", **AS_RELEASED).score,
    }
    if peer is not None:
        released = load_peer(peer)
        works["released"] = lambda: released(features, labels)
    costs: dict[str, Cost] = {}
    scores: dict[str, float] = {}
    for name, work in works.items():
        if device == "cuda" and name != "naive":  # libraries start, and kernels are chosen, in the first run
            timed(work, device)
        repeats = 1 if name == "naive" else (5 if device == "cuda" else 2)
        runs = [timed(work, device) for _ in range(repeats)]
        costs[name] = min((run[0] for run in runs), key=lambda cost: cost.seconds)
        if name not in ("gram", "naive"):
            scores[name] = float(runs[0][1])
    costs["naive"] = costs["naive"].times(shape.classes / shape.naive_classes)
    return {
        "n": shape.n,
        "feature_dim": shape.dim,
        "classes": shape.classes,
        "naive_timed_on_classes": shape.naive_classes,
        "costs": {name: asdict(cost) for name, cost in costs.items()},
        "scores": scores,
        "peak_device_bytes": device_bytes(device),
    }


def measure_rank(family: str, device: str) -> dict[str, Any]:
    """Extraction alone; `rank`, which is extraction, statistics and score; the score of features in memory."""
    from data_sets import open_set
    from references import identifier

    import hubscout
    from hubscout.evidence import logme
    from hubscout.features import extract
    from hubscout.hubs import load

    set_name, model = CASES[family]
    task = open_set(set_name)
    whole = len(task.train)
    if device == "cpu":
        task = task.subset(CPU_ROWS[family], seed=0)
    before = resident_bytes()
    backbone = load(identifier(model))
    extract(backbone, task.subset(32), statistics=False, device=device)  # the first batch of a process is slow
    start_device(device)
    extraction, found = timed(lambda: extract(backbone, task, statistics=False, device=device), device)
    extract_resident, extract_device = resident_bytes(), device_bytes(device)
    features, targets = found.features(), found.targets
    del found
    whole_ranking, ranking = timed(
        lambda: hubscout.rank(task, [backbone], cache=False, device=device, measure_latency=False), device
    )
    scoring, evidence = timed(lambda: logme(features, targets), "cpu")
    return {
        "set": set_name,
        "model": model,
        "n": len(task.train),
        "n_of_the_set": whole,
        "feature_dim": features.shape[1],
        "extract": asdict(extraction),
        "rank": asdict(whole_ranking),
        "score_on_cpu": asdict(scoring),
        "score": ranking[0].score,
        "score_of_features": evidence.score,
        "feature_bytes": features.nbytes,
        "before_resident_bytes": before,
        "extract_resident_bytes": extract_resident,
        "rank_resident_bytes": resident_bytes(),
        "extract_device_bytes": extract_device,
        "rank_device_bytes": device_bytes(device),
    }


def measure_tune(family: str, device: str) -> dict[str, Any]:
    """One fine-tuning run of the reference's protocol; a reference takes as many as its grid has settings."""
    from data_sets import open_set
    from references import PROTOCOLS, batches, identifier

    from hubscout.tuning import tune

    set_name, model = CASES[family]
    protocol = PROTOCOLS[family]
    options = dict(protocol.options)
    steps = options.pop("steps")
    task = open_set(set_name)
    if device == "cpu":  # only enough data for the steps that are timed
        needed = options["batch_size"] * max(CPU_STEPS)
        few = {name: split.take(range(min(32, len(split)))) for name, split in task.splits.items()}
        train = task.train.take(range(min(needed, len(task.train))))
        task = replace(task, splits=few | {"train": train}, fingerprint=f"{task.fingerprint}-few")

    def run(count: int) -> Any:
        return tune(
            task,
            identifier(model),
            method="fine-tune",
            steps=count,
            learning_rate=LEARNING_RATE[family],
            frozen_norm_statistics=False,
            device=device,
            validate_every_epochs=count / (1 if device == "cpu" else 3) / batches(task, protocol),
            **options,
        )

    before = resident_bytes()
    start_device(device)
    found: dict[str, Any] = {
        "set": set_name,
        "model": model,
        "steps": steps,
        "grid": len(protocol.learning_rates) + len(protocol.weight_decays) - 1,
    }
    found |= {"n_train": len(open_set(set_name).train), "n_test": len(open_set(set_name).test)}
    found |= {"batch_size": options["batch_size"]}
    if device == "cpu":
        run(1)
        few, many = (timed(lambda count=count: run(count), device)[0] for count in CPU_STEPS)
        cost = many.minus(few).times(steps / (CPU_STEPS[1] - CPU_STEPS[0]))
        found |= {"run": asdict(cost), "extrapolated_from_steps": CPU_STEPS[1]}
    else:
        cost, tuned = timed(lambda: run(steps), device)
        found |= {"run": asdict(cost), "extrapolated_from_steps": None, "test": tuned.metric("test").value}
    return found | {
        "before_resident_bytes": before,
        "resident_bytes": resident_bytes(),
        "device_bytes": device_bytes(device),
    }


def measure(part: str, device: str, peer: Path | None) -> dict[str, Any]:
    """One part, in this process."""
    import torch

    family, _, what = part.partition("-")
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    about: dict[str, Any] = {"part": part, "device": name, "cores": os.cpu_count()}
    about |= {"threads": torch.get_num_threads(), "load_average": os.getloadavg()[0]}
    if part == "evidence":
        return about | measure_evidence(device, peer)
    return about | (measure_rank(family, device) if what == "rank" else measure_tune(family, device))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--peer", type=Path, help="folder of a checkout of the released LogME")
    parser.add_argument("--note", default="", help="kept beside the numbers, such as how busy the machine was")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.device, arguments.peer)))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    for part in arguments.parts:
        path = arguments.out / f"{part}-{arguments.device}.json"
        if path.exists():
            continue
        command = [sys.executable, __file__, "--one", part, "--device", arguments.device]
        command += ["--peer", str(arguments.peer)] if arguments.peer else []
        began = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(f"{part}: {time.perf_counter() - began:.0f} s, exit {done.returncode}", file=sys.stderr, flush=True)
        if done.returncode == 0:
            found = json.loads(done.stdout.splitlines()[-1]) | {"note": arguments.note}
            path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
