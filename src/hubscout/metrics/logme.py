"""LogME, read from the evidence, and LogME with a prior for larger networks."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from hubscout.metrics.metric_registry import KINDS, Score, metric
from hubscout.metrics.static import flops

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


NATS = 0.1
"""Of a factor e in compute. Chosen by leaving out one data set at a time, see experiments/classification."""


@metric("logme-capacity", needs=("card",), kinds=KINDS, from_evidence=True)
def logme_capacity(evidence: Evidence, card: Any, *, nats: float = NATS) -> Score:
    """LogME plus 0.1 nats for every factor e in multiply-adds: evidence, and a prior for networks that can adapt.

        score = LogME + 0.1 · log(flops / 10⁹)

    LogME judges features as they are, and fine-tuning moves them: a small network with good features is overtaken by a
    larger one. Where the evidence says much (models that know the data lie nats above others) it decides; where it says
    little the size does. The second term has the units of the first, nats per sample, and acts as a prior over models.

    Range: unbounded both ways. Invariant as LogME is; the compute is of one sample at the model's own input size, so
    the same network at a larger input scores higher. The standard error is LogME's. Cost: LogME's.

    Not recommended: the weight was fitted to 17 convolutional networks on five small image sets and did not carry over
    to sets that it was not fitted on, where LogME alone was better (experiments/race). Use `logme`, or a race.

    LogME: You et al., ICML 2021; the capacity term is this project's own, measured in experiments/classification.

    Args:
        evidence: what `hubscout.logme` returns.
        card: what is known of the model: a `ModelCard` or a mapping with `flops`.
        nats: the weight of the second term.

    Returns:
        The score, with LogME's standard error.

    Raises:
        InputError: the card does not tell the multiply-adds.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 20)
        >>> features = np.eye(2)[labels] + 0.1 * np.random.default_rng(0).normal(size=(40, 2))
        >>> from hubscout.evidence import logme
        >>> found = logme(features, labels)
        >>> small, large = (logme_capacity(found, {"flops": 10**power}).value for power in (8, 9))
        >>> round(large - small, 3)
        0.23

    """
    bonus = nats * math.log(flops(card) / 1e9)
    # The pseudo-values of the jackknife rise with the score.
    raised = dataclasses.replace(evidence, block_scores=evidence.block_scores + bonus)
    return Score(evidence.score + bonus, standard_error=evidence.standard_error, details={"evidence": raised})
