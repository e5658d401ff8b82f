"""What a step on small images costs a GPU with its passes recorded as a CUDA graph, and kernel by kernel.

    python benchmarks/graphs.py                       # 96 pixels, 48 images a step; about a minute

Runs of both kinds take turns; the figure is the median over them of the seconds per step without the first twenty,
which wait for the data and record. Random weights: they cost what trained ones cost. Beside it the largest difference
of the losses of both kinds, as a share, and whatever the run had to say of graphs.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median

import numpy as np
import torch

from hubscout.hubs import prepare_torchvision
from hubscout.runs.events import Progress
from hubscout.tasks import Task
from hubscout.tuning import tune

NETWORKS = ("mobilenetv2_100", "resnet18", "resnet50", "efficientnet_lite0")


def task(samples: int, pixels: int) -> Task:
    generator = np.random.default_rng(0)
    images = list(generator.integers(256, size=(samples, pixels, pixels, 3), dtype=np.uint8))
    labels = np.arange(samples) % 10
    return Task.from_arrays(
        images, labels, validation=(images[:48], labels[:48]), kind="classification", modality="image", name="noise"
    )


def timed_run(
    data: Task, name: str, *, graphs: bool, steps: int, batch_size: int, pixels: int
) -> tuple[float, np.ndarray, list[str]]:
    """Seconds per step, the losses, and notes on graphs."""
    prepare_torchvision()
    import timm

    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False)
    module.pretrained_cfg = {**module.pretrained_cfg, "input_size": (3, pixels, pixels)}
    moments: dict[int, float] = {}

    def hear(event: object) -> None:
        if isinstance(event, Progress):
            torch.cuda.synchronize()
            moments[event.step] = time.perf_counter()

    tuned = tune(
        data,
        module,
        method="fine-tune",
        steps=steps,
        batch_size=batch_size,
        learning_rate=1e-4,
        cuda_graphs=graphs,
        data_in_memory=True,
        validate_every_epochs=1e6,
        observer=hear,
    )
    losses = np.array([line["loss"] for line in tuned.curves if line["event"] == "step"])
    notes = [line["text"] for line in tuned.curves if line["event"] == "note" and "CUDA graph" in line["text"]]
    return (moments[steps] - moments[20]) / (steps - 20), losses, notes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pixels", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    given = parser.parse_args()
    data = task(480, given.pixels)
    sizes = {"steps": given.steps, "batch_size": given.batch_size, "pixels": given.pixels}
    for name in given.networks:
        found: dict[bool, list[float]] = {True: [], False: []}
        losses: dict[bool, np.ndarray] = {}
        for _ in range(given.rounds):
            for graphs in (False, True):
                seconds, losses[graphs], notes = timed_run(data, name, graphs=graphs, **sizes)
                found[graphs].append(seconds)
        plain, graphed = median(found[False]), median(found[True])
        line = {
            "network": name,
            "ms_kernel_by_kernel": round(1e3 * plain, 2),
            "ms_graph": round(1e3 * graphed, 2),
            "ratio": round(plain / graphed, 2),
            "largest_difference": float(f"{np.abs(losses[True] / losses[False] - 1).max():.2g}"),
            "notes": notes,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
