"""ETran: the energy of the features and a discriminant or a regression, beside the other models of the zoo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy

from hubscout.metrics import inputs
from hubscout.metrics.discriminant import fit_discriminant, span, within_shrinkage
from hubscout.metrics.metric_registry import CLASSES, metric
from hubscout.metrics.ncti import scaled_to_zoo

ENERGY_WEIGHT = 0.15
"""Weight of the energy beside the labelled part: that of the authors' published results."""


def _combine(parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    energy, labelled = scaled_to_zoo(parts, "energy"), scaled_to_zoo(parts, "labelled")
    return {model: ENERGY_WEIGHT * energy[model] + (1.0 - ENERGY_WEIGHT) * labelled[model] for model in parts}


@metric("etran", kinds=(*CLASSES, "regression"), level="zoo", combine=_combine)
def etran(features: Any, targets: Any, kind: str = "classification") -> dict[str, float]:
    """Is the data familiar to the model, and do its features tell the labels? Both scaled over the zoo.

        energy    (1/n) Σ_i log Σ_d exp f_id           minus the mean free energy: high for samples of a familiar kind
        labelled  (1/n) Σ_i log p(y_i | f_i)           classes: under a linear discriminant with shrunk covariance
                  −(1/nK) Σ_ik (y_ik − ŷ_ik)² / s_k²   regression: by least squares, each sample predicted from the
                                                       others, in units of the variance s_k² of the column
        ETran = 0.15 energy + 0.85 labelled,           each part scaled so that the zoo spans 0 to 1

    Range: 0 to 1. Relative to the zoo: adding a model may change every value, and values of different zoos are not
    comparable. The energy depends on the scale, shift and rotation of the features, the labelled part on none of them
    (the regression one is fitted to the principal components with 80% of the variance, n/2 at most). Both do not
    depend on the order of rows and classes.

    Published code solves the discriminant with a routine for symmetric matrices on one that is not, measures the
    regression on the samples it was fitted to, so that at n ≤ D every model has an error of 0, and averages the energy
    of the 0.5% lowest samples; the discriminant here is shrunk as Ledoit and Wolf say. This function gives the parts
    of one model; `score_zoo` the scores. Cost: O(nD² + D³).

    Gholami et al., ETran: Energy-Based Transferability Estimation, ICCV 2023.

    Args:
        features: (n, D) features of one model.
        targets: of the rows: class ids, or columns of numbers.
        kind: "classification" or "regression".

    Returns:
        The two parts, `energy` and `labelled`.

    Raises:
        InputError: arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 50)
        >>> sorted(etran(np.random.default_rng(0).normal(size=(100, 3)), labels))
        ['energy', 'labelled']

    """
    features = inputs.real_matrix(features, "features")
    if kind == "classification":
        ids, _ = inputs.class_ids(targets, len(features))
        labelled = _log_probability(features, ids)
    else:
        labelled = -_left_out_error(features, inputs.real_columns(targets, len(features)))
    return {"energy": float(scipy.special.logsumexp(features, axis=1).mean()), "labelled": labelled}


def _log_probability(features: np.ndarray, ids: np.ndarray) -> float:
    rows = span(features)
    if not rows.shape[1] or not rows.any():
        return float(np.log(np.bincount(ids) / len(ids))[ids].mean())
    shrinkage = max(within_shrinkage(features, ids), 1e-10)
    model = fit_discriminant(rows, ids, shrinkage, dimension=features.shape[1])
    return float(model.log_probabilities(rows)[np.arange(len(ids)), ids].mean())


def _left_out_error(features: np.ndarray, columns: np.ndarray) -> float:
    columns = columns[:, inputs.varying(columns)]
    columns = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    rows, variances = inputs.principal_components(features, energy=0.8, at_most=max(len(features) // 2, 1))
    # Orthonormal columns, the constant among them: the hat matrix is their outer product.
    basis = np.column_stack([np.full(len(rows), len(rows) ** -0.5), rows / np.sqrt(variances * (len(rows) - 1))])
    residuals = columns - basis @ (basis.T @ columns)
    leverage = (basis**2).sum(axis=1, keepdims=True)
    # A sample of leverage 1 cannot be predicted from the others at all: its prediction is the mean, 0.
    alone = leverage > 1.0 - 1e-9
    left_out = np.where(alone, columns, residuals / np.where(alone, 1.0, 1.0 - leverage))
    return float((left_out**2).mean())
