"""The posterior as scikit-learn estimators: linear models whose hyper-parameters the evidence chooses.

Features and targets are centred by default, which is what an intercept is for. `logme` centres for regression too, but
not for classes; `hubscout.evidence.checks.default_center` is the rule for all. `fit` works on arrays (in the dual
where there are fewer samples than dimensions); `partial_fit` adds batches to sums, and the model is computed from them
when it is next asked for something.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d, validate_data

from hubscout.errors import InputError
from hubscout.evidence.array_logme import logme
from hubscout.evidence.checks import Kind, check_weights, default_center
from hubscout.evidence.evidence import Evidence, statistics_of
from hubscout.evidence.maximize import maximize_evidence
from hubscout.evidence.posterior import probability_of_largest
from hubscout.evidence.statistics import Statistics


class _EvidenceEstimator(BaseEstimator):
    """What the two estimators share: the arguments, the evidence, and sums that grow."""

    _evidence: Evidence | None = None
    _statistics: Statistics | None = None
    _feature_types: ClassVar[tuple[type, ...]] = (np.float64, np.float32)

    def __init__(self, *, center: bool | None = None, solver: str = "newton") -> None:
        self.center = center
        self.solver = solver

    def _centred(self, kind: str) -> bool:
        return default_center(kind, predicting=True) if self.center is None else self.center

    @property
    def evidence_(self) -> Evidence:
        """The fitted evidence: score, weights, α and β of every target."""
        if self._evidence is None:
            if self._statistics is None:
                raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit or partial_fit first.")
            centred = self._centred(self._statistics.kind)
            self._evidence = maximize_evidence(self._statistics, solver=self.solver, center=centred, jackknife="none")
        return self._evidence

    @property
    def coef_(self) -> np.ndarray:
        """The weights, (C, D)."""
        return self.evidence_.weights

    @property
    def intercept_(self) -> np.ndarray:
        """The intercepts, (C,)."""
        return self.evidence_.intercept

    def __sklearn_is_fitted__(self) -> bool:
        return self._evidence is not None or self._statistics is not None

    def _fit_arrays(self, X: np.ndarray, y: np.ndarray, kind: Kind, weights: np.ndarray | None) -> None:
        self._statistics = self._evidence = None
        if weights is None:
            self._evidence = logme(X, y, kind=kind, center=self._centred(kind), solver=self.solver, jackknife="none")
            return
        columns = y.max() + 1 if kind == "classification" else 1 if y.ndim == 1 else y.shape[1]
        self._add_batch(X, y, kind, [str(index) for index in range(columns)], weights)
        self.evidence_  # noqa: B018  (what cannot be fitted is said here)

    def _add_batch(
        self, X: np.ndarray, y: np.ndarray, kind: Kind, names: list[str], weights: np.ndarray | None = None
    ) -> None:
        self._statistics = self._statistics or Statistics(kind, names)
        self._statistics.update(X, y, weights=weights)
        self._evidence = None

    def _begins(self) -> bool:
        """Whether the next batch is the first. After `fit` it is not: the sums are made from what was fitted."""
        if self._statistics is None and self._evidence is not None:
            fitted, center = self._evidence, self._centred(self._evidence.kind)
            if fitted.center != center:
                raise InputError(f"center was {fitted.center} in fit and is {center} now: begin with partial_fit.")
            self._statistics = statistics_of(fitted)
        return self._statistics is None

    def _check_batch(self, X: Any, *, reset: bool) -> np.ndarray:
        return _dense(validate_data(self, X, dtype=self._feature_types, reset=reset, accept_sparse="csr"))

    def _weighted(self, X: np.ndarray, y: np.ndarray, sample_weight: Any) -> tuple[Any, Any, np.ndarray | None]:
        """Rows that count, and how often; all of them and None where no weights are given."""
        if sample_weight is None:
            return X, y, None
        given = np.asarray(sample_weight)
        weights = check_weights(np.full(len(X), given) if given.ndim == 0 else given, len(X))
        there = weights > 0
        if not there.any():
            raise InputError("sample_weight is zero for every sample: there is nothing to fit.")
        return X[there], y[there], weights[there]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class LogMEClassifier(ClassifierMixin, _EvidenceEstimator):
    """A linear classifier without hyper-parameters: one Bayesian regression per class on 0/1 targets.

    A matrix of 0 and 1 as targets makes it multi-label. It needs no validation data, which is why it does well with a
    few samples per class.

    `predict_proba`, one class per sample: the probability that the class has the largest of the predictive draws
    N(mean of the class, v), where v is the geometric mean over classes of the predictive variance for this sample; so
    the most probable class is always the one with the largest mean. Multi-label: the probability that the predictive
    draw of the label exceeds ½, one column a label.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = LogMEClassifier().fit(X, y)
    >>> classifier.predict_proba(X[:1]).round(2)
    array([[0.99, 0.01, 0.  ]])
    """

    classes_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to features and classes.

        Args:
            X: (n, D) features, sparse or dense.
            y: n classes, or an (n, C) matrix of 0 and 1.
            sample_weight: one per sample, or one for all. A sample of weight 2 counts as two, one of weight 0 as none:
                weights that sum to much less than n say that there is little to learn from.

        Returns:
            Itself.

        Raises:
            InputError: a single class, or no sample with a weight.

        """
        X = self._check_batch(X, reset=True)
        if y is None:
            raise InputError("requires y to be passed, but the target y is None")
        self._multilabel = type_of_target(y, input_name="y").startswith("multilabel")
        labels = self._labels(X, y)
        X, labels, weights = self._weighted(X, labels, sample_weight)
        if self._multilabel:
            self.classes_ = np.arange(labels.shape[1])
        else:
            self.classes_, labels = np.unique(labels, return_inverse=True)
        self._fit_arrays(X, labels, self._kind, weights)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add a batch to what was fitted.

        Args:
            X: (n, D) features.
            y: their classes, or a matrix of 0 and 1.
            classes: all classes; the first call of a single-label model must list them.
            sample_weight: as in `fit`.

        Returns:
            Itself.

        Raises:
            InputError: classes that are missing, differ from those of the first call, or were not listed.

        """
        first = self._begins()
        X = self._check_batch(X, reset=first)
        if first:
            self._multilabel = type_of_target(y, input_name="y").startswith("multilabel")
        labels = self._labels(X, y)
        if not self._multilabel:
            self._check_classes(labels, classes, first)
        elif first:
            self.classes_ = np.arange(labels.shape[1])
        X, labels, weights = self._weighted(X, labels, sample_weight)
        if not self._multilabel:
            labels = np.searchsorted(self.classes_, labels)
        self._add_batch(X, labels, self._kind, [str(name) for name in self.classes_], weights)
        return self

    def _labels(self, X: np.ndarray, y: Any) -> np.ndarray:
        """A vector of classes, or a matrix of 0 and 1, with a row for each of X."""
        if self._multilabel:
            labels = _dense(check_array(y, accept_sparse=True, dtype=None, input_name="y"))
        else:
            labels = column_or_1d(y, warn=True)
            check_classification_targets(labels)
        check_consistent_length(X, labels)
        return labels

    def _check_classes(self, labels: np.ndarray, classes: Any, first: bool) -> None:
        """The labels of a batch are among the classes that the first call listed."""
        if first:
            if classes is None:
                raise InputError("classes must be passed on the first call to partial_fit: the list of all classes.")
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise InputError(f"classes differ from those of the first call: {self.classes_.tolist()}.")
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise InputError(f"y holds classes that are not in classes: {unknown[:5].tolist()}.")

    @property
    def _kind(self) -> Kind:
        return "multilabel" if self._multilabel else "classification"

    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest predictive mean; for multi-label, which means exceed ½.

        Args:
            X: (n, D) features.

        Returns:
            n classes, or an (n, C) matrix of 0 and 1.

        """
        means = self._means(X)
        return (means > 0.5).astype(int) if self._multilabel else self.classes_[means.argmax(1)]

    def decision_function(self, X: Any) -> np.ndarray:
        """Predictive means.

        Args:
            X: (n, D) features.

        Returns:
            (n, C); with two classes (n,), positive for the second; for labels how far above ½.

        """
        means = self._means(X)
        if self._multilabel:
            return means - 0.5
        return means[:, 1] - means[:, 0] if means.shape[1] == 2 else means

    def _means(self, X: Any) -> np.ndarray:
        """Predictive means; of a class that did not occur, -∞."""
        evidence = self.evidence_
        means = evidence.predict(self._check_batch(X, reset=False))
        if not self._multilabel:
            means[:, ~evidence.scored] = -np.inf
        return means

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of classes or labels, as the class describes them.

        Args:
            X: (n, D) features.

        Returns:
            (n, C).

        """
        evidence = self.evidence_
        X = self._check_batch(X, reset=False)
        means, variances = evidence.predict(X), evidence.predict_variance(X)
        variances = np.maximum(variances, np.finfo(np.float64).tiny)
        if self._multilabel:
            return ndtr((means - 0.5) / np.sqrt(variances))
        scored = evidence.scored
        deviation = np.exp(0.5 * np.log(variances[:, scored]).mean(1, keepdims=True))
        result = np.zeros_like(means)
        result[:, scored] = probability_of_largest(means[:, scored] / deviation)
        return result

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class LogMERegressor(MultiOutputMixin, RegressorMixin, _EvidenceEstimator):
    """Bayesian linear regression whose α and β the evidence chooses, for one target or several.

    >>> X = np.arange(12.0)[:, None]
    >>> y = 2 * X.ravel() + np.tile([0.1, -0.1], 6)
    >>> mean, deviation = LogMERegressor().fit(X, y).predict([[20.0]], return_std=True)
    >>> mean.round(1), deviation.round(1)
    (array([39.9]), array([0.2]))
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to features and numbers.

        Args:
            X: (n, D) features, sparse or dense.
            y: n numbers, or (n, C).
            sample_weight: as for `LogMEClassifier.fit`.

        Returns:
            Itself.

        Raises:
            InputError: no sample with a weight.

        """
        X, y = self._check_pair(X, y, ensure_min_samples=2)
        self._single = y.ndim == 1
        X, y, weights = self._weighted(X, y, sample_weight)
        self._fit_arrays(X, y.astype(np.float64), "regression", weights)
        return self

    def _check_pair(self, X: Any, y: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(
            self, X, y, dtype=self._feature_types, multi_output=True, y_numeric=True, accept_sparse="csr", **options
        )
        return _dense(X), y

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add a batch to what was fitted.

        Args:
            X: (n, D) features.
            y: their numbers, as in the first batch.
            sample_weight: as for `LogMEClassifier.fit`.

        Returns:
            Itself.

        Raises:
            InputError: another number of targets than before.

        """
        first = self._begins()
        X, y = self._check_pair(X, y, reset=first)
        if first:
            self._single = y.ndim == 1
        names = [str(index) for index in range(1 if y.ndim == 1 else y.shape[1])]
        X, y, weights = self._weighted(X, y, sample_weight)
        self._add_batch(X, y.astype(np.float64), "regression", names, weights)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predictive mean, and if asked for the standard deviation √(fᵀA⁻¹f + 1/β).

        Args:
            X: (n, D) features.
            return_std: whether the standard deviation comes too.

        Returns:
            n means, or (n, C) as in `fit`; with `return_std` a pair of such arrays.

        """
        evidence = self.evidence_
        X = self._check_batch(X, reset=False)
        mean = evidence.predict(X)
        mean = mean[:, 0] if self._single else mean
        if not return_std:
            return mean
        deviation = np.sqrt(evidence.predict_variance(X))
        return mean, deviation[:, 0] if self._single else deviation


def _dense(X: Any) -> np.ndarray:
    return X.toarray() if issparse(X) else X
