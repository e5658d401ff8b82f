"""Rank the pre-trained models of a hub on your labelled data, then tune the one you may deploy.

Names are looked up on first use, so that `import hubscout` stays fast and pulls in no deep-learning library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubscout.lazy_names import lazy_names

if TYPE_CHECKING:
    from hubscout.checking import DataCheck, check
    from hubscout.evidence import Evidence, LogMEClassifier, LogMERegressor, logme
    from hubscout.hubs import Backbone, list_models, load
    from hubscout.racing import Race, race
    from hubscout.ranking import Ranking, rank, select_teachers
    from hubscout.tasks import Task, open_task
    from hubscout.tuning import Tuned, soup, tune

__version__ = "0.1.0"

_FOLDERS = {
    "checking": "DataCheck check",
    "evidence": "Evidence LogMEClassifier LogMERegressor logme",
    "hubs": "Backbone list_models load",
    "racing": "Race race",
    "ranking": "Ranking rank select_teachers",
    "tasks": "Task open_task",
    "tuning": "Tuned soup tune",
}
_HOMES = {name: f"hubscout.{folder}" for folder, names in _FOLDERS.items() for name in names.split()}

__all__ = [
    "Backbone",
    "DataCheck",
    "Evidence",
    "LogMEClassifier",
    "LogMERegressor",
    "Race",
    "Ranking",
    "Task",
    "Tuned",
    "__version__",
    "check",
    "list_models",
    "load",
    "logme",
    "open_task",
    "race",
    "rank",
    "select_teachers",
    "soup",
    "tune",
]


__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
