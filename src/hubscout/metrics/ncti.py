"""NCTI: how near the features are to neural collapse, beside the other models of the zoo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hubscout.metrics import inputs
from hubscout.metrics.discriminant import fit_discriminant
from hubscout.metrics.metric_registry import metric


def scaled_to_zoo(parts: Mapping[str, Mapping[str, float]], part: str) -> dict[str, float]:
    """A part of every model, with the zoo's least as 0 and its largest as 1; all 0 where they do not differ."""
    values = {model: found[part] for model, found in parts.items()}
    low, high = min(values.values()), max(values.values())
    if high - low <= 1e-12 * max(abs(high), abs(low)):
        return dict.fromkeys(values, 0.0)
    return {model: (value - low) / (high - low) for model, value in values.items()}


def _combine(parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    separation = scaled_to_zoo(parts, "separation")
    centre = scaled_to_zoo(parts, "nearest_centre")
    spread = scaled_to_zoo(parts, "variability")
    return {model: separation[model] + centre[model] - spread[model] for model in parts}


@metric("ncti", level="zoo", combine=_combine)
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
    features = inputs.real_matrix(features, "features")
    ids, classes = inputs.class_ids(targets, len(features))
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
