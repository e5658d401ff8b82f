"""The mathematics: sufficient statistics, spectrum, evidence maximisation, posterior.

Arrays in, dataclasses out: no files of models, no tasks, no torch modules.
"""

from typing import TYPE_CHECKING

from hubscout.evidence.array_logme import logme
from hubscout.evidence.evidence import Evidence
from hubscout.evidence.maximize import maximize_evidence
from hubscout.evidence.posterior import Neighbour, nearest
from hubscout.evidence.profile import convergence_guaranteed, convergence_margin, fixed_point_map
from hubscout.evidence.solvers import SOLVERS
from hubscout.evidence.statistics import Block, Statistics
from hubscout.lazy_names import lazy_names

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

# scikit-learn takes most of a second to import: only who asks for an estimator pays for it.
__getattr__ = lazy_names(__name__, dict.fromkeys(("LogMEClassifier", "LogMERegressor"), f"{__name__}.estimators"))
