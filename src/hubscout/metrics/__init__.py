"""Transferability scores, one per file, in one registry.

A metric sees arrays (features, source logits, targets) and knows nothing of models or tasks.
"""

# Importing the module of a metric registers it.
from hubscout.metrics import (  # noqa: F401
    capacity,
    etran,
    gbc,
    hscore,
    knn,
    laplace,
    leep,
    linear_probe,
    logme,
    nce,
    ncti,
    nleep,
    pactran,
    parc,
    sfda,
    static,
    transrate,
)
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
