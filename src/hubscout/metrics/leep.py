"""LEEP: the log expected empirical prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from hubscout.evidence.array_backend import sums_by_id
from hubscout.metrics import inputs
from hubscout.metrics.metric_registry import Score, metric


@metric("leep", needs=("logits",))
def leep(logits: Any, targets: Any) -> Score:
    r"""Mean log-probability of the labels, predicted from the source classes alone.

        P̂(y, z) = (1/n) Σ_{i: y_i = y} θ(x_i)_z        P̂(y | z) = P̂(y, z) / P̂(z)
        LEEP    = (1/n) Σ_i log Σ_z P̂(y_i | z) θ(x_i)_z

    θ(x)_z is the softmax of the source logits. Range: −H(Y) ≤ −H(Y|Z) ≤ LEEP ≤ 0, with H(Y|Z) under P̂(y, z); the
    first bound is reached when the predictions are the same for every sample. Invariant to a constant added to the
    logits of a sample, to the order of rows, of source classes and of target classes. A source class that no sample
    ever gets has P̂(z) = 0 and takes no part (published code divides by zero there, or takes the mean of the
    probabilities in place of their logarithms).

    The standard error is that of the mean, with P̂ taken as given. Cost: O(nZ), Z source classes.

    Nguyen et al., LEEP: A New Measure to Evaluate Transferability of Learned Representations, ICML 2020.

    Args:
        logits: (n, Z) outputs of the source head.
        targets: n class ids.

    Returns:
        The score, in nats per sample.

    Raises:
        InputError: arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> round(leep(np.array([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0]]), np.array([0, 0, 1])).value, 4)
        -0.0002

    """
    logits = inputs.real_matrix(logits, "logits")
    ids, _ = inputs.class_ids(targets, len(logits))
    return log_expected_prediction(scipy.special.softmax(logits, axis=1), ids)


def log_expected_prediction(probabilities: np.ndarray, ids: np.ndarray) -> Score:
    """LEEP for given probabilities θ of the latent classes: of the source head, or of a mixture model."""
    joint = sums_by_id(probabilities, ids, int(ids.max()) + 1)
    marginal = joint.sum(axis=0)
    conditional = np.divide(joint, marginal, out=np.zeros_like(joint), where=marginal > 0)
    # A row's own mass is in the conditional, so its prediction is positive.
    logs = np.log(np.einsum("iz,iz->i", conditional[ids], probabilities))
    return mean_log(logs)


def mean_log(logs: np.ndarray, **details: Any) -> Score:
    """The mean of the log-probabilities of the labels, at most 0, with its standard error."""
    # With 0 first, so that a mean of -0.0 is 0.0.
    return Score(min(0.0, float(logs.mean())), float(logs.std(ddof=1) / np.sqrt(len(logs))), details=details)
