"""Transferability scores, by family, in one registry.

A metric sees arrays (features, source logits, targets) and knows nothing of models or tasks.
"""

# Importing the module of a metric registers it.
from hubscout.metrics import discriminant, head_evidence, held_out, leep, logme, separation, static, zoo_relative  # noqa: F401
from hubscout.metrics.metric_registry import (
    METRICS,
    Metric,
    Score,
    available,
    lookup,
    metric,
)
from hubscout.metrics.scoring import combine_zoo, score, score_parts, score_zoo

__all__ = [
    "METRICS",
    "Metric",
    "Score",
    "available",
    "combine_zoo",
    "lookup",
    "metric",
    "score",
    "score_parts",
    "score_zoo",
]
