"""A saved run, opened: everything that a report is made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hubscout.errors import RunError
from hubscout.ranking.ranking import Ranking
from hubscout.ranking.storage import FILE as RANKING_FILE
from hubscout.ranking.storage import load_ranking
from hubscout.report.view import View

REFERENCE_FILES = ("reference.csv", "reference.json")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run folder holds. `reference` is a file of known results of fine-tuning, where one lies in the folder."""

    folder: Path | None = None
    ranking: Ranking | None = None
    reference: Path | None = None

    @property
    def view(self) -> View | None:
        """The ranking as a report looks at it; None where there is none or it has no model."""
        return View(self.ranking) if self.ranking is not None and self.ranking.rows else None

    @property
    def title(self) -> str:
        """What the run was about."""
        return self.ranking.task.name if self.ranking is not None else (self.folder.name if self.folder else "Run")


def open_run(folder: str | Path, *, reference: str | Path | None = None) -> Run:
    """Open a run folder (or a `ranking.json`). A `reference` file goes before one that lies in the folder."""
    path = Path(folder)
    if not path.exists():
        raise RunError(f"There is no {path}: give the --out folder of a `hubscout rank` or `hubscout tune`.")
    home = path if path.is_dir() else path.parent
    ranking = load_ranking(path) if path.is_file() or (path / RANKING_FILE).exists() else None
    if ranking is None:
        raise RunError(f"The folder {path} holds no {RANKING_FILE}: give the --out folder of a `hubscout rank`.")
    found = Path(reference) if reference else next((home / n for n in REFERENCE_FILES if (home / n).exists()), None)
    return Run(folder=home, ranking=ranking, reference=found)
