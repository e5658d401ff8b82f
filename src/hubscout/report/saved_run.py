"""A saved run, opened: everything that a report is made from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubscout.errors import RunError
from hubscout.evaluation.correlation import Better
from hubscout.report.view import View
from hubscout.runs.file_names import CURVES, RACE_DEPLOYED, RACE_EVIDENCE, RACE_LINES, RACE_WINNER, RANKING, REFERENCES
from hubscout.runs.race_record import RaceRecord, read_race
from hubscout.runs.ranking import Ranking
from hubscout.runs.ranking_storage import load_ranking
from hubscout.runs.reference_file import read_reference
from hubscout.runs.tuning_record import TuningRun, find_tuning_runs


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run folder holds: a ranking, tuning runs, known results of fine-tuning (`reference`), or some of these.

    Of a race (`race`) the ranking is its evidence, and the tuning runs are the winner and the model to deploy.

    `better` says which way the reference goes.
    """

    folder: Path | None = None
    ranking: Ranking | None = None
    race: RaceRecord | None = None
    tuning: tuple[TuningRun, ...] = ()
    reference: Mapping[str, float] | None = None
    better: Better = "higher"

    @property
    def view(self) -> View | None:
        """The ranking as a report looks at it; None where there is none or it has no model."""
        return View(self.ranking) if self.ranking is not None and self.ranking.rows else None

    @property
    def title(self) -> str:
        """What the run was about."""
        if self.ranking is not None:
            return self.ranking.task.name
        if self.race is not None and self.race.task:
            return self.race.task
        named = next((run.task for run in self.tuning if run.task), "")
        return named or (self.folder.resolve().name if self.folder is not None else "Run")


def open_run(
    folder: str | Path,
    *,
    reference: str | Path | None = None,
    better: Better = "higher",
    tuning: Sequence[str | Path] = (),
) -> Run:
    """Open a run folder (or a `ranking.json`).

    A `reference` file goes before one that lies in the folder; `tuning` are further folders of tuning runs.
    """
    path = Path(folder)
    if not path.exists():
        raise RunError(f"There is no {path}: give the --out folder of a `hubscout rank` or `hubscout tune`.")
    home = path if path.is_dir() else path.parent
    race = read_race(path) if os.path.lexists(path / RACE_LINES) else None
    ranked = path if race is None else path / RACE_EVIDENCE
    ranking = load_ranking(ranked) if ranked.is_file() or os.path.lexists(ranked / RANKING) else None
    if race is not None:
        made = (RACE_WINNER, RACE_DEPLOYED) if race.deploy else (RACE_WINNER,)
        runs = [run for name in made for run in _runs_in(path / name)]
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
    )


def _runs_in(folder: Path) -> list[TuningRun]:
    return find_tuning_runs(folder) if folder.is_dir() else []
