"""N-LEEP: LEEP with the clusters of the features in place of the source classes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hubscout.metrics import inputs
from hubscout.metrics.leep import log_expected_prediction
from hubscout.metrics.metric_registry import Score, metric


@metric("n-leep")
def n_leep(
    features: Any,
    targets: Any,
    *,
    energy: float = 0.8,
    max_components: int = 64,
    clusters_per_class: int = 5,
    seed: int = 0,
) -> Score:
    """Mean log-probability of the labels, predicted from the clusters of the features.

        N-LEEP = (1/n) Σ_i log Σ_v P̂(y_i | v) P(v | x_i)

    P(v | x) is the posterior of a Gaussian mixture on the principal components that hold `energy` of the variance;
    P̂(y | v) as in LEEP. It needs no source head. Range: −H(Y) ≤ N-LEEP ≤ 0. Invariant to shifts, to one common scale
    and to relabelling, but only nearly so to the order of rows and to rotation, since the mixture is fitted from a
    start that is drawn with `seed`.

    The mixture has `clusters_per_class` · C components, at most n/5 of them: with a cluster for every sample any
    features would score 0. Their covariances are diagonal and the principal components at most `max_components`, so
    that the time stays bounded: full covariances cost k times as much and have more parameters than there are
    samples. The mean is over logarithms, as the definition has it; published code takes the mean probability.
    Constant features give −H(Y). Cost: O(nD² + D³) for the components, O(nCk) an iteration, at most 100.

    Li et al., Ranking Neural Checkpoints, CVPR 2021.

    Args:
        features: (n, D) features.
        targets: n class ids.
        energy: the share of the variance that the principal components hold.
        max_components: how many of them at most.
        clusters_per_class: Gaussians of the mixture for each class.
        seed: of the mixture's start.

    Returns:
        The score, in nats per sample.

    Raises:
        InputError: arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 50)
        >>> noise = np.random.default_rng(0).normal(size=(100, 2))
        >>> n_leep(np.eye(2)[labels] + 0.1 * noise, labels).value > n_leep(noise, labels).value
        True

    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    features = inputs.real_matrix(features, "features")
    ids, classes = inputs.class_ids(targets, len(features))
    at_most = inputs.whole_number(max_components, "max_components")
    clusters = inputs.whole_number(clusters_per_class, "clusters_per_class") * classes
    clusters = max(1, min(clusters, len(features) // 5))
    reduced, variances = inputs.principal_components(features, at_most=at_most, energy=energy)
    if not len(variances):
        return log_expected_prediction(np.ones((len(ids), 1)), ids)

    mixture = GaussianMixture(clusters, covariance_type="diag", reg_covar=1e-4, random_state=seed)
    with warnings.catch_warnings():
        # 100 iterations are enough for posteriors, and repeated samples may be fewer than clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # In units of the mean variance the regularisation is a share of it, whatever the scale of the features.
        posterior = mixture.fit(reduced / np.sqrt(variances.mean())).predict_proba(reduced / np.sqrt(variances.mean()))
    return log_expected_prediction(posterior, ids)
