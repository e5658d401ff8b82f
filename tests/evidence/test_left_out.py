"""Left-out predictions in closed form, against models that are fitted again without each sample."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from hubscout.errors import InputError
from hubscout.evidence import logme
from hubscout.evidence.left_out import left_out_predictions


def refitted(
    features: np.ndarray, targets: np.ndarray, ratio: np.ndarray, groups: np.ndarray | None = None
) -> np.ndarray:
    """Ridge regression with a free intercept on all rows but one, or but its group: the definition."""
    n = len(features)
    groups = np.arange(n) if groups is None else groups
    found = np.empty_like(targets)
    for row in range(n):
        others = groups != groups[row]
        means, level = features[others].mean(0), targets[others].mean(0)
        left, singular, right = np.linalg.svd(features[others] - means, full_matrices=False)
        kept = singular > 1e-10 * singular[0]
        for column, t in enumerate(ratio):
            if np.isinf(t):
                found[row, column] = level[column]
                continue
            along = left[:, kept].T @ (targets[others, column] - level[column])
            weights = right[kept].T @ (along * singular[kept] / (singular[kept] ** 2 + t))
            found[row, column] = level[column] + (features[row] - means) @ weights
    return found


@pytest.mark.parametrize(("n", "dim"), [(60, 5), (30, 30), (25, 40)])
@pytest.mark.parametrize("offset", [0.0, 4.0, 1e4])
@pytest.mark.parametrize("center", [False, True])
def test_every_sample_is_predicted_as_by_a_refit_without_it(n: int, dim: int, offset: float, center: bool) -> None:
    generator = np.random.default_rng(n)
    features = generator.normal(size=(n, dim)) + offset
    ids = (features[:, :3] - offset + generator.normal(size=(n, 3))).argmax(1)
    targets = np.eye(3)[ids]
    evidence = logme(features, ids, center=center)
    found = left_out_predictions(evidence, features, targets)
    oracle = refitted(features - offset, targets, evidence.over_base_rates.ratio)
    np.testing.assert_allclose(found, oracle, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_labels_that_are_interpolated_are_predicted_as_well(center: bool, together: bool) -> None:
    """t goes to 0: what is left of a row is small, and not nothing."""
    generator = np.random.default_rng(0)
    ids = np.arange(30) % 3
    features = 3 * np.eye(3)[ids] @ generator.normal(size=(3, 200)) + 0.1 * generator.normal(size=(30, 200))
    targets = np.eye(3)[ids]
    evidence = logme(features, ids, center=center, jackknife="none")
    assert evidence.over_base_rates.ratio.min() < 1e-9 * float(evidence.spectrum.squared_singular_values[-1])
    groups = np.arange(30) // 2 if together else None
    found = left_out_predictions(evidence, features, targets, groups)
    oracle = refitted(features, targets, evidence.over_base_rates.ratio, groups)
    np.testing.assert_allclose(found, oracle, atol=2e-3)
    assert (found.argmax(1) == ids).mean() > 0.9


@pytest.mark.parametrize(("n", "dim"), [(60, 5), (24, 40)])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_rows_that_belong_together_are_left_out_together(n: int, dim: int, offset: float) -> None:
    generator = np.random.default_rng(3)
    groups = np.sort(generator.integers(8, size=n))
    features = generator.normal(size=(n, dim)) + 2 * generator.normal(size=(8, dim))[groups] + offset
    ids = (features[:, :3] - offset + generator.normal(size=(n, 3))).argmax(1)
    targets = np.eye(3)[ids]
    evidence = logme(features, ids)
    found = left_out_predictions(evidence, features, targets, groups)
    oracle = refitted(features - offset, targets, evidence.over_base_rates.ratio, groups)
    np.testing.assert_allclose(found, oracle, rtol=1e-4, atol=1e-5)


def test_groups_of_many_targets_take_little_memory() -> None:
    generator = np.random.default_rng(0)
    ids = np.arange(900) % 50
    features = generator.normal(size=(900, 400)) + 2 * generator.normal(size=(50, 400))[ids]
    evidence, targets = logme(features, ids), np.eye(50)[ids]
    tracemalloc.start()
    left_out_predictions(evidence, features[:80], targets[:80], np.arange(80) // 40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 50 * 40 * 400  # bytes of targets × rows of a group × directions


def test_numbers_and_some_of_the_rows() -> None:
    generator = np.random.default_rng(7)
    features = generator.normal(size=(50, 6))
    numbers = features[:, :2] * [1.0, 0.0] + 0.5 * generator.normal(size=(50, 2)) + 100
    evidence = logme(features, numbers)
    oracle = refitted(features, numbers, evidence.over_base_rates.ratio)
    some = [3, 4, 40]
    np.testing.assert_allclose(left_out_predictions(evidence, features[some], numbers[some]), oracle[some], rtol=1e-9)


def test_where_nothing_is_explained_the_others_base_rates_are_predicted() -> None:
    features = np.ones((10, 2))
    labels = np.tile([[1, 0], [0, 0]], (5, 1))
    labels[3] = 1
    evidence = logme(features, labels, kind="multilabel")
    found = left_out_predictions(evidence, features, labels.astype(float))
    np.testing.assert_allclose(found, (labels.sum(0) - labels) / 9, atol=1e-12)


def test_an_evidence_without_spectrum_and_labels_of_another_shape_are_refused() -> None:
    features, labels = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    small = logme(features, labels, keep_spectrum=False)
    with pytest.raises(InputError, match="keep_spectrum"):
        left_out_predictions(small, features, np.eye(2)[labels])
    with pytest.raises(InputError, match=r"targets must be \(20, 2\)"):
        left_out_predictions(logme(features, labels), features, labels[:, None].astype(float))


def test_samples_that_occur_again_do_not_hide_the_others_of_their_group():
    """As the full stops of sentences. Where the fit is perfect all numbers are small but for those samples'."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(40, 90)) + 1
    features[4::5] = features[4]  # the last of each group is the same sample
    labels, groups = generator.integers(0, 3, 40), np.arange(40) // 5
    labels[4::5] = 0
    ratio, targets = np.full(3, 1e-10), np.eye(3)[labels]
    evidence = logme(features, labels)
    assert bool(np.asarray(evidence.over_base_rates.spectrum.repeated).any())
    evidence = replace(evidence, over_base_rates=replace(evidence.over_base_rates, ratio=ratio))
    found = left_out_predictions(evidence, features, targets, groups)
    np.testing.assert_allclose(found, refitted(features, targets, ratio, groups), atol=1e-6)
