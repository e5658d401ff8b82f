"""`rank()`: features and metrics become a `Ranking` with order, doubt, cost and teachers."""

from hubscout.ranking.rank import rank
from hubscout.ranking.ranking import Ranking, Stage, TaskSummary
from hubscout.ranking.row import Dropped, Failure, LayerScore, Row

__all__ = ["Dropped", "Failure", "LayerScore", "Ranking", "Row", "Stage", "TaskSummary", "rank"]
