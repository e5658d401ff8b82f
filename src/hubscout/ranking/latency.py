"""How long one sample takes through a network.

Other work on the machine makes a run longer and never shorter, so the shortest of several is what the network takes;
and it is said where even that may be too long.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from hubscout.features.transfers import move

if TYPE_CHECKING:
    from torch import nn

    from hubscout.hubs import Backbone
    from hubscout.runs.row import Row

_FEWEST_RUNS = 5
_MOST_RUNS = 50
_AGREEING, _AGREED = 3, 1.02
"""When so many of the shortest runs differ by so little, more would not be shorter."""
_MOST_SECONDS = 0.5
_LONGEST = 1.0
"""Seconds after which a network that is so slow is not waited for any more."""
_UNEVEN = 1.5
"""Median over minimum, from where on the runs differ by more than the network does."""
_WAITED = 0.1
"""Share of the time in which this thread wanted a processor that others had, or other threads the interpreter."""
_MACHINE = ("system", "processor", "cores", "threads", "accelerators", "device")


@dataclass(frozen=True)
class Latency:
    """Seconds for one sample; `busy` is whether the machine had other work meanwhile, so that it may be less."""

    seconds: float
    busy: bool = False


def measure_latency(backbone: Backbone, sample: Any, *, device: str = "cpu", shared: bool = False) -> Latency:
    """The shortest forward pass of one prepared `sample`, after one to warm up.

    Preparation of the sample is not counted. Goes on until the three shortest differ by less than 2%, or for half a
    second, but five runs at least unless they take a second. Where other threads have work at the same time, or the
    device is `shared` with other processes, five must do: they do not become shorter before that is done.
    """
    import torch

    batch, module = backbone.preprocessing.collate([backbone.preprocessing(sample)]), backbone.module
    times: list[float] = []
    was_training = module is not None and module.training
    if module is not None:
        backbone.to(device)
        batch = move(batch, device, channels_last=_is_channels_last(module))
        module.eval()
    try:
        with torch.inference_mode():
            _timed(backbone, batch, device)
            waited, others = _seconds_waited(), _seconds_of_others(device)
            while _wants_more(times, float("inf") if shared else _seconds_of_others(device) - others):
                times.append(_timed(backbone, batch, device))
            waited, others = _seconds_waited() - waited, _seconds_of_others(device) - others
    finally:
        if module is not None:
            module.train(was_training)
    busy = median(times) > _UNEVEN * min(times) or max(waited, others) > _WAITED * sum(times)
    return Latency(min(times), busy)


def _is_channels_last(module: nn.Module) -> bool:
    """The layout a network was run in: for an image in another one a GPU would compile its kernels anew."""
    return any(weights.ndim == 4 and not weights.is_contiguous() for weights in module.parameters())


def with_better_latency(row: Row, earlier: Row | None) -> Row:
    """A row, with the latency of an earlier one of the same model on the same machine where that is shorter."""
    if earlier is None or earlier.latency_seconds is None:
        return row
    if earlier.card.get("weights_fingerprint") != row.card.get("weights_fingerprint"):
        return row
    if row.latency_seconds is not None and row.latency_seconds <= earlier.latency_seconds:
        return row
    return replace(row, latency_seconds=earlier.latency_seconds, latency_busy=earlier.latency_busy)


def same_machine(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two runs, by what they noted of their environment, measured on machines that are alike.

    Who waits for workers does not know how many threads torch takes.
    """
    unknown = {"threads"} if None in (first.get("threads"), second.get("threads")) else set()
    return all(first.get(name) == second.get(name) for name in _MACHINE if name not in unknown)


def _wants_more(times: list[float], others: float = 0.0) -> bool:
    """`others` are the seconds of other threads meanwhile."""
    spent, shortest = sum(times), sorted(times)[:_AGREEING]
    if len(shortest) == _AGREEING and shortest[-1] <= _AGREED * shortest[0]:
        return False
    if len(times) < _FEWEST_RUNS:
        return not times or spent < _LONGEST
    return others <= _WAITED * spent and len(times) < _MOST_RUNS and spent < _MOST_SECONDS


def _seconds_waited() -> float:
    """How long this thread has waited for a processor so far; 0 where the system does not tell."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _seconds_of_others(device: str) -> float:
    """Processor time of all other threads so far, where a GPU runs the network: one that opens the next model takes the
    interpreter from this one, and twice the latency is measured. On a CPU they may be the network's own: 0.
    """
    return time.process_time() - time.thread_time() if device.startswith("cuda") else 0.0


def _timed(backbone: Backbone, batch: Any, device: str) -> float:
    import torch

    started = time.perf_counter()
    backbone.forward(batch)
    if device.startswith("cuda"):
        torch.cuda.current_stream(device).synchronize()  # and not for what other threads have it do
    elif device == "mps":
        torch.mps.synchronize()
    return time.perf_counter() - started
