"""A saved run, opened: everything that a report is made from, and its ranking as charts and tables look at it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hubscout.errors import RunError
from hubscout.evaluation.correlation import Better
from hubscout.runs.failed_methods import read_failed_methods
from hubscout.runs.race_record import RaceRecord, read_race
from hubscout.runs.ranking import COSTS, CostName, Ranking
from hubscout.runs.ranking_storage import load_ranking, read_reference
from hubscout.runs.row import Row
from hubscout.runs.run_folder import CURVES, RACE_DEPLOYED, RACE_EVIDENCE, RACE_LINES, RACE_WINNER, RANKING, REFERENCES
from hubscout.runs.texts import human_count, human_probability, human_seconds, short_names
from hubscout.runs.tuning_record import TuningRun, find_tuning_runs


@dataclass(frozen=True)
class Cost:
    """A price that models are weighed by."""

    name: CostName
    title: str

    def of(self, row: Row) -> float | None:
        """The price of a model, where it is known and positive: axes are logarithmic."""
        value = getattr(row, COSTS[self.name])
        return float(value) if value and value > 0 else None

    def words(self, value: float) -> str:
        """The price as people write it."""
        return human_seconds(value) if self.name == "latency" else human_count(value)


PRICES = (
    Cost("params", "Parameters"),
    Cost("flops", "FLOPs per sample"),
    Cost("latency", "Latency of one sample"),
)


GROUPS = {
    "best": "best",
    "tied": "statistically tied with the best",
    "rest": "the others",
    "dropped": "dropped early, scored on fewer samples",
}
"""The groups of models as the style sheet and people call them."""


@dataclass(frozen=True)
class View:
    """A ranking with what every section of a report asks of it. Models are numbered in the order of the ranking."""

    ranking: Ranking

    @property
    def rows(self) -> tuple[Row, ...]:
        """The models, best first."""
        return self.ranking.rows

    @property
    def metric(self) -> str:
        """The metric that orders the models."""
        return self.ranking.metrics[0]

    @cached_property
    def names(self) -> list[str]:
        """Short names, in the order of the rows."""
        return short_names([row.identifier for row in self.rows])

    @cached_property
    def short(self) -> dict[str, str]:
        """Short names by identifier."""
        return dict(zip((row.identifier for row in self.rows), self.names, strict=True))

    @property
    def costs(self) -> list[Cost]:
        """The prices that at least two models have."""
        return [cost for cost in PRICES if sum(cost.of(row) is not None for row in self.rows) > 1]

    def group(self, row: Row) -> str:
        """Where a model stands: `best`, `tied` with it, `rest`, or `dropped` on the way.

        Where no model explains the labels, none is the best.
        """
        if row.dropped is not None:
            return "dropped"
        if self.ranking.explains_labels is False:
            return "rest"
        if row.rank == 1:
            return "best"
        return "tied" if row.tied_with_best else "rest"

    def keys(self, models: Iterable[int]) -> list[tuple[str, str]]:
        """What the colours of these models mean, for a legend."""
        there = {self.group(self.rows[model]) for model in models}
        return [(group, words) for group, words in GROUPS.items() if group in there]

    def tip(self, row: Row, *more: str) -> str:
        """What is said of a model when somebody points at it: its name, its score, and `more`."""
        error = f" ± {row.standard_error:.4f}" if row.standard_error is not None else ""
        lines = [*self.naming(row), f"{self.metric} {row.score:.4f}{error}", *more]
        if row.p_best is not None:
            lines.append(f"P(best) {human_probability(row.p_best)}")
        return "\n".join(lines)

    def naming(self, row: Row) -> list[str]:
        """Rank and short name, then the whole identifier where that says more."""
        short = self.short[row.identifier]
        return [f"{row.rank}. {short}"] + ([row.identifier] if short != row.identifier else [])


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run folder holds: a ranking, tuning runs, known results of fine-tuning (`reference`), or some of these.

    Of a race (`race`) the ranking is its evidence, and the tuning runs are the winner and the model to deploy.

    `better` says which way the reference goes. `failed_methods` of a comparison have a reason each.
    """

    folder: Path | None = None
    ranking: Ranking | None = None
    race: RaceRecord | None = None
    tuning: tuple[TuningRun, ...] = ()
    reference: Mapping[str, float] | None = None
    better: Better = "higher"
    failed_methods: Mapping[str, str] = field(default_factory=dict)

    @property
    def view(self) -> View | None:
        """The ranking as a report looks at it; None where there is none or it has no model."""
        return View(self.ranking) if self.ranking is not None and self.ranking.rows else None

    @property
    def title(self) -> str:
        """What the run was about."""
        if self.ranking is not None:
            return self.ranking.task.name
        tasks = [self.race.task if self.race is not None else "", *(run.task for run in self.tuning)]
        folder = self.folder.resolve().name if self.folder is not None else "Run"
        return next(filter(None, tasks), folder)


def open_run(
    folder: str | Path,
    *,
    reference: str | Path | None = None,
    better: Better = "higher",
    tuning: Sequence[str | Path] = (),
) -> Run:
    """Open a run folder for a report.

    Args:
        folder: What `rank`, `race` or `tune` wrote; or a `ranking.json`.
        reference: A file of known results of fine-tuning; it goes before one that lies in the folder.
        better: Which way the reference goes.
        tuning: Further folders of tuning runs.

    Returns:
        The run: what `render` and `write_report` take.

    Raises:
        RunError: There is no run, or its files cannot be read.

    Example:
        >>> open_run("run/", reference="accuracies.csv").title  # doctest: +SKIP
        'pets'
    """
    path = Path(folder)
    if not path.exists():
        raise RunError(f"There is no {path}: give the --out folder of a `hubscout rank` or `hubscout tune`.")
    home = path if path.is_dir() else path.parent
    race = read_race(path) if os.path.lexists(path / RACE_LINES) else None
    ranked = path if race is None else path / RACE_EVIDENCE
    ranking = load_ranking(ranked) if ranked.is_file() or os.path.lexists(ranked / RANKING) else None
    if race is not None:
        # A model to deploy that has won is there twice, and is one run.
        taught = race.deploy and (race.final is None or race.final.model != race.deploy)
        made = [path / name for name in ((RACE_WINNER, RACE_DEPLOYED) if taught else (RACE_WINNER,))]
        runs = [run for place in made if place.is_dir() for run in find_tuning_runs(place)]
    else:
        runs = find_tuning_runs(home) if path.is_dir() else []
    for further in tuning:
        found_there = find_tuning_runs(Path(further)) if Path(further).is_dir() else []
        if not found_there:
            raise RunError(f"{further} holds no tuning run: give the --out folder of a `hubscout tune`.")
        runs += found_there
    if ranking is None and race is None and not runs:
        raise RunError(
            f"The folder {path} holds neither a ranking ({RANKING}) nor a tuning run ({CURVES}): "
            "give the --out folder of a `hubscout rank`, `hubscout race` or `hubscout tune`."
        )
    found = Path(reference) if reference else next((home / n for n in REFERENCES if (home / n).is_file()), None)
    return Run(
        folder=home,
        ranking=ranking,
        race=race,
        tuning=tuple(runs),
        reference=read_reference(found) if found is not None else None,
        better=better,
        failed_methods=read_failed_methods(home) if runs else {},
    )
