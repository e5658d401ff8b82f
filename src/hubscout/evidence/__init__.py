"""The mathematics: sufficient statistics, spectrum, evidence maximisation, posterior.

Arrays in, dataclasses out: no files of models, no tasks, no torch modules.
"""

from typing import TYPE_CHECKING, Any

from hubscout.evidence.array_logme import logme
from hubscout.evidence.evidence import Evidence
from hubscout.evidence.maximize import maximize_evidence
from hubscout.evidence.posterior import Neighbour, nearest
from hubscout.evidence.profile import convergence_guaranteed, convergence_margin, fixed_point_map
from hubscout.evidence.solvers import SOLVERS
from hubscout.evidence.statistics import Block, Statistics

if TYPE_CHECKING:
    from hubscout.evidence.estimators import LogMEClassifier, LogMERegressor

__all__ = [
    "SOLVERS",
    "Block",
    "Evidence",
    "LogMEClassifier",
    "LogMERegressor",
    "Neighbour",
    "Statistics",
    "convergence_guaranteed",
    "convergence_margin",
    "fixed_point_map",
    "logme",
    "maximize_evidence",
    "nearest",
]


def __getattr__(name: str) -> Any:
    # scikit-learn takes most of a second to import: only who asks for an estimator pays for it.
    if name in ("LogMEClassifier", "LogMERegressor"):
        from hubscout.evidence import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'hubscout.evidence' has no attribute {name!r}")
