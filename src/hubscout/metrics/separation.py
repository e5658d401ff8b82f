"""GBC, TransRate and PARC: how far classes lie apart, and whether samples that are alike have like labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from hubscout.errors import InputError, check_choice
from hubscout.metrics import inputs
from hubscout.metrics.metric_registry import CLASSES, metric

COVARIANCES = ("spherical", "diagonal")
VARIANCE_FLOOR = 1e-4
"""Least variance of a class, as a share of the mean variance of all features."""


@metric("gbc")
def gbc(features: Any, targets: Any, *, covariance: str = "spherical", components: int = 64) -> float:
    """How much the classes overlap when each is a Gaussian, counted over all pairs, negative.

        GBC = −Σ_{a≠b} exp(−B(a, b))
        B(a, b) = ⅛ (μ_a − μ_b)ᵀ Σ⁻¹ (μ_a − μ_b) + ½ log( det Σ / √(det Σ_a det Σ_b) ),      Σ = (Σ_a + Σ_b) / 2

    μ_a and Σ_a are the mean and covariance of class a in the leading principal components: `"spherical"`, one
    variance per class, or `"diagonal"`. Range: −C(C−1) ≤ GBC ≤ 0; 0 when no two classes overlap. Invariant to shifts,
    rotations and one common scale, to the order of rows and to relabelling. A class of one sample has no variance of
    its own: variances are at least 1e-4 of the mean variance of all features, a share of it and not a fixed number,
    which would make the score depend on the scale. The determinant of a spherical covariance is that of k
    dimensions; published code counts one. Constant features give −C(C−1), the value of no separation at all.
    Cost: O(nD² + D³) for the components, O(C²k) for the pairs.

    Pándy et al., Transferability Estimation using Bhattacharyya Class Separability, CVPR 2022.

    Args:
        features: (n, D) features.
        targets: n class ids.
        covariance: "spherical" or "diagonal".
        components: how many principal components at most.

    Returns:
        The score.

    Raises:
        InputError: another covariance, or arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> gbc(np.array([[0.0], [0.1], [9.0], [9.1]]), np.array([0, 0, 1, 1])) > -1e-6
        True

    """
    features, ids, classes = inputs.with_classes(features, targets)
    check_choice("covariance", covariance, COVARIANCES)
    reduced, variances = inputs.principal_components(features, at_most=inputs.whole_number(components, "components"))
    if not len(variances):
        return -float(classes * (classes - 1))

    counts = np.bincount(ids)[:, None]
    means = inputs.class_means(reduced, ids)
    squares = inputs.class_means((reduced - means[ids]) ** 2, ids) * counts / np.maximum(counts - 1, 1)
    if covariance == "spherical":
        squares = np.broadcast_to(squares.mean(axis=1, keepdims=True), squares.shape)
    squares = np.maximum(squares, VARIANCE_FLOOR * variances.mean())

    total = 0.0
    logs = 0.5 * np.log(squares).sum(axis=1)
    for label in range(classes):
        pooled = 0.5 * (squares + squares[label])
        distances = 0.125 * ((means - means[label]) ** 2 / pooled).sum(axis=1)
        distances += 0.5 * (np.log(pooled).sum(axis=1) - logs - logs[label])
        total += np.exp(-np.delete(np.maximum(distances, 0.0), label)).sum()
    return -float(total)


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
    features, ids, classes = inputs.with_classes(features, targets)
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


@metric("parc", kinds=(*CLASSES, "multilabel"))
def parc(
    features: Any,
    targets: Any,
    kind: str = "classification",
    *,
    components: int | None = 32,
    max_samples: int = 2000,
    seed: int = 0,
) -> float:
    """Rank correlation of the distances between samples in features and in labels.

        PARC = 100 · spearman( {1 − r(f_i, f_j)}_{i<j}, {1 − r(y_i, y_j)}_{i<j} )

    r is the correlation of two samples over the columns, f the standardised features, y the one-hot labels (0/1 rows
    for multilabel). Range: −100 to 100. Invariant to shifts, to one common scale, to the order of rows up to
    `max_samples` (above that a stratified sample of that size is drawn with `seed`, because the cost is O(n²)) and to
    relabelling; with `components` also to rotation.

    The features are first reduced to `components` principal ones, as the paper does; None keeps them all. The sign of
    a principal component is arbitrary, and the mean over components with it, so that r is there the cosine, which
    does not depend on signs; for the plain features it is Pearson's. Constant features, or label rows that are all
    alike, correlate with nothing and give 0. Cost: O(nD² + D³ + n² log n).

    Bolya, Mittapalli, Hoffman, Scalable Diverse Model Selection for Accessible Transfer Learning, NeurIPS 2021.

    Args:
        features: (n, D) features.
        targets: of the rows: class ids or a 0/1 matrix.
        kind: "classification" or "multilabel".
        components: how many principal components; None is the features as they are.
        max_samples: above so many samples, a sample of them.
        seed: of that sample.

    Returns:
        The score.

    Raises:
        InputError: too few samples, or arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 10)
        >>> round(parc(np.eye(2)[labels], labels))
        100

    """
    features = inputs.real_matrix(features, "features")
    limit = inputs.whole_number(max_samples, "max_samples", least=3)
    labels, ids = inputs.values_of(targets, len(features), kind), None
    if kind == "classification":
        labels, ids = inputs.one_hot(labels), labels
    if len(features) < 3:
        raise InputError(f"features must have at least three rows to have distances to rank; got {len(features)}.")
    if len(features) > limit:
        chosen = _sample(ids, len(features), limit, seed)
        features, labels = features[chosen], labels[chosen]

    if components is None:
        standard = features - features.mean(axis=0)
        deviation = standard.std(axis=0)
        standard = standard[:, deviation > 1e-12 * max(deviation.max(), np.finfo(float).tiny)]
        coordinates = standard / standard.std(axis=0) if standard.size else standard
        coordinates = coordinates - coordinates.mean(axis=1, keepdims=True) if standard.size else standard
    else:
        reduced, variances = inputs.principal_components(
            features, at_most=inputs.whole_number(components, "components")
        )
        coordinates = reduced / np.sqrt(variances)
    if not coordinates.shape[1]:
        return 0.0
    pairs = np.triu_indices(len(features), 1)
    return 100.0 * _spearman(_cosines(coordinates)[pairs], _cosines(labels - labels.mean(axis=1, keepdims=True))[pairs])


def _sample(ids: np.ndarray | None, n: int, limit: int, seed: int) -> np.ndarray:
    from sklearn.model_selection import train_test_split

    everything = np.arange(n)
    stratify = ids
    if ids is not None and (np.bincount(ids).min() < 2 or ids.max() + 1 > min(limit, n - limit)):
        stratify = None  # classes too small or too many to be kept in proportion
    return np.sort(train_test_split(everything, train_size=limit, random_state=seed, stratify=stratify)[0])


def _cosines(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 1e-12 * max(lengths.max(), 1e-300))
    # Rounded, so that equal distances are ties and not decided by the last bit.
    return np.round(unit @ unit.T, 12)


def _spearman(first: np.ndarray, second: np.ndarray) -> float:
    from scipy.stats import rankdata

    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (first, second)]
    sizes = [np.linalg.norm(rank) for rank in ranks]
    if min(sizes) == 0:
        return 0.0
    return float(np.clip(ranks[0] @ ranks[1] / (sizes[0] * sizes[1]), -1.0, 1.0))
