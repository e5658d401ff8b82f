"""`rank()`: features and metrics become a `Ranking` with order, uncertainty, cost and teachers."""

from hubscout.ranking.rank_models import rank
from hubscout.ranking.teacher_selection import Teachers, greedy_joint, select_teachers
from hubscout.runs.ranking import Ranking, Stage, TaskSummary
from hubscout.runs.row import Dropped, Failure, LayerScore, Row

__all__ = [
    "Dropped",
    "Failure",
    "LayerScore",
    "Ranking",
    "Row",
    "Stage",
    "TaskSummary",
    "Teachers",
    "greedy_joint",
    "rank",
    "select_teachers",
]
