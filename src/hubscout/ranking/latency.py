"""How long one sample takes through a network."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hubscout.hubs import Backbone

_MOST_SECONDS = 0.3
_MOST_RUNS = 20


def measure_latency(backbone: Backbone, sample: Any, *, device: str = "cpu") -> float:
    """Median seconds of a forward pass of one prepared `sample`, after one to warm up.

    Preparation of the sample is not counted. Stops after 0.3 seconds, with at least one timed run.
    """
    import torch

    batch = backbone.preprocessing.collate([backbone.preprocessing(sample)])
    if backbone.module is not None:
        batch = {name: value.to(device) for name, value in batch.items()}
        backbone.to(device)
    times: list[float] = []
    was_training = backbone.module.training if backbone.module is not None else False
    if backbone.module is not None:
        backbone.module.eval()
    try:
        with torch.inference_mode():
            _timed(backbone, batch, device)
            while len(times) < _MOST_RUNS and (not times or sum(times) < _MOST_SECONDS):
                times.append(_timed(backbone, batch, device))
    finally:
        if was_training and backbone.module is not None:
            backbone.module.train()
    return median(times)


def _timed(backbone: Backbone, batch: Any, device: str) -> float:
    import torch

    started = time.perf_counter()
    backbone.forward(batch)
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    elif device == "mps":
        torch.mps.synchronize()
    return time.perf_counter() - started
