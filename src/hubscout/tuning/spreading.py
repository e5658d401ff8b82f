"""Runs of tuning as jobs of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hubscout.engines import Engine, Job, report
from hubscout.runs.events import Message, Validated, metrics_text

if TYPE_CHECKING:
    from hubscout.runs.events import Event


def trial_job(key: str, work: Callable[[], Any], engine: Engine, device: str) -> Job:
    """A job with a GPU of its own where the engine has GPUs, and its share of the cores."""
    gpus = 0.0 if device == "cpu" else min(1.0, engine.total("GPU"))
    cpus = max(1.0, engine.total("CPU") // engine.total("GPU")) if gpus else 1.0
    return Job(key, work, cpus=cpus, gpus=gpus)


def options_elsewhere(options: Mapping[str, Any], key: str, engine: Engine, observer: Any) -> dict[str, Any]:
    """The options of one run. An observer belongs to this process: from others, validations come as notes."""
    chosen = {name: value for name, value in options.items() if name != "observer"}
    if not engine.elsewhere:
        return {**chosen, "observer": observer}
    return {**chosen, "observer": partial(tell_validation, key)}


def tell_validation(key: str, event: Event) -> None:
    """Inside a job: report a validation, with the name of the run."""
    if isinstance(event, Validated):
        report(Message("", f"{key}: epoch {event.epoch:.1f}: {metrics_text(event)}"))
