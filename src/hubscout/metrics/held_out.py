"""How good predictions of samples are that had no part in making them; shared by `knn` and `linear-probe`."""

from __future__ import annotations

import numpy as np

from hubscout.metrics.inputs import varying
from hubscout.metrics.metric_registry import Score


def accuracy(predicted: np.ndarray, ids: np.ndarray) -> Score:
    """Share of right predictions, with the binomial standard error."""
    value = float(np.mean(predicted == ids))
    return Score(value, standard_error=float(np.sqrt(value * (1.0 - value) / len(ids))))


def average_precision(scores: np.ndarray, labels: np.ndarray) -> Score:
    """Mean over labels of the average precision; labels that are the same for all samples are left out."""
    from sklearn.metrics import average_precision_score

    columns = np.flatnonzero(varying(labels))
    each = [float(average_precision_score(labels[:, column], scores[:, column])) for column in columns]
    return Score(float(np.mean(each)), details={"per_target": np.array(each), "columns": columns})


def explained_variance(predicted: np.ndarray, targets: np.ndarray) -> Score:
    """R² averaged over the columns that vary; the standard error is the delta method's for the mean squared error."""
    kept = varying(targets)
    residual = (predicted[:, kept] - targets[:, kept]) ** 2
    total = targets[:, kept].var(axis=0)
    value = 1.0 - residual.mean(axis=0) / total
    # One number per sample: columns of one sample share their noise, so they must not be counted as independent.
    losses = (residual / total).mean(axis=1)
    error = float(losses.std(ddof=1) / np.sqrt(len(losses)))
    return Score(float(value.mean()), standard_error=error, details={"per_target": value})
