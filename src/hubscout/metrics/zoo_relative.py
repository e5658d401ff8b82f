"""NCTI and ETran: scores of a model beside the other models of the zoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy

from hubscout.metrics import inputs
from hubscout.metrics.discriminant import fit_discriminant, span, within_shrinkage
from hubscout.metrics.metric_registry import CLASSES, metric


def scaled_to_zoo(parts: Mapping[str, Mapping[str, float]], part: str) -> dict[str, float]:
    """A part of every model, with the zoo's least as 0 and its largest as 1; all 0 where they do not differ."""
    values = {model: found[part] for model, found in parts.items()}
    low, high = min(values.values()), max(values.values())
    if high - low <= 1e-12 * max(abs(high), abs(low)):
        return dict.fromkeys(values, 0.0)
    return {model: (value - low) / (high - low) for model, value in values.items()}


def _sum_of_parts(**weights: float) -> Callable[[Mapping[str, Mapping[str, float]]], dict[str, float]]:
    """The way from the parts of all models to their values: each part scaled to the zoo, weighted and added up."""

    def combine(parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        scaled = {part: scaled_to_zoo(parts, part) for part in weights}
        return {model: sum(weights[part] * scaled[part][model] for part in weights) for model in parts}

    return combine


@metric("ncti", level="zoo", combine=_sum_of_parts(separation=1.0, nearest_centre=1.0, variability=-1.0))
def ncti(features: Any, targets: Any, *, components: int = 64) -> dict[str, float]:
    """Distance from neural collapse, the state that training ends in: three parts, each scaled over the zoo.

        separation      ‖Z‖_*                 nuclear norm of the centred discriminant coordinates: seen as the
                                              low-dimensional configuration that fully trained features reach
        nearest_centre  (1/n) Σ_i p(y_i | f_i)    probability of the right class under the discriminant
        variability     log Σ_c ‖P_c‖_*       P_c, the class probabilities of the samples of class c: small when the
                                              samples of a class agree
        NCTI = separation + nearest_centre − variability,    each part scaled so that the zoo spans 0 to 1

    Z and p come from a linear discriminant with shrinkage λ = exp(−Σ of the 32 leading variances) on the first
    `components` principal components. Range: −1 to 2. Relative to the zoo: adding a model may change every value, and
    values of different zoos are not comparable. A part in which the models do not differ, as for a zoo of one, is 0.
    Each part is invariant to shifts and rotations, to the order of rows and to relabelling. This function gives the
    parts of one model; `score_zoo` the scores. Cost: O(nD² + D³).

    Wang et al., How Far Pre-trained Models Are from Neural Collapse on the Target Dataset Informs their
    Transferability, ICCV 2023.

    Args:
        features: (n, D) features of one model.
        targets: n class ids.
        components: how many principal components at most.

    Returns:
        The three parts.

    Raises:
        InputError: arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 50)
        >>> sorted(ncti(np.random.default_rng(0).normal(size=(100, 3)), labels))
        ['nearest_centre', 'separation', 'variability']

    """
    features, ids, classes = inputs.with_classes(features, targets)
    rows, variances = inputs.principal_components(features, at_most=inputs.whole_number(components, "components"))
    if not len(variances):
        rows, variances = np.zeros((len(ids), 1)), np.zeros(1)
    # The floor keeps the covariance invertible where a class has fewer samples than there are components.
    shrinkage = float(max(np.exp(-variances[:32].sum()), 1e-10))
    model = fit_discriminant(rows, ids, shrinkage, dimension=rows.shape[1])
    probabilities = np.exp(model.log_probabilities(rows))
    coordinates = model.project(rows)
    nuclear = sum(np.linalg.norm(probabilities[ids == label], ord="nuc") for label in range(classes))
    return {
        "separation": float(np.linalg.norm(coordinates, ord="nuc")) if coordinates.size else 0.0,
        "nearest_centre": float(probabilities[np.arange(len(ids)), ids].mean()),
        "variability": float(np.log(nuclear)),
    }


ENERGY_WEIGHT = 0.15
"""Weight of the energy beside the labelled part: that of the authors' published results."""


@metric(
    "etran",
    kinds=(*CLASSES, "regression"),
    level="zoo",
    combine=_sum_of_parts(energy=ENERGY_WEIGHT, labelled=1.0 - ENERGY_WEIGHT),
)
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
    values = inputs.values_of(targets, len(features), kind)
    classes = kind == "classification"
    labelled = _log_probability(features, values) if classes else -_left_out_error(features, values)
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
