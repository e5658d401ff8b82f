"""LogME, read from the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubscout.metrics.metric_registry import KINDS, Score, metric

if TYPE_CHECKING:
    from hubscout.evidence import Evidence


@metric("logme", kinds=KINDS, from_evidence=True)
def logme(evidence: Evidence) -> Score:
    """Log of the maximum evidence of the labels, given the features, per sample and averaged over targets.

        LogME = (1/nC) Σ_c max_{α,β} log ∫ N(w | 0, α⁻¹I) N(y_c | Fw, β⁻¹I) dw

    F are the features, y_c the c-th target column (one-hot for classes). Range: from the score of the null model (no
    features) upwards, without a bound. Invariant to rotation and common scale of the features, to columns of zeros,
    to the order of rows and of targets; duplicated columns change nothing. Works from `statistics` alone, without any
    features kept; where both are given the statistics are used. The mathematics is in `hubscout.evidence`; the whole
    `Evidence` is in `score.evidence`. The standard error is a block jackknife. Cost: O(nD² + D³), with n and D
    exchanged where n < D. The option `center` takes the means away first; None does so for regression.

    You et al., LogME: Practical Assessment of Pre-trained Models for Transfer Learning, ICML 2021, and Ranking and
    Tuning Pre-trained Models, JMLR 2022.

    Args:
        evidence: what `hubscout.logme` returns.

    Returns:
        The score; `score.evidence` is the whole evidence.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 20)
        >>> features = np.eye(2)[labels] + 0.1 * np.random.default_rng(0).normal(size=(40, 2))
        >>> from hubscout.metrics import score
        >>> found = score("logme", features=features, targets=labels, kind="classification")
        >>> found.value == found.evidence.score and found.value > found.evidence.null_score
        True

    """
    return Score(evidence.score, standard_error=evidence.standard_error, details={"evidence": evidence})
