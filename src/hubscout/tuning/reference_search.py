"""`reference`: what fine-tuning would really give, by brute force, to judge rankings by.

The paper's reference: fine-tune each model for every pair of a learning rate and a weight decay, choose by the
validation split, report the test split. Resumable: every finished trial is a line of a file at once.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.credentials import strip_credentials
from hubscout.errors import DivergedError, InputError, TuningError
from hubscout.ranking.jobs import TaskReference
from hubscout.runs.files import write_atomically
from hubscout.runs.run_folder import REFERENCE, TRIALS, check_folder
from hubscout.tasks.task_metrics import primary
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.choices import check_heeded
from hubscout.tuning.rates import Grid
from hubscout.tuning.readable import read_through
from hubscout.tuning.trials import TrialJournal, trial_runner

if TYPE_CHECKING:
    from hubscout.engines import JobResult
    from hubscout.tasks import Task


@dataclass(frozen=True)
class Trial:
    """One model fine-tuned once: hyper-parameters and the task's primary metric; one that failed has none."""

    model: str
    learning_rate: float
    weight_decay: float
    validation: float | None
    test: float | None
    seconds: float
    failure: str = ""


@dataclass(frozen=True)
class Reference:
    """All trials, and of each model the test metric at its best validation metric."""

    task_name: str
    metric: str
    trials: tuple[Trial, ...]

    def best(self, model: str) -> Trial:
        """The trial that validation chooses."""
        found = [t for t in self.trials if t.model == model and t.validation is not None and t.test is not None]
        if not found:
            reasons = {trial.failure for trial in self.trials if trial.model == model and trial.failure}
            raise TuningError(f"No trial of {model!r} finished. {' '.join(sorted(reasons))}".strip())
        return max(found, key=_merit)

    @property
    def models(self) -> tuple[str, ...]:
        """Those with a finished trial, the best on test first."""
        names = dict.fromkeys(t.model for t in self.trials if t.validation is not None and t.test is not None)
        return tuple(sorted(names, key=lambda model: -(self.best(model).test or 0.0)))

    @property
    def failures(self) -> dict[str, str]:
        """Models without a single finished trial, and why."""
        missing = dict.fromkeys(t.model for t in self.trials if t.model not in self.models)
        return {
            model: next((t.failure for t in self.trials if t.model == model and t.failure), "") for model in missing
        }

    def to_mapping(self) -> dict[str, float]:
        """Model → test metric: what `evaluate` takes."""
        return {model: float(self.best(model).test or 0.0) for model in self.models}

    def save(self, path: Path | str) -> Path:
        """The table as CSV, with the columns `model` and `accuracy` that `hubscout evaluate` reads."""
        target = Path(path)
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(["model", "accuracy", "metric", "validation", "learning_rate", "weight_decay", "trials"])
        for model in self.models:
            best = self.best(model)
            count = sum(trial.model == model for trial in self.trials)
            results = (best.test, self.metric, best.validation, best.learning_rate, best.weight_decay, count)
            writer.writerow([strip_credentials(model), *results])
        write_atomically(target, text.getvalue().encode())
        return target


def reference(
    task: Task,
    models: Sequence[str],
    *,
    out: Path | str,
    grid: Grid | Iterable[tuple[float, float]] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    skip_bad: bool = False,
    engine: str = "local",
    engine_options: Mapping[str, Any] | None = None,
    observer: Any = None,
    **options: Any,
) -> Reference:
    """Fine-tune every model over a grid.

    Args:
        task: chosen on `validation`, reported on `test`.
        models: identifiers.
        out: a folder: `trials.jsonl` gets a line for each finished trial, `reference.csv` the table. The same call
            goes on where it stopped.
        grid: pairs of a learning rate (of the backbone; the head has ten times it) and a weight decay. None: those
            that suit the inputs and the optimiser, see `Grid.of`.
        resume: refuse to start where `out` holds no trials to go on with.
        overwrite: start anew, and replace the trials that `out` holds.
        skip_bad: leave samples out that cannot be read, and name them, instead of stopping.
        engine: where the trials run.
        engine_options: for the engine, such as `address`.
        observer: hears of each run's progress.
        options: fields of `TuningArguments` that all trials share.

    Returns:
        The trials, and of each model the best.

    Raises:
        InputError: what is searched over is among the options, or something that fine-tuning does not heed.
        OtherRunError: `out` holds trials of another search.
        TuningError: no trial finished.

    Example:
        `reference(task, ["timm/resnet18.a1_in1k"], out="reference/", epochs=5).to_mapping()`

    """
    folder = Path(out)
    check_choices(folder, options, resume=resume, overwrite=overwrite)
    task = read_through(task, skip_bad=skip_bad, observer=observer, data_in_memory=options.get("data_in_memory"))
    if overwrite:
        (folder / TRIALS).unlink(missing_ok=True)
    journal = TrialJournal(folder / TRIALS, Trial, "search", options, task=task.fingerprint, search="grid")
    chosen = Grid.of(task, str(options.get("optimizer", "auto"))) if grid is None else grid
    with trial_runner(task, engine, engine_options, observer, options) as run:
        _search_grid(models, journal, chosen, run)
    wanted = set(models)
    result = Reference(
        task.name,
        primary(task.kind, task.target_names),
        tuple(trial for trial in journal.trials if trial.model in wanted),
    )
    if not result.models:
        raise TuningError("No trial finished: " + "; ".join(f"{m}: {why}" for m, why in result.failures.items()))
    result.save(folder / REFERENCE)
    return result


def check_choices(folder: Path, options: Mapping[str, Any], *, resume: bool = False, overwrite: bool = False) -> None:
    """Refuse what can be refused before data are read, which can take long."""
    for name in ("learning_rate", "weight_decay"):
        if name in options:
            raise InputError(f"{name} is what the search is over: give grid= instead.")
    shared = {name: value for name, value in options.items() if name not in ("cache", "observer")}
    check_heeded(TuningArguments.of(**shared), "fine-tune", ())
    check_folder(folder, TRIALS, resume=resume, overwrite=overwrite)


def _search_grid(
    models: Sequence[str],
    journal: TrialJournal[Trial],
    grid: Grid | Iterable[tuple[float, float]],
    run: Callable[[Mapping[str, Callable[..., Trial]]], Iterator[JobResult]],
) -> None:
    wanted = [(model, *pair) for model in models for pair in grid]
    while wanted:
        done = {(trial.model, trial.learning_rate, trial.weight_decay) for trial in journal.trials}
        places = {f"{model} {rate!r} {decay!r}": (model, rate, decay) for model, rate, decay in wanted}
        for result in run({key: partial(_trial, *place) for key, place in places.items() if place not in done}):
            if result.failed:
                # Not written: what failed for a reason outside the search is tried again next time.
                journal.trials.append(Trial(*places[result.key], None, None, result.seconds, result.reason))
            else:
                journal.add(result.value)
        wanted = _past_the_ends(models, journal, grid) if isinstance(grid, Grid) else []


def _past_the_ends(models: Sequence[str], journal: TrialJournal[Trial], grid: Grid) -> list[tuple[str, float, float]]:
    """What is still to be tried of the models whose best rate so far is at an end of those tried."""
    wanted: list[tuple[str, float, float]] = []
    for model in models:
        own = [trial for trial in journal.trials if trial.model == model]
        finished = [trial for trial in own if trial.validation is not None]
        if not finished:
            continue
        rate = grid.next_rate({trial.learning_rate for trial in own}, max(finished, key=_merit).learning_rate)
        if rate is not None:
            wanted += [(model, rate, decay) for decay in grid.weight_decays]
    return wanted


def _merit(trial: Trial) -> tuple[float, float]:
    return trial.validation or 0.0, -trial.learning_rate


def _trial(model: str, rate: float, decay: float, sent: TaskReference, options: Mapping[str, Any]) -> Trial:
    """Fine-tune once. Divergence is a result of the hyper-parameters, not a failure of the search."""
    from hubscout.tuning.tuning_run import tune

    started = time.perf_counter()
    settings = {"bootstrap_resamples": 1, **options, "learning_rate": rate, "weight_decay": decay, "restarts": 0}
    try:
        tuned = tune(sent.open(), model, method="fine-tune", progress=False, **settings)
    except DivergedError as error:
        return Trial(model, rate, decay, None, None, time.perf_counter() - started, str(error))
    validation, test = tuned.metric("validation").value, tuned.metric("test").value
    return Trial(model, rate, decay, validation, test, time.perf_counter() - started)
