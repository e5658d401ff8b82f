"""LEEP, NCE and N-LEEP: how well labels are told from source classes, or from clusters of the features."""

from __future__ import annotations

import warnings
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
    logits, ids, _ = inputs.with_classes(logits, targets, "logits")
    return log_expected_prediction(scipy.special.softmax(logits, axis=1), ids)


def log_expected_prediction(probabilities: np.ndarray, ids: np.ndarray) -> Score:
    """LEEP for given probabilities θ of the latent classes: of the source head, or of a mixture model."""
    joint = sums_by_id(probabilities, ids, int(ids.max()) + 1)
    marginal = joint.sum(axis=0)
    conditional = np.divide(joint, marginal, out=np.zeros_like(joint), where=marginal > 0)
    # A row's own mass is in the conditional, so its prediction is positive.
    return mean_log(np.log(np.einsum("iz,iz->i", conditional[ids], probabilities)))


def mean_log(logs: np.ndarray, **details: Any) -> Score:
    """The mean of the log-probabilities of the labels, at most 0, with its standard error."""
    # With 0 first, so that a mean of -0.0 is 0.0.
    return Score(min(0.0, float(logs.mean())), float(logs.std(ddof=1) / np.sqrt(len(logs))), details=details)


@metric("nce", needs=("logits",))
def nce(logits: Any, targets: Any) -> Score:
    """Negative conditional entropy of the labels given the source class that the model predicts.

        NCE = −H(Y | Z) = Σ_{y,z} P̂(y, z) log P̂(y | z),        z_i = argmax_z logits_iz

    P̂ are relative frequencies. Range: −H(Y) ≤ NCE ≤ 0; 0 when each predicted source class holds one target class.
    Invariant to any increasing transformation of the logits, to the order of rows and to relabelling of either side;
    equal logits count for the first class. The standard error is that
    of the mean of log P̂(y_i | z_i), with P̂ taken as given. Cost: O(nZ).

    Tran, Nguyen, Hassner, Transferability and Hardness of Supervised Classification Tasks, ICCV 2019.

    Args:
        logits: (n, Z) outputs of the source head.
        targets: n class ids.

    Returns:
        The score, in nats per sample.

    Raises:
        InputError: arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> nce(np.eye(3)[[0, 1, 2, 2]], np.array([0, 0, 1, 1])).value
        0.0

    """
    logits, ids, classes = inputs.with_classes(logits, targets, "logits")
    predicted = logits.argmax(axis=1)
    joint = np.zeros((classes, logits.shape[1]))
    np.add.at(joint, (ids, predicted), 1.0)
    return mean_log(np.log(joint[ids, predicted] / joint.sum(axis=0)[predicted]))


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

    features, ids, classes = inputs.with_classes(features, targets)
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
