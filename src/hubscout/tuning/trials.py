"""Trials, the runs of a search or a comparison: a line each in a file, and jobs of an engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hubscout.credentials import strip_credentials
from hubscout.engines import Engine, Job, JobResult, report
from hubscout.engines.engine import running_engine
from hubscout.errors import OtherRunError, RunError
from hubscout.ranking.jobs import ImportForModels, TaskReference
from hubscout.runs.events import Message, Validated, metrics_text
from hubscout.runs.files import append_line, read_lines

if TYPE_CHECKING:
    from hubscout.runs.events import Event
    from hubscout.tasks import Task

Trial = TypeVar("Trial", bound=Any)
"""A dataclass of what is known of one run."""


class TrialJournal(Generic[Trial]):
    """The finished trials, in memory and, where there is a file for them, on disk at once: those are not run again."""

    def __init__(self, path: Path | None, kind: type[Trial], purpose: str, options: Mapping[str, Any], **told: Any):
        """Read what `path` holds: trials of this `purpose` with the same options, and alike in all that is `told`."""
        plain = {name: str(value) for name, value in sorted(options.items()) if name not in ("cache", "observer")}
        self.path, self.kind, self.purpose = path, kind, purpose
        # As it stands in the file.
        self.identity = json.loads(strip_credentials(json.dumps({**told, "options": plain})))
        lines = read_lines(path) if path is not None else []
        self.trials: list[Trial] = [self._read(line, number) for number, line in enumerate(lines, start=1)]

    def add(self, trial: Trial) -> None:
        """Keep a finished trial."""
        self.trials.append(trial)
        if self.path is not None:
            append_line(self.path, {"run": self.identity, **asdict(trial)})

    def _read(self, line: dict[str, Any], number: int) -> Trial:
        try:
            run = line.pop("run")
            trial = self.kind(**line)
            hash(trial)  # no lists or mappings, which a damaged file may hold
        except (KeyError, TypeError) as error:
            raise RunError(f"{self.path}, trial {number}, is no trial: {error}.") from error
        if run != self.identity:
            raise OtherRunError(
                f"{self.path} holds trials of another {self.purpose} ({run}, now {self.identity}): give another folder."
            )
        return trial


@contextmanager
def trial_runner(
    task: Task, engine: str, engine_options: Mapping[str, Any] | None, observer: Any, options: Mapping[str, Any]
) -> Iterator[Callable[[Mapping[str, Callable[..., Any]]], Iterator[JobResult]]]:
    """A function that runs trials, by their keys, on an engine.

    A trial is called with the task, as jobs get it, and with its options. An observer belongs to this process: from
    others, validations come as notes.
    """
    with running_engine(engine, engine_options) as runner:
        ImportForModels.begin(runner)
        sent, device = TaskReference.of(task, runner), str(options.get("device", "auto"))

        def run(trials: Mapping[str, Callable[..., Any]]) -> Iterator[JobResult]:
            jobs = []
            for key, trial in trials.items():
                told = partial(_tell_validation, key) if runner.elsewhere else observer
                jobs.append(trial_job(key, partial(trial, sent, {**options, "observer": told}), runner, device))
            return runner.run(jobs, observer=observer if runner.elsewhere else None)

        yield run


def trial_job(key: str, work: Callable[[], Any], engine: Engine, device: str) -> Job:
    """A job with a GPU of its own where the engine has GPUs, and its share of the cores."""
    gpus = 0.0 if device == "cpu" else min(1.0, engine.total("GPU"))
    cpus = max(1.0, engine.total("CPU") // engine.total("GPU")) if gpus else 1.0
    return Job(key, work, cpus=cpus, gpus=gpus)


def _tell_validation(key: str, event: Event) -> None:
    """Inside a job: report a validation, with the name of the run."""
    if isinstance(event, Validated):
        report(Message("", f"{key}: epoch {event.epoch:.1f}: {metrics_text(event)}"))
