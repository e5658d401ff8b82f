"""PARC: do samples that are alike in features have like labels?"""

from __future__ import annotations

from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.metrics import inputs
from hubscout.metrics.metric_registry import CLASSES, metric


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
    if kind == "classification":
        ids, classes = inputs.class_ids(targets, len(features))
        labels = np.eye(classes)[ids]
    else:
        labels, ids = inputs.label_matrix(targets, len(features)), None
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
