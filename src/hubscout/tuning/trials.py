"""Finished trials of a search, a line each: what is on disk is not run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.engines import Engine, Job, report
from hubscout.errors import RunError
from hubscout.runs.events import Message, Validated, metrics_text
from hubscout.runs.files import append_line, read_lines

if TYPE_CHECKING:
    from hubscout.runs.events import Event


@dataclass(frozen=True)
class Trial:
    """One model fine-tuned once: hyper-parameters and the task's primary metric. A pruned trial has no test metric."""

    model: str
    learning_rate: float
    weight_decay: float
    validation: float | None
    test: float | None
    seconds: float
    failure: str = ""


class TrialJournal:
    """The finished trials, in memory and on disk."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self.identity = dict(identity)
        self.trials: list[Trial] = []
        self._read()

    @property
    def done(self) -> set[tuple[str, float, float]]:
        """Model, learning rate and weight decay of what need not run again."""
        return {(trial.model, trial.learning_rate, trial.weight_decay) for trial in self.trials}

    def add(self, trial: Trial) -> None:
        """Keep a finished trial, on disk at once."""
        self.trials.append(trial)
        append_line(self.path, {"run": self.identity, **asdict(trial)})

    def _read(self) -> None:
        for number, record in enumerate(read_lines(self.path), start=1):
            try:
                run = record.pop("run")
                trial = Trial(**record)
            except (KeyError, TypeError) as error:
                raise RunError(f"{self.path}, trial {number}, is no trial: {error}.") from error
            if run != self.identity:
                raise RunError(
                    f"{self.path} holds trials of another search ({run}, now {self.identity}): give another folder."
                )
            self.trials.append(trial)


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
