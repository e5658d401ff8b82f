"""Tuning runs on disk: the results of `tuning.json` and the curves of `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hubscout.errors import RunError
from hubscout.runs.evaluation_record import EvaluationRecord, read_evaluation
from hubscout.runs.files import append_line, finite, read_json, read_lines, write_lines
from hubscout.runs.record_types import converted, in_version, is_number, record_of, write_record
from hubscout.runs.run_folder import CURVES, TRIALS, TUNING

FORM = "hubscout-tuning"
VERSION = 2

Interval = tuple[float, float, float]
"""A value and the ends of its interval."""
Metrics = Mapping[str, Mapping[str, Interval]]
"""Split → metric → value."""
PRIMARY = "primary metric"
"""What a comparison's trials measured; they do not say its name."""
DEEPEST = 3
"""How many folders below the run folder tuning runs are looked for: METHOD/SEED and one above."""


@dataclass(frozen=True, kw_only=True)
class TuningRecord:
    """One tuning of one model. `merged_metrics` are of the network in the folder where that is not the tuned one."""

    task: str = ""
    task_fingerprint: str = ""
    kind: str = ""
    model: str = ""
    teachers: tuple[str, ...] = ()
    method: str = ""
    metrics: Metrics = field(default_factory=dict)
    merged_metrics: Metrics | None = None
    best_step: int | None = None
    steps: int = 0
    notes: tuple[str, ...] = ()
    warning: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Samples of each split."""
    guess: Mapping[str, float] = field(default_factory=dict)
    """By split, the primary metric of saying the same of every input."""
    seconds: float | None = None
    """What the run took, since it was last resumed."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Versions, hardware, command line and time of the start."""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def saved_metrics(self) -> Metrics:
        """What the network in the folder achieves."""
        return self.metrics if self.merged_metrics is None else self.merged_metrics

    @property
    def is_linear_probe(self) -> bool:
        """Whether the model is the linear probe of its frozen features: nothing was trained, or came up to it."""
        return self.best_step == 0

    @property
    def made_by(self) -> str:
        """The method that made the model, in a list of runs."""
        return "linear probe" if self.is_linear_probe else self.method

    def first_metric(self, *splits: str) -> tuple[str, str, Interval] | None:
        """The metric that validation goes by on the first of these splits with results: split, name and value."""
        return next(((split, *one) for split in splits for one in self.metrics.get(split, {}).items()), None)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        merged = None if self.merged_metrics is None else plain_metrics(self.merged_metrics)
        return asdict(self) | {
            "teachers": list(self.teachers),
            "metrics": plain_metrics(self.metrics),
            "merged_metrics": merged,
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, record: Any, *, origin: str = TUNING) -> TuningRecord:
        """The inverse of what `write_tuning` puts into the file; a `RunError` names what is wrong."""
        told = dict(in_version(record, FORM, VERSION, origin=origin))
        for name in ("metrics", "merged_metrics"):
            if told.get(name) is not None:
                told[name] = read_metrics(told[name], origin=f"{origin}: {name}")
        return record_of(cls, told, origin)


def plain_metrics(metrics: Metrics) -> dict[str, Any]:
    """Metrics as JSON has them."""
    return {
        split: {name: dict(zip(("value", "low", "high"), interval, strict=True)) for name, interval in found.items()}
        for split, found in metrics.items()
    }


def read_metrics(record: Any, *, origin: str) -> dict[str, dict[str, Interval]]:
    """The inverse of `plain_metrics`."""
    try:
        return {
            split: {name: (one["value"], one["low"], one["high"]) for name, one in found.items()}
            for split, found in record.items()
        }
    except (TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{origin} cannot be read: {error!r}.") from error


def write_tuning(folder: Path, record: TuningRecord, curves: Iterable[Mapping[str, Any]]) -> None:
    """What was run and how it went, without the weights: what a report is made from."""
    write_record(folder / TUNING, FORM, VERSION, record.to_json(), indent=1)
    write_lines(folder / CURVES, curves)


def read_tuning(folder: Path) -> TuningRecord:
    """The record of the tuned model in a folder."""
    path = folder / TUNING
    if not path.is_file():
        raise RunError(f"{folder} is no folder of a tuned model: it has no {TUNING}. `hubscout tune --out` makes one.")
    return TuningRecord.from_json(read_json(path), origin=str(path))


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a linear model on the frozen features of `model` achieves: split → metric → value."""

    model: str
    metrics: Mapping[str, Mapping[str, float]]

    def metric(self, split: str) -> float | None:
        """The metric that validation goes by, on a split; None where it has no samples."""
        return next(iter(self.metrics.get(split, {}).values()), None)


@dataclass(frozen=True, kw_only=True)
class TuningRun(TuningRecord):
    """A record with its curves. `metrics` are empty while the run is going on.

    `validation` has one entry per validation, `losses` one per step.
    """

    name: str
    seed: int | None = None
    validation: tuple[Mapping[str, Any], ...] = ()
    losses: tuple[Mapping[str, Any], ...] = ()
    probes: Mapping[str, Probe] = field(default_factory=dict)
    """Linear probes of frozen features: of the `model` itself, and of the best `teacher`."""
    evaluation: EvaluationRecord | None = None
    """What the model makes of the test samples; None for runs of earlier versions."""

    @property
    def primary(self) -> str | None:
        """The metric that validation goes by: the first of those measured."""
        for line in self.validation:
            return next(iter(line["metrics"]), None)
        for found in self.metrics.values():
            return next(iter(found), None)
        return None


@dataclass
class Curves:
    """The lines of `metrics.jsonl`, on disk where there is a folder; kept in memory as the run's curves."""

    path: Path | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)

    def resume(self, lines: list[dict[str, Any]]) -> None:
        """Go back to what was written up to a checkpoint: later lines will be written again."""
        self.lines = list(lines)
        if self.path is not None:
            write_lines(self.path, self.lines)

    def announce(self, **values: Any) -> None:
        """A line for those who watch the file: when the run began and how far it goes. It is no part of the curves."""
        if self.path is not None:
            append_line(self.path, {"event": "started", **values})

    def add(self, kind: str, **values: Any) -> None:
        """One line."""
        line = {"event": kind, **finite(values)}
        self.lines.append(line)
        if self.path is not None:
            append_line(self.path, line)


def find_tuning_runs(folder: Path) -> list[TuningRun]:
    """The tuning runs in a folder and in the folders below it, in the order of their names.

    The trials of a comparison (`tune --method all`) whose curves were not kept are runs with results alone.
    """
    runs = [_read_run(place, name) for place, name in _places(folder, "", DEEPEST)]
    known = {(run.method, run.seed) for run in runs}
    return runs + [run for run in read_trials(folder / TRIALS) if (run.method, run.seed) not in known]


def _places(folder: Path, name: str, deeper: int) -> Iterable[tuple[Path, str]]:
    if (folder / TUNING).is_file() or (folder / CURVES).is_file():
        yield folder, name or folder.name
        return
    if deeper == 0:
        return
    for child in sorted(folder.iterdir()):
        # A link may lead out of the run folder, or in a circle.
        if child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
            yield from _places(child, f"{name}/{child.name}" if name else child.name, deeper - 1)


def _read_run(folder: Path, name: str) -> TuningRun:
    """Read one folder. A run that is still going on has curves only; its last line may be half written."""
    known = (folder / TUNING).is_file()
    record = read_tuning(folder) if known else TuningRecord()
    run = tuning_run(name, record, read_lines(folder / CURVES, tolerant=True), origin=str(folder / TUNING))
    return replace(run, evaluation=read_evaluation(folder)) if known else run


def tuning_run(
    name: str, record: TuningRecord, lines: Iterable[Mapping[str, Any]], *, origin: str = "This record"
) -> TuningRun:
    """A run out of its record and the lines of its curves."""
    lines = list(lines)
    metrics = record.saved_metrics
    if not metrics:
        result = next((line.get("metrics") or {} for line in lines if line.get("event") == "result"), {})
        metrics = read_metrics(result, origin=f"{origin}: metrics")
    probes: Mapping[str, Any] = next(
        (line["probes"] for line in reversed(lines) if isinstance(line.get("probes"), Mapping)), {}
    )
    method = record.method or name.partition("/")[0]
    run = TuningRun(
        **{**vars(record), "method": method, "metrics": metrics, "merged_metrics": None},
        name=name,
        seed=record.arguments.get("seed"),
        validation=tuple(line for line in lines if line.get("event") == "validation" and _drawable(line, "metrics")),
        losses=tuple(line for line in lines if line.get("event") == "step" and _drawable(line, "parts")),
        probes={of: probe for of, told_of in probes.items() if (probe := _probe(told_of)) is not None},
    )
    return converted(TuningRun, run, origin)


def read_trials(path: Path) -> list[TuningRun]:
    """The finished trials of a comparison of methods; lines of another kind of search are passed over."""
    runs = []
    for line in read_lines(path, tolerant=True):
        values = {split: line.get(split) for split in ("test", "validation")}
        if "method" not in line or not _numbers(values) or not isinstance(line.get("seed"), int | None):
            continue
        told: Any = line.get("run")
        told = told if isinstance(told, dict) else {}
        runs.append(
            TuningRun(
                name=f"{line['method']}-{line.get('seed')}",
                method=str(line["method"]),
                model=str(told.get("model") or ""),
                teachers=_texts(told.get("teachers")),
                seed=line.get("seed"),
                metrics={split: {PRIMARY: (v, v, v)} for split, v in values.items() if v is not None},
            )
        )
    return runs


def _numbers(values: Any) -> bool:
    return isinstance(values, Mapping) and bool(values) and all(is_number(value) for value in values.values())


def _drawable(line: Mapping[str, Any], values: str) -> bool:
    """Whether a line of a curve has numbers, and a place on the axis for them."""
    return _numbers(line.get(values)) and is_number(line.get("step")) and is_number(line.get("epoch", 0))


def _probe(told: Any) -> Probe | None:
    """A probe as a line has it; None where it makes no sense."""
    try:
        return record_of(Probe, told, "probe")
    except (RunError, AttributeError):
        return None


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in values) if isinstance(values, list | tuple) else ()
