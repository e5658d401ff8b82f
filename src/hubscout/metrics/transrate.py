"""TransRate: the mutual information of features and labels, measured in coding rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.metrics import inputs
from hubscout.metrics.metric_registry import metric


@metric("transrate")
def transrate(
    features: Any, targets: Any, *, distortion: float = 1e-4, normalise: bool = True, centre_classes: bool = False
) -> float:
    """Coding rate of all features less the mean coding rate within the classes.

        R(Z, ε) = ½ log det(I + ZᵀZ / (nε))        TrR = R(Z, ε) − Σ_c (n_c/n) R(Z_c, ε)

    Z are the features with the overall mean taken off, Z_c the rows of class c, ε the distortion. Range: TrR ≥ 0,
    because log det is concave. Invariant to shifts and rotations, to columns of zeros, to the order of rows and to
    relabelling. `normalise` scales Z to a total variance of 1, without which the value grows with the scale of the
    features and models are not comparable. Classes weigh n_c/n, as the definition has it; published code gives all
    classes the same weight, which can make the value negative. Constant features give 0.

    The definition takes the overall mean off Z_c, not the mean of the class, and so cannot tell two classes of equal
    size apart by their means: for those it sees the difference in shape alone. `centre_classes=True` takes off the
    class means, which makes the second term the coding rate within classes in the strict sense.
    Cost: O(nD² + D³), with n and D exchanged where n < D.

    Huang et al., Frustratingly Easy Transferability Estimation, ICML 2022.

    Args:
        features: (n, D) features.
        targets: n class ids.
        distortion: ε, above 0.
        normalise: whether the features are brought to a total variance of 1.
        centre_classes: whether each class is taken about its own mean.

    Returns:
        The score.

    Raises:
        InputError: a distortion that is not above 0, or arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1, 2], 50)
        >>> noise = np.random.default_rng(0).normal(size=(150, 4))
        >>> transrate(np.eye(4)[labels] + 0.1 * noise, labels) > transrate(noise, labels)
        True

    """
    features = inputs.real_matrix(features, "features")
    ids, classes = inputs.class_ids(targets, len(features))
    if not distortion > 0:
        raise InputError(f"distortion must be greater than 0; got {distortion!r}.")
    centred = features - features.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=1).mean())
    if size <= 1e-14 * np.abs(features).max():
        return 0.0
    if normalise:
        centred /= size
    rows = centred - inputs.class_means(centred, ids)[ids] if centre_classes else centred
    within = sum(
        float(np.mean(ids == label)) * _coding_rate(rows[ids == label], distortion) for label in range(classes)
    )
    return max(_coding_rate(centred, distortion) - within, 0.0)


def _coding_rate(rows: np.ndarray, distortion: float) -> float:
    n, width = rows.shape
    gram = rows @ rows.T if n < width else rows.T @ rows
    gram /= n * distortion
    gram.flat[:: len(gram) + 1] += 1.0
    return 0.5 * float(np.linalg.slogdet(gram)[1])
