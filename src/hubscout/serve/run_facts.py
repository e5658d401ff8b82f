"""What was run and what came out, as names and values: for comparisons of runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hubscout.report.saved_run import Run
from hubscout.report.sections.tuning_sections import by_method
from hubscout.runs.ranking import Ranking
from hubscout.runs.row import count_causes
from hubscout.runs.texts import human_seconds, names_by_model
from hubscout.runs.tuning_record import TuningRun

NONE = "–"
RESULTS = ("Run", "Kind", "Task", "Model", "Method", "Teachers", "Metric", "Score", "Error")
"""The columns of every comparison, before those of the settings that differ."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of a comparison: a ranking with its best model, or a method of a tuning with the mean over its seeds."""

    run: str
    kind: str
    task: str
    data: str
    model: str
    method: str = ""
    teachers: str = ""
    metric: str = ""
    score: float | None = None
    error: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[str, ...]:
        """The values under `RESULTS`."""
        numbers = ("" if value is None else f"{value:.6g}" for value in (self.score, self.error))
        return (self.run, self.kind, self.task, self.model, self.method, self.teachers, self.metric, *numbers)


def run_facts(run: Run) -> dict[str, str]:
    """The facts and settings of a run, for a look at two side by side."""
    return _ranking_facts(run.ranking) if run.ranking is not None and not _has_winner(run) else _tuning_facts(run)


def _has_winner(run: Run) -> bool:
    """Whether a run is a race that has tuned its winner: that is its result, not the ranking it began with."""
    return run.race is not None and bool(run.tuning)


def _tuning_facts(run: Run) -> dict[str, str]:
    runs = run.tuning
    facts = {
        "Task": run.title,
        "Data": _several(one.task_fingerprint[:12] for one in runs),
        "Training samples": _several(f"{one.sizes['train']:,}" for one in runs if "train" in one.sizes),
        "Tuned model": _short(one.model for one in runs) or NONE,
        "Methods": _several(one.made_by for one in runs),
        "Teachers": _teachers(runs) or NONE,
        "Seeds": _several(str(one.seed) for one in runs if one.seed is not None),
        "Time": human_seconds(sum(one.seconds or 0.0 for one in runs) or None),
        "Device": _several(str(one.environment.get("device") or "") for one in runs),
        "Started, UTC": min((when for one in runs if (when := _started(one.environment))), default=NONE),
    }
    return {**facts, **_settings(runs)}


def _ranking_facts(ranking: Ranking) -> dict[str, str]:
    facts = {
        "Task": ranking.task.name,
        "Data": ranking.task.fingerprint[:12],
        "Training samples": f"{max((row.n for row in ranking.rows), default=0):,}",
        "Metrics": ", ".join(ranking.metrics),
        "Models": ", ".join(filter(None, (f"{len(ranking)}", count_causes(one.error for one in ranking.failures)))),
        "Best": _short(ranking.identifiers[:1]) or NONE,
        "Complete": "yes" if ranking.complete else "no",
        "Time": human_seconds(ranking.seconds),
        "Device": str(ranking.environment.get("device") or NONE),
        "Started, UTC": _started(ranking.environment) or NONE,
        "Seed": str(ranking.seed),
    }
    return {**facts, **_named(ranking.settings, without=("metrics", "seed"))}


def _started(environment: Mapping[str, Any]) -> str:
    return str(environment.get("started") or "")[:16].replace("T", " ")


def _short(models: Iterable[str]) -> str:
    return ", ".join(names_by_model(model for model in models if model).values())


def _teachers(runs: Sequence[TuningRun]) -> str:
    return _short(teacher for one in runs for teacher in one.teachers)


def _settings(runs: Sequence[TuningRun]) -> dict[str, str]:
    """The arguments of tunings; one that differs among them has all its values."""
    found = [_named(one.arguments, without=("seed",)) for one in runs]
    return {
        key: _several(one.get(key, NONE) for one in found) for key in dict.fromkeys(k for one in found for k in one)
    }


def _named(settings: Mapping[str, Any], without: Sequence[str]) -> dict[str, str]:
    """Settings in words; those that are not set are left out."""
    return {
        key.replace("_", " "): _words(value)
        for key, value in sorted(settings.items())
        if key not in without and value is not None and not isinstance(value, Mapping)
    }


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _several(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value)) or NONE


def results(name: str, run: Run) -> list[Result]:
    """What a run has to show in a table of many runs."""
    ranking = run.ranking
    if ranking is None or _has_winner(run):
        return [_tuned(name, run, runs) for runs in by_method(run.tuning).values()]
    best = ranking.best if ranking.rows else None
    found = Result(
        run=name,
        kind="ranking",
        task=ranking.task.name,
        data=ranking.task.fingerprint,
        model=_short(ranking.identifiers[:1]),
        metric=ranking.metrics[0],
        score=best.score if best else None,
        error=best.standard_error if best else None,
        settings=_named(ranking.settings, without=()) | {"seed": str(ranking.seed)},
    )
    return [found]


def _tuned(name: str, run: Run, runs: Sequence[TuningRun]) -> Result:
    """The runs of a method; its score is on test where that was measured, else on validation."""
    measured = (one.first_metric(split) for split in ("test", "validation") for one in runs)
    split, metric, _ = next(filter(None, measured), ("", "", None))
    values = [one.metrics[split][metric][0] for one in runs if metric and metric in one.metrics.get(split, {})]
    return Result(
        run=name,
        kind="tuning" if run.race is None else "race",
        task=run.title,
        data=runs[0].task_fingerprint,
        model=_short([runs[0].model]),
        method=", ".join(dict.fromkeys(one.made_by for one in runs)),
        teachers=_teachers(runs),
        metric=f"{metric}, {split}" if metric else "",
        score=float(np.mean(values)) if values else None,
        error=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        settings=_settings(runs) | {"seed": _several(str(one.seed) for one in runs if one.seed is not None)},
    )


def sorted_results(found: Iterable[Result]) -> list[Result]:
    """By task and metric, as scores of different ones cannot be compared; the best first, those without one last."""

    def place(one: Result) -> tuple[str, str, float]:
        return one.task, one.metric, np.inf if one.score is None or np.isnan(one.score) else -one.score

    return sorted(found, key=place)


def differing_settings(found: Sequence[Result]) -> list[str]:
    """The settings that are not the same in all runs that have them; rankings and tunings have different ones."""
    keys = dict.fromkeys(key for one in found for key in one.settings)
    having = {key: {one.kind for one in found if key in one.settings} for key in keys}
    return [key for key in keys if len({one.settings.get(key) for one in found if one.kind in having[key]}) > 1]


def as_csv(found: Sequence[Result]) -> str:
    """The comparison as a table for other programs, with every setting."""
    keys = list(dict.fromkeys(key for one in found for key in one.settings))
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow([*(name.lower() for name in RESULTS), "data", *keys])
    for one in found:
        writer.writerow(
            [_harmless(cell) for cell in (*one.cells, one.data, *(one.settings.get(key, "") for key in keys))]
        )
    return file.getvalue()


def _harmless(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell[:1] in {"=", "+", "@", "\t", "\r"} else cell
