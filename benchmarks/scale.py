"""Time and memory of statistics and scoring against the number of samples n and of dimensions D; cost of an engine.

    python benchmarks/scale.py                     # n from 1e3 to 1e6, D from 256 to 4096
    python benchmarks/scale.py --device cuda       # features made on the device
    python benchmarks/scale.py --imagenet          # 1.28 M × 2048, 1000 classes, as a stream
    python benchmarks/scale.py --engine            # two workers, local and on Ray, against one process
    python benchmarks/scale.py --slices            # one model on two workers, whole and in slices
    python benchmarks/scale.py --rows              # the score of few rows from themselves, and from their sums

Every measurement runs in a process of its own, so that its peak memory is its own. Features are made in pieces of
random numbers, as a model would give them; making them is not counted. "above" is the peak of the resident memory
less what the interpreter had with everything imported.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PIECE_ROWS = 4096
BLOCKS = 10


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    n: int
    dim: int
    classes: int
    device: str
    statistics_seconds: float
    scoring_seconds: float
    peak_bytes: int
    peak_device_bytes: int
    score: float


def measure(n: int, dim: int, classes: int, device: str) -> Cell:
    """Stream n rows through the statistics, then score them."""
    import numpy as np
    import torch

    from hubscout.evidence import Statistics, maximize_evidence
    from hubscout.features.result import BlockAccumulator

    cuda = device.startswith("cuda")
    kind = "classification"
    names = tuple(map(str, range(classes)))
    np.linalg.eigh(np.eye(4))
    warm_up = Statistics(kind, names[:2]).update(torch.ones(4, 2, device=device), torch.zeros(4, dtype=torch.long))
    del warm_up
    before = peak_bytes()
    generator = np.random.default_rng(0)
    torch_generator = torch.Generator(device=device).manual_seed(0)
    accumulator = BlockAccumulator(kind, names)
    on_device = Statistics(kind, names)
    spent = 0.0
    for start in range(0, n, PIECE_ROWS):
        rows = min(PIECE_ROWS, n - start)
        ids = generator.integers(0, classes, rows)
        if cuda:
            features = torch.randn(rows, dim, generator=torch_generator, device=device)
            features[:, : min(classes, dim)] += torch.nn.functional.one_hot(
                torch.as_tensor(ids, device=device) % min(classes, dim), min(classes, dim)
            )
            torch.cuda.synchronize()
        else:
            features = generator.standard_normal((rows, dim), dtype=np.float32)
            features[np.arange(rows), ids % dim] += 1
        began = time.perf_counter()
        if cuda:  # one block a piece, in turn
            on_device.update(features, torch.as_tensor(ids, device=device), block=start // PIECE_ROWS % BLOCKS)
            torch.cuda.synchronize()
        else:
            accumulator.add(features, ids, generator.integers(0, BLOCKS, rows))
        spent += time.perf_counter() - began
    began = time.perf_counter()
    statistics = on_device if cuda else accumulator.finish()
    spent += time.perf_counter() - began
    began = time.perf_counter()
    evidence = maximize_evidence(statistics)
    scoring = time.perf_counter() - began
    on_gpu = torch.cuda.max_memory_allocated() if cuda else 0
    return Cell(n, dim, classes, device, spent, scoring, peak_bytes() - before, on_gpu, float(evidence.score))


def measure_rows(n: int, dim: int, classes: int, way: str) -> dict[str, float]:
    """Score n rows that came in batches of 256, from themselves ("rows") or from their sums by block ("sums")."""
    import numpy as np

    from hubscout.evidence import logme, maximize_evidence
    from hubscout.features.result import BlockAccumulator

    generator = np.random.default_rng(0)
    ids, blocks = generator.integers(0, classes, n), generator.permutation(n) * BLOCKS // n
    batches = [
        generator.standard_normal((len(part), dim), dtype=np.float32) for part in np.split(ids, range(256, n, 256))
    ]
    logme(batches[0][:64, :32], ids[:64] % 2)
    before, began = peak_bytes(), time.perf_counter()
    if way == "rows":
        evidence = logme(
            np.concatenate(batches),
            ids,
            classes=range(classes),
            blocks=blocks,
            most_rounding=math.inf if n >= dim else 1e-9,
        )
    else:
        accumulator = BlockAccumulator("classification", tuple(map(str, range(classes))))
        for start, rows in zip(range(0, n, 256), batches, strict=True):
            accumulator.add(rows, ids[start : start + 256], blocks[start : start + 256])
        evidence = maximize_evidence(accumulator.finish())
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "peak": peak_bytes() - before, "score": float(evidence.score)}


def rows_or_sums() -> None:
    """Each in a process of its own, as the score of `rank` takes them."""
    for n, dim, classes in (
        (400, 2048, 10),
        (1400, 2048, 10),
        (3300, 512, 37),
        (3300, 1280, 37),
        (3300, 2048, 37),
        (12000, 1280, 37),
    ):
        found = {}
        for way in ("rows", "sums"):
            command = [sys.executable, __file__, "--one", str(n), str(dim), str(classes), way]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[way] = json.loads(done.stdout.splitlines()[-1])
        both = "  ".join(
            f"{way} {one['seconds']:6.3f} s, above {one['peak'] / 2**20:4.0f} MiB" for way, one in found.items()
        )
        apart = abs(found["rows"]["score"] - found["sums"]["score"])
        print(f"n {n:>6,}  D {dim:>5}  classes {classes:>3}  {both}  scores differ by {apart:.0e}", flush=True)


def peak_bytes() -> int:
    """The most resident memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_process(n: int, dim: int, classes: int, device: str) -> Cell:
    """`measure` in a process of its own."""
    arguments = [str(n), str(dim), str(classes), device]
    done = subprocess.run(
        [sys.executable, __file__, "--one", *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return Cell(**json.loads(done.stdout.splitlines()[-1]))


def show(cell: Cell) -> None:
    device = f"  on device {cell.peak_device_bytes / 2**20:7.0f} MiB" if cell.peak_device_bytes else ""
    print(
        f"n {cell.n:>9,}  D {cell.dim:>5}  classes {cell.classes:>5}  statistics {cell.statistics_seconds:9.3f} s  "
        f"scoring {cell.scoring_seconds:8.3f} s  above {cell.peak_bytes / 2**20:6.0f} MiB{device}",
        flush=True,
    )


def sweep(device: str, most_rows: int) -> list[Cell]:
    print(f"{device}, {os.environ.get('OMP_NUM_THREADS', 'all')} threads; against n at D = 256, 10 classes")
    sizes = [n for n in (1_000, 10_000, 100_000, 1_000_000) if n <= most_rows]
    by_n = []
    for n in sizes:
        by_n.append(in_process(n, 256, 10, device))
        show(by_n[-1])
    last, before = by_n[-1], by_n[-2]
    slope = math.log(last.statistics_seconds / before.statistics_seconds) / math.log(last.n / before.n)
    print(
        f"time grows as n^{slope:.2f} from {before.n:,} to {last.n:,}; "
        f"memory at {last.n:,} is {last.peak_bytes / by_n[1].peak_bytes:.2f} of that at {by_n[1].n:,}"
    )
    print("against D at n = 20,000, 10 classes")
    by_dim = []
    for dim in (256, 512, 1024, 2048, 4096):
        by_dim.append(in_process(20_000, dim, 10, device))
        show(by_dim[-1])
    return by_n + by_dim


def imagenet(device: str, rows: int) -> list[Cell]:
    print(f"ImageNet-1K's shape on {device}")
    cell = in_process(rows, 2048, 1000, device)
    show(cell)
    whole = cell.statistics_seconds + cell.scoring_seconds
    print(
        f"statistics and scoring: {whole:.0f} s; memory above the interpreter: {cell.peak_bytes / 2**20:.0f} MiB "
        f"({'under' if cell.peak_bytes < 2**30 else 'OVER'} 1 GiB)"
    )
    forward = forward_seconds(rows, device)
    print(
        f"forward passes of a ResNet-50 over as many images here: {forward:,.0f} s; "
        f"statistics and scoring are {whole / forward:.1%} of them"
    )
    return [cell]


def forward_seconds(rows: int, device: str) -> float:
    """Seconds of ResNet-50's forward passes over `rows` images, from a few batches measured here."""
    import torch

    from hubscout.hubs.image_preprocessing import prepare_torchvision

    prepare_torchvision()
    import timm

    network = timm.create_model("resnet50", num_classes=0).eval().to(device)
    cuda = device.startswith("cuda")
    size = 256 if cuda else 16
    images = torch.randn(size, 3, 224, 224, device=device)
    repeats = 20 if cuda else 2
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=cuda):
        network(images)
        if cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(repeats):
            network(images)
        if cuda:
            torch.cuda.synchronize()
    return (time.perf_counter() - began) / (repeats * size) * rows


NETWORK = """
import time
import torch
from torch import nn

class Work(nn.Module):
    num_features = 64
    def __init__(self, seed, rounds):
        super().__init__()
        torch.manual_seed(seed)
        self.rounds = rounds
        self.mix = nn.Linear(512, 512, bias=False)
        self.out = nn.Linear(512, 64)
    def forward(self, inputs):
        hidden = inputs
        for _ in range(self.rounds):
            hidden = torch.tanh(self.mix(hidden))
        return self.out(hidden)

def work(seed, rounds):
    return Work(seed, rounds)
"""


def processor_seconds() -> float:
    """What this process and all that it has started have used, those that have ended too."""
    import psutil

    here = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (here, *here.children(recursive=True)))


def engine_overhead(job_seconds: float, models: int) -> None:
    """The same ranking in this process, in two worker processes and on Ray with two workers, each with one thread.

    On a machine that others use too, processor seconds are what can be compared.
    """
    import numpy as np
    import torch

    from hubscout.engines import LocalEngine, RayEngine
    from hubscout.ranking import rank
    from hubscout.tasks import Task

    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    task = Task.from_arrays(generator.standard_normal((11_500, 512), dtype=np.float32), ["a", "b"] * 5_750)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.py"
        path.write_text(NETWORK)

        def run(rounds: int, count: int, engine: Any) -> tuple[float, list[float]]:
            names = [f"python:{path}:work?seed={seed}&rounds={rounds}" for seed in range(count)]
            began = time.perf_counter()
            found = rank(task, names, cache=False, engine=engine, measure_latency=False)
            assert not found.failures, found.failures
            return time.perf_counter() - began, [found[name].score for name in names]

        run(1, 1, "local")
        used = processor_seconds()
        run(40, 1, "local")
        rounds = max(40, round(40 * job_seconds / (processor_seconds() - used)))
        used = processor_seconds()
        local, here = run(rounds, models, "local")
        used = processor_seconds() - used
        print(
            f"local, one process, one thread: {models} models in {local:.1f} s, {local / models:.1f} s per job; "
            f"{used:.1f} processor seconds",
            flush=True,
        )
        for name, start in (
            ("local, two workers", lambda: LocalEngine(workers=2)),
            (
                "Ray, two workers",
                lambda: RayEngine("local", num_cpus=2, object_store_memory=200_000_000, dashboard=False),
            ),
        ):
            began, before = time.perf_counter(), processor_seconds()
            engine = start()
            started = time.perf_counter() - began
            try:
                cold, there = run(rounds, models, engine)
                spent = processor_seconds() - before
            finally:
                engine.close()
            difference = max(abs(a - b) for a, b in zip(here, there, strict=True))
            print(
                f"{name}: {cold:.1f} s with the start of the workers, {cold / (local / 2) - 1:+.1%} of half of local; "
                f"the engine itself started in {started:.1f} s; {spent:.1f} processor seconds with everything started, "
                f"{spent / used:.2f} of local; largest difference of scores {difference:.1e}",
                flush=True,
            )


WAITING = """
import time
import torch
from torch import nn

class Waits(nn.Module):
    num_features = 16
    def __init__(self, rate):
        super().__init__()
        torch.manual_seed(0)  # the same weights in every worker
        self.rate = rate
        self.out = nn.Linear(32, 16)
    def forward(self, inputs):
        time.sleep(len(inputs) / self.rate)
        return self.out(inputs)

def waits(rate, load):
    time.sleep(load)
    return Waits(rate)
"""


def where_slices_pay() -> None:
    """One model on two workers, whole and in two slices. It waits instead of computing, as for an accelerator, so that
    other work on the machine does not count."""
    import numpy as np

    from hubscout.engines import LocalEngine
    from hubscout.ranking import assessor, rank
    from hubscout.tasks import Task

    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.py"
        path.write_text(WAITING)
        engine = LocalEngine(workers=2)
        try:
            for rate in (100, 1000, 10_000):
                for rows in (512, 1024, 2048, 4096):
                    inputs = generator.standard_normal((rows * 10 // 7, 32), dtype=np.float32)
                    task = Task.from_arrays(inputs, ["a", "b"] * (len(inputs) // 2) + ["a"] * (len(inputs) % 2))
                    seconds = {}
                    for least in (rows, rows // 2):
                        assessor.LEAST_ROWS_PER_SLICE = least
                        model = f"python:{path}:waits?rate={rate}&load=1"
                        cache = Path(folder) / f"{rate}-{rows}-{least}"
                        began = time.perf_counter()
                        found = rank(task, model, cache=cache, engine=engine, measure_latency=False)
                        assert not found.failures, found.failures
                        seconds[least] = time.perf_counter() - began
                    print(
                        f"{len(task.train):6,} rows at {rate:6,} per second: whole {seconds[rows]:5.1f} s, "
                        f"two slices {seconds[rows // 2]:5.1f} s, {seconds[rows // 2] / seconds[rows]:.2f} of it",
                        flush=True,
                    )
        finally:
            engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--most-rows", type=int, default=1_000_000)
    parser.add_argument("--imagenet", action="store_true")
    parser.add_argument("--imagenet-rows", type=int, default=1_281_167)
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--slices", action="store_true")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--job-seconds", type=float, default=20.0)
    parser.add_argument("--models", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the measurements there as well")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        n, dim, classes, device = arguments.one
        if device in ("rows", "sums"):
            print(json.dumps(measure_rows(int(n), int(dim), int(classes), device)))
            return
        print(json.dumps(asdict(measure(int(n), int(dim), int(classes), device))))
        return
    if arguments.engine:
        engine_overhead(arguments.job_seconds, arguments.models)
        return
    if arguments.slices:
        where_slices_pay()
        return
    if arguments.rows:
        rows_or_sums()
        return
    cells = (
        imagenet(arguments.device, arguments.imagenet_rows)
        if arguments.imagenet
        else sweep(arguments.device, arguments.most_rows)
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")


if __name__ == "__main__":
    main()
