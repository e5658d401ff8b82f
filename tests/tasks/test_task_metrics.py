from __future__ import annotations

import numpy as np
import pytest
import scipy
from sklearn import metrics

from hubscout.tasks import task_metrics
from hubscout.tasks.task_metrics import Outcome


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def test_against_scikit_learn(generator):
    predicted, targets = generator.dirichlet(np.ones(4), size=60), generator.integers(0, 4, size=60)
    guesses = predicted.argmax(axis=1)
    assert task_metrics.accuracy(predicted, targets) == metrics.accuracy_score(targets, guesses)
    assert task_metrics.macro_f1(predicted, targets) == pytest.approx(
        metrics.f1_score(targets, guesses, average="macro")
    )
    scores, labels = generator.random((60, 3)), generator.integers(0, 2, size=(60, 3))
    expected = metrics.average_precision_score(labels, scores, average="macro")
    assert task_metrics.mean_average_precision(scores, labels) == pytest.approx(expected)
    assert task_metrics.micro_f1(scores, labels) == pytest.approx(
        metrics.f1_score(labels, scores >= 0.5, average="micro")
    )
    values, truth = generator.normal(size=(60, 2)), generator.normal(size=(60, 2))
    assert task_metrics.r_squared(values, truth) == pytest.approx(metrics.r2_score(truth, values))
    assert task_metrics.root_mean_squared_error(values, truth) == pytest.approx(
        metrics.mean_squared_error(truth.ravel(), values.ravel()) ** 0.5
    )


def test_intervals_cover_the_value_and_shrink_with_data(generator):
    def width(n):
        targets = generator.integers(0, 2, size=n)
        predicted = np.eye(2)[np.where(generator.random(n) < 0.8, targets, 1 - targets)]
        found = Outcome("classification", predicted, targets).with_intervals(resamples=300)["accuracy"]
        assert found.low <= found.value <= found.high
        return found.high - found.low

    small, large = width(50), width(5000)
    assert large < small / 5
    # The binomial's own interval: 2 · 1.96 · sqrt(0.8 · 0.2 / 5000).
    assert large == pytest.approx(2 * 1.96 * np.sqrt(0.16 / 5000), rel=0.25)


def test_words_are_resampled_by_sentence(generator):
    groups = np.repeat(np.arange(20), 10)
    targets = np.repeat(generator.integers(0, 2, size=20), 10)
    right = np.repeat(generator.random(20) < 0.7, 10)
    predicted = np.eye(2)[np.where(right, targets, 1 - targets)]
    by_word = Outcome("tagging", predicted, targets).with_intervals(resamples=300)["accuracy"]
    by_sentence = Outcome("tagging", predicted, targets, groups).with_intervals(resamples=300)["accuracy"]
    assert by_sentence.high - by_sentence.low > 2 * (by_word.high - by_word.low)


@pytest.mark.parametrize("right", [0, 3, 4])
def test_the_accuracy_of_a_handful_of_samples_is_uncertain(right):
    """Wilson's interval, as SciPy has it: a bootstrap of samples that are all right would be [1, 1]."""
    targets = np.zeros(4, dtype=np.int64)
    predicted = np.eye(2)[np.repeat([0, 1], [right, 4 - right])]
    found = Outcome("classification", predicted, targets).with_intervals()["accuracy"]
    wilson = scipy.stats.binomtest(right, 4).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high))


@pytest.mark.parametrize("kind", ["classification", "multilabel", "tagging"])
def test_no_metric_of_a_handful_of_samples_is_certain(kind):
    tags = ["B-A", "O"]
    targets = np.array([0, 1, 1, 0]) if kind != "multilabel" else np.array([[0, 1], [1, 0], [1, 1], [0, 0]])
    predicted = np.eye(2)[targets] if kind != "multilabel" else targets.astype(float)
    groups = np.array([0, 0, 1, 1]) if kind == "tagging" else None
    found = Outcome(kind, predicted, targets, groups, tags).with_intervals()
    for value in found.values():
        assert value.value == value.high == 1
        assert value.low < 0.6
    assert ("entity_f1" in found) == (kind == "tagging")
