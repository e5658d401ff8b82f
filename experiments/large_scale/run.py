"""Whole data sets through `hubscout.rank`, end to end, beside bare forward passes; and a stream of ImageNet's shape.

    python experiments/large_scale/run.py cifar10 --data FOLDER --out results         # 50,000 images
    python experiments/large_scale/run.py fashion-mnist --data FOLDER --out results   # 60,000 images
    python experiments/large_scale/run.py imagenet --out results                      # 1,281,167 rows of 2048 numbers

FOLDER holds the train split as one or several Parquet files (`data/cifar10.py` and `data/fashion_mnist.py` of the
shared folder make them). One ranking runs all models; each network is then timed alone on batches that are on the
device already, and decoding and resizing alone, in threads and in as many processes as the ranking has. A part whose
file is in the results is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "benchmarks")]
import shared_hub  # noqa: E402
from references import vision_identifier  # noqa: E402

from hubscout.features.preparing import (  # noqa: E402
    InProcesses,
    InThreads,
    Reader,
    default_processes,
    default_threads,
)
from hubscout.tasks import Task  # noqa: E402

MODELS = ("cifar10_resnet20", "mobilenetv2_coral_in1k", "tf_efficientnet_lite0_in1k", "resnet50_keras_in1k")
"""All but the first see images of one size, so that they are decoded once for the three of them."""
BATCH_ROWS = {"cuda": 256, "cpu": 32}
"""As `rank` chooses them."""
BARE_ROWS = 8192
"""Images of the bare forward passes, and of decoding alone."""
IMAGENET_ROWS, IMAGENET_DIM, IMAGENET_CLASSES = 1_281_167, 2048, 1000


def open_train(name: str, folder: Path, limit: int | None) -> Task:
    """All train images; nothing is split off for validation."""
    files = sorted(path for path in folder.rglob("*.parquet") if "test" not in path.name)
    if not files:
        raise SystemExit(f"no Parquet file of {name}'s train split in {folder}")
    task = Task.from_table({"train": files}, label="label", split=False, name=name, validation_size=0, test_size=0)
    return task if limit is None else task.subset(limit, seed=0)


def decode_rate(task: Task, preprocessing: Any, rows: int, processes: int) -> float:
    """Images a second that are read and resized while nothing else runs: in threads, or in so many processes."""
    reader = Reader(task.train.inputs, preprocessing, "train")
    preparing = InProcesses(reader, processes) if processes else InThreads(reader, default_threads())
    chunks = [list(range(start, min(start + preparing.chunk, rows))) for start in range(0, rows, preparing.chunk)]
    if isinstance(preparing, InProcesses):
        preparing.ready.result()
    for answer in [preparing.submit(chunk) for chunk in chunks[: 4 * max(processes, 4)]]:
        answer.result()
    began = time.perf_counter()
    done = sum(len(answer.result()) for answer in [preparing.submit(chunk) for chunk in chunks])
    seconds = time.perf_counter() - began
    preparing.close()
    return done / seconds


def bare_rate(backbone: Any, pixels: Any, device: str, precision: str, rows: int) -> float:
    """Images a second of the network alone, `pixels` being one batch on the device; warm, and timed to the end."""
    import torch

    cuda = device.startswith("cuda")
    repeats = max(2, rows // len(next(iter(pixels.values()))))
    reduced = precision != "float32"
    with torch.inference_mode(), torch.autocast(device, getattr(torch, precision), enabled=reduced):
        for _ in range(3):
            backbone.forward(pixels)
        if cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(repeats):
            backbone.forward(pixels)
        if cuda:
            torch.cuda.synchronize()
    return repeats * len(next(iter(pixels.values()))) / (time.perf_counter() - began)


def measure_model(task: Task, name: str, row: Any, device: str, rows: int) -> dict[str, Any]:
    """What the ranking knows of a model, and what its network and its decoding do alone."""
    import torch

    from hubscout.hubs import load

    backbone = load(vision_identifier(name))
    backbone.module.eval()
    backbone.to(device)
    backbone.module.to(memory_format=torch.channels_last)
    samples = [backbone.preprocessing(task.train.inputs[i]) for i in range(min(BATCH_ROWS[device], len(task.train)))]
    batch = backbone.preprocessing.collate(samples)
    pixels = {key: value.to(device, memory_format=torch.channels_last) for key, value in batch.items()}
    fell_back = any("float32" in note for note in row.notes)
    used = "float16" if device.startswith("cuda") and not fell_back else "float32"
    images, processes = min(rows, len(task.train)), default_processes(device, "image", len(task.train))
    return {
        "model": name,
        "pixels": list(next(iter(pixels.values())).shape[2:]),
        "score": row.score,
        "standard_error": row.standard_error,
        "seconds": row.seconds,
        "rank_samples_per_second": row.samples_per_second,
        "bare_samples_per_second": bare_rate(backbone, pixels, device, used, rows),
        "bare_precision": used,
        "decode_samples_per_second": decode_rate(task, backbone.preprocessing, images, processes),
        "thread_decode_samples_per_second": decode_rate(task, backbone.preprocessing, images, 0),
        "preprocessing": backbone.preprocessing.key,
        "notes": list(row.notes),
    }


def measure_set(name: str, folder: Path, device: str, limit: int | None, models: list[str]) -> dict[str, Any]:
    import torch

    import hubscout

    began = time.perf_counter()
    task = open_train(name, folder, limit)
    opened = time.perf_counter() - began
    if device == "cuda":  # the start of the device is not the ranking's
        torch.zeros(1, device=device)
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    ranking = hubscout.rank(
        task, [vision_identifier(model) for model in models], cache=False, device=device, measure_latency=False
    )
    seconds = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    rows = {shared_hub.name_of(row.identifier): row for row in ranking}
    bare = BARE_ROWS if device == "cuda" else 8 * BATCH_ROWS["cpu"]
    return {
        "set": name,
        "n": len(task.train),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "cores": os.cpu_count(),
        "decoding_threads": default_threads(),
        "decoding_processes": default_processes(device, "image", len(task.train)),
        "open_seconds": opened,
        "rank_seconds": seconds,
        "peak_device_bytes": peak,
        "peak_resident_bytes": resident,
        "models": [measure_model(task, model, rows[model], device, bare) for model in models if model in rows],
        "failures": {shared_hub.name_of(failure.identifier): failure.reason for failure in ranking.failures},
    }


def measure_imagenet(device: str, rows: int) -> dict[str, Any]:
    """The stream of `benchmarks/scale.py` in a process of its own, and a ResNet-50's forward passes over as much."""
    from dataclasses import asdict

    from scale import forward_seconds, in_process

    cell = in_process(rows, IMAGENET_DIM, IMAGENET_CLASSES, device)
    return {"set": "imagenet-shape", **asdict(cell), "forward_seconds": forward_seconds(rows, device)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["cifar10", "fashion-mnist", "imagenet"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--limit", type=int, help="images, or rows of the stream; default all")
    parser.add_argument("--note", default="", help="kept beside the numbers, such as how busy the machine was")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{arguments.part}-{arguments.device}.json"
    if path.exists():
        print(f"{path} is there already")
        return
    if arguments.part == "imagenet":
        found = measure_imagenet(arguments.device, arguments.limit or IMAGENET_ROWS)
    elif arguments.data is None:
        parser.error("--data must name the folder of the Parquet files")
    else:
        found = measure_set(arguments.part, arguments.data, arguments.device, arguments.limit, list(arguments.models))
    found["note"] = arguments.note
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
