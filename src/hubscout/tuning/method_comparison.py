"""`compare`: all methods on equal terms, over seeds, with mean and deviation."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.credentials import strip_credentials
from hubscout.engines import Job, open_engine
from hubscout.errors import InputError, TuningError
from hubscout.ranking.jobs import TaskReference
from hubscout.runs.files import append_line, read_lines
from hubscout.runs.run_folder import TRIALS, check_folder
from hubscout.runs.tuning_record import write_tuning
from hubscout.tasks.task_metrics import primary
from hubscout.tuning.methods import METHODS
from hubscout.tuning.readable import read_through
from hubscout.tuning.trials import options_elsewhere, trial_job

if TYPE_CHECKING:
    from rich.table import Table

    from hubscout.tasks import Task
    from hubscout.tuning.tuned import Tuned

ALL = ("fine-tune", "kd", "zoo", "b-tuning")


@dataclass(frozen=True)
class Trial:
    """One run: its primary metric on validation and test."""

    method: str
    seed: int
    validation: float
    test: float
    seconds: float
    warning: str = ""
    """Where the model is worse than guessing."""

    @property
    def folder(self) -> str:
        """The folder of the model, inside that of the comparison."""
        return f"{self.method}-{self.seed}"


@dataclass(frozen=True)
class Comparison:
    """What the methods gave. `failures` says why a method was left out."""

    task_name: str
    model: str
    teachers: tuple[str, ...]
    metric: str
    trials: tuple[Trial, ...]
    failures: Mapping[str, str] = field(default_factory=dict)

    def values(self, method: str, split: str = "test") -> np.ndarray:
        """A method's metric for each seed."""
        return np.array([getattr(trial, split) for trial in self.trials if trial.method == method])

    @property
    def methods(self) -> tuple[str, ...]:
        """Those that ran, the best on validation first."""
        names = dict.fromkeys(trial.method for trial in self.trials)
        return tuple(sorted(names, key=lambda name: -self.values(name, "validation").mean()))

    def record(self) -> dict[str, Any]:
        """Everything as plain values, with the summary."""
        summary = {
            method: {
                "seeds": len(self.values(method)),
                "test_mean": float(self.values(method).mean()),
                "test_deviation": deviation(self.values(method)),
                "validation_mean": float(self.values(method, "validation").mean()),
                "validation_deviation": deviation(self.values(method, "validation")),
            }
            for method in self.methods
        }
        return {**asdict(self), "summary": summary}

    def table(self) -> Table:
        """Mean ± standard deviation over seeds."""
        from rich.table import Table
        from rich.text import Text

        table = Table(header_style="bold", title=f"{self.metric}, mean ± deviation over seeds", title_justify="left")
        for head in ("method", "validation", "test", "seeds", "seconds"):
            table.add_column(head, justify="left" if head == "method" else "right")
        for method in self.methods:
            seconds = np.mean([trial.seconds for trial in self.trials if trial.method == method])
            cells = [_spread(self.values(method, split)) for split in ("validation", "test")]
            table.add_row(Text(method), *cells, str(len(self.values(method))), f"{seconds:.0f}")
        for trial in self.trials:
            if trial.warning:
                table.add_row(Text(trial.folder), Text(trial.warning, overflow="fold"), "–", "1", "–")
        for method, reason in self.failures.items():
            table.add_row(Text(method), Text(reason, overflow="fold"), "–", "0", "–")
        return table


def deviation(values: np.ndarray) -> float:
    """The sample standard deviation; 0 for a single value."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.4f} ± {deviation(values):.4f}"


def compare(
    task: Task,
    model: Any,
    teachers: Sequence[Any],
    *,
    methods: Sequence[str] = ALL,
    seeds: Sequence[int] = (0, 1, 2),
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    skip_bad: bool = False,
    engine: str = "local",
    engine_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Comparison:
    """Tune by each method with each seed and the same arguments.

    Every finished run is a line of `out`/trials.jsonl at once, and its model with its curves is in `out`/METHOD-SEED/,
    as `Tuned.save` writes it; the same call goes on where it stopped. `resume` refuses to start where there is no such
    run, `overwrite` starts anew. A method that cannot run here (Zoo-Tuning over
    several architectures, say) is named with its reason.
    """
    if not seeds or not methods:
        raise InputError("compare needs at least one method and one seed.")
    observer = options.pop("observer", None)
    check_folder(out, TRIALS, resume=resume, overwrite=overwrite)
    task = read_through(task, skip_bad=skip_bad, observer=observer)
    journal = Path(out) / TRIALS if out is not None else None
    if journal is not None and overwrite:
        journal.unlink(missing_ok=True)
    identity = _identity(task, model, teachers, options)
    done = _read(journal, identity)
    failures: dict[str, str] = {}
    runner = open_engine(engine, **(engine_options or {}))
    try:
        reference = TaskReference.of(task, runner)

        def job(method: str, seed: int) -> Job:
            key = f"{method}-{seed}"
            settings = options_elsewhere(options, key, runner, observer)
            work = partial(_run, reference, model, tuple(teachers), method, seed, settings, journal is not None)
            return trial_job(key, work, runner, str(options.get("device", "auto")))

        jobs = [job(method, seed) for method in methods for seed in seeds if (method, seed) not in done]
        for result in runner.run(jobs, observer=observer if runner.elsewhere else None):
            if result.failed:
                failures[result.key.rpartition("-")[0]] = result.reason
                continue
            trial, files = result.value
            done[trial.method, trial.seed] = trial
            if journal is not None:
                _keep(journal.parent / trial.folder, files)
                append_line(journal, {"run": identity, **asdict(trial)})
    finally:
        runner.close()
    trials = [done[method, seed] for method in methods for seed in seeds if (method, seed) in done]
    if not trials:
        raise TuningError("No method could run: " + "; ".join(f"{m}: {reason}" for m, reason in failures.items()))
    names = tuple(_name(teacher) for teacher in teachers)
    return Comparison(task.name, _name(model), names, primary(task.kind, task.target_names), tuple(trials), failures)


def _run(
    reference: TaskReference,
    model: Any,
    teachers: Sequence[Any],
    method: str,
    seed: int,
    options: Mapping[str, Any],
    keep: bool,
) -> tuple[Trial, dict[str, bytes]]:
    """The trial, and the files of its model: the caller may be another machine."""
    import time

    from hubscout.tuning.tuning_run import tune

    started = time.perf_counter()
    settings = {"bootstrap_resamples": 1, "progress": False, **options, "seed": seed}
    tuned = tune(reference.open(), model, teachers if METHODS[method].uses_teachers else (), method, **settings)
    seconds = time.perf_counter() - started
    validation, test = tuned.metric("validation").value, tuned.metric("test").value
    return Trial(method, seed, validation, test, seconds, tuned.warning), _files(tuned) if keep else {}


def _files(tuned: Tuned) -> dict[str, bytes]:
    """What `Tuned.save` writes, by path; the record alone of a model that cannot be saved."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        try:
            tuned.save(folder)
        except NotImplementedError:
            write_tuning(folder, tuned.tuning_record(), tuned.curves)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _keep(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _identity(task: Task, model: Any, teachers: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: str(value) for name, value in sorted(options.items()) if name not in ("observer", "cache")}
    names = [_name(teacher) for teacher in teachers]
    identity = {"task": task.fingerprint, "model": _name(model), "teachers": names, "options": plain}
    return json.loads(strip_credentials(json.dumps(identity)))  # as it stands in the journal


def _name(model: Any) -> str:
    return model if isinstance(model, str) else model.card.identifier


def _read(journal: Path | None, identity: Mapping[str, Any]) -> dict[tuple[str, int], Trial]:
    found = {}
    for record in read_lines(journal) if journal is not None else ():
        try:
            same = record.pop("run") == identity
            trial = Trial(**record)
            place = (str(trial.method), int(trial.seed))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"{journal} holds a line that is no trial: {error}.") from error
        if not same:
            raise InputError(f"{journal} holds trials of another comparison: give another folder.")
        found[place] = trial
    return found
