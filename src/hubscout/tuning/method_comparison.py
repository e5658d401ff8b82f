"""`compare`: all methods on equal terms, over seeds, with mean and deviation."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import InputError, TuningError
from hubscout.metric_texts import metric_text
from hubscout.ranking.jobs import TaskReference
from hubscout.runs.failed_methods import write_failed_methods
from hubscout.runs.run_folder import TRIALS, check_folder
from hubscout.runs.tuning_record import write_tuning
from hubscout.tasks.task_metrics import primary
from hubscout.text_table import text_table
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.choices import ALL, check_heeded, heeded
from hubscout.tuning.methods import METHODS
from hubscout.tuning.readable import read_through
from hubscout.tuning.trials import TrialJournal, trial_runner

if TYPE_CHECKING:
    from rich.table import Table

    from hubscout.tasks import Task
    from hubscout.tuning.tuned import Tuned


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
        rows = []
        for method in self.methods:
            seconds = np.mean([trial.seconds for trial in self.trials if trial.method == method])
            values = [self.values(method, split) for split in ("validation", "test")]
            told = partial(metric_text, self.metric)
            cells = [f"{told(one.mean())} ± {told(deviation(one)).removesuffix('%')}" for one in values]
            rows.append((method, *cells, str(len(values[1])), f"{seconds:.0f}"))
        rows += [(trial.folder, trial.warning, "–", "1", "–") for trial in self.trials if trial.warning]
        rows += [(method, reason, "–", "0", "–") for method, reason in self.failures.items()]
        heads = ("method", "validation", "test", "seeds", "seconds")
        return text_table(heads, rows, right=heads[1:], title=f"{self.metric}, mean ± deviation over seeds")


def deviation(values: np.ndarray) -> float:
    """The sample standard deviation; 0 for a single value."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


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

    A method that cannot run here (Zoo-Tuning over several architectures, say) is named with its reason.

    Args:
        task: chosen on `validation`, reported on `test`.
        model: the model to tune, as for `tune`.
        teachers: models to learn from, as for `tune`.
        methods: names of methods.
        seeds: each method runs once with each.
        out: a folder: `trials.jsonl` gets a line for each finished run, METHOD-SEED/ its model with its curves,
            `failed-methods.json` the methods that cannot run. The same call goes on where it stopped.
        resume: refuse to start where `out` holds no runs to go on with.
        overwrite: start anew, and replace the runs that `out` holds.
        skip_bad: leave samples out that cannot be read, and name them, instead of stopping.
        engine: where the runs are made: "local" or "ray".
        engine_options: for the engine, such as `address`.
        options: fields of `TuningArguments`, and `observer`, which hears of each run's progress.

    Returns:
        The trials, with their `table()`.

    Raises:
        InputError: no method or no seed was given, or an option that none of the methods heeds.
        OtherRunError: `out` holds runs of another comparison.
        TuningError: no method could run.

    Example:
        `compare(task, model, teachers=ranking.top(3), methods=("fine-tune", "b-tuning"), epochs=5).table()`

    """
    if not seeds or not methods:
        raise InputError("compare needs at least one method and one seed.")
    observer = options.pop("observer", None)
    shared = {name: value for name, value in options.items() if name not in ("cache", "progress")}
    check_heeded(TuningArguments.of(**shared), methods, teachers)
    check_folder(out, TRIALS, resume=resume, overwrite=overwrite)
    task = read_through(task, skip_bad=skip_bad, observer=observer, data_in_memory=options.get("data_in_memory"))
    path = Path(out) / TRIALS if out is not None else None
    if path is not None and overwrite:
        path.unlink(missing_ok=True)
    named, *others = (one if isinstance(one, str) else one.card.identifier for one in (model, *teachers))
    told = {"task": task.fingerprint, "model": named, "teachers": others}
    journal = TrialJournal(path, Trial, "comparison", options, **told)
    done = {(trial.method, trial.seed) for trial in journal.trials}
    waiting = {
        f"{method}-{seed}": partial(_run, model, tuple(teachers), method, seed, path is not None)
        for method in methods
        for seed in seeds
        if (method, seed) not in done
    }
    failures: dict[str, str] = {}
    with trial_runner(task, engine, engine_options, observer, options) as run:
        for result in run(waiting):
            if result.failed:
                failures[result.key.rpartition("-")[0]] = result.reason
                continue
            trial, files = result.value
            if path is not None:
                _keep(path.parent / trial.folder, files)
            journal.add(trial)
    if path is not None:
        write_failed_methods(path.parent, failures)
    found = {(trial.method, trial.seed): trial for trial in journal.trials}
    trials = tuple(found[method, seed] for method in methods for seed in seeds if (method, seed) in found)
    if not trials:
        raise TuningError("No method could run: " + "; ".join(f"{m}: {reason}" for m, reason in failures.items()))
    return Comparison(task.name, named, tuple(others), primary(task.kind, task.target_names), trials, failures)


def _run(
    model: Any,
    teachers: Sequence[Any],
    method: str,
    seed: int,
    keep: bool,
    sent: TaskReference,
    options: Mapping[str, Any],
) -> tuple[Trial, dict[str, bytes]]:
    """The trial, and the files of its model: the caller may be another machine."""
    from hubscout.tuning.tuning_run import tune

    started = time.perf_counter()
    settings = {"bootstrap_resamples": 1, "progress": False, **heeded(options, method), "seed": seed}
    tuned = tune(sent.open(), model, teachers if METHODS[method].uses_teachers else (), method, **settings)
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
