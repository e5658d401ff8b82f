"""The gain over an intercept, from the spectrum of features as they came, against a fit that centres them."""

import warnings

import numpy as np
import pytest

from hubscout.errors import UnboundedEvidenceWarning
from hubscout.evidence import Statistics, logme, maximize_evidence
from hubscout.evidence.base_rates import BaseRateProfile, ReducedBaseRateProfile
from hubscout.evidence.eigenvectors import SMALLEST_SIZE


def labels_for(features: np.ndarray, generator: np.random.Generator, classes: int = 4) -> np.ndarray:
    """Classes of different frequency that the first features explain in part."""
    scores = features[:, :classes] + generator.normal(size=(len(features), classes)) - np.arange(classes)
    return scores.argmax(1)


@pytest.mark.parametrize(("n", "dim"), [(200, 8), (60, 60), (61, 60), (40, 100)])
@pytest.mark.parametrize("offset", [0.0, 0.3, 3.0, 50.0])
def test_the_gain_is_that_of_centred_features_and_labels(n: int, dim: int, offset: float) -> None:
    generator = np.random.default_rng(n + dim)
    features = generator.normal(size=(n, dim))
    labels = labels_for(features, generator)
    shifted = features + offset * generator.uniform(0.5, 1.5, size=dim)
    oracle = logme(shifted, labels, center=True)
    found = logme(shifted, labels)
    assert found.gain == pytest.approx(oracle.score - oracle.null_score, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(found.per_target_gain, oracle.per_target - oracle.per_target_null, rtol=1e-5, atol=1e-8)
    finite = np.isfinite(oracle.ratio)
    np.testing.assert_array_equal(np.isfinite(found.over_base_rates.ratio), finite)
    np.testing.assert_allclose(found.over_base_rates.ratio[finite], oracle.ratio[finite], rtol=1e-3)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e7])
def test_sums_and_rows_have_the_same_gain(offset: float) -> None:
    generator = np.random.default_rng(1)
    features = generator.normal(size=(300, 12)) + offset
    labels = labels_for(features - offset, generator)
    sums = Statistics("classification", ["0", "1", "2", "3"])
    for block in range(5):
        sums.update(features[block::5], labels[block::5], block=block)
    found = maximize_evidence(sums)
    assert found.gain == pytest.approx(logme(features, labels, center=True).gain, rel=1e-6)
    assert found.gain > 0.05


@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_a_model_that_knows_base_rates_alone_gains_nothing(offset: float) -> None:
    generator = np.random.default_rng(2)
    features = generator.normal(size=(500, 20)) + offset
    rare = (generator.uniform(size=(500, 6)) < 0.1).astype(int)
    found = logme(features, rare, kind="multilabel")
    assert 0 <= found.gain < 0.004
    assert found.score - found.null_score > -1e-12  # against a model that predicts 0, a constant is worth something
    assert logme(np.ones((500, 1)), rare, kind="multilabel").gain == pytest.approx(0, abs=1e-12)


def test_a_label_that_all_samples_have_gains_nothing() -> None:
    generator = np.random.default_rng(3)
    features = generator.normal(size=(50, 4))
    labels = np.stack([np.ones(50, dtype=int), (features[:, 0] > 0).astype(int)], axis=1)
    found = logme(features, labels, kind="multilabel")
    assert found.per_target_gain[0] == 0
    assert found.per_target_gain[1] > 0.1


def test_classes_that_do_not_occur_have_no_part_in_the_mean() -> None:
    generator = np.random.default_rng(4)
    features = generator.normal(size=(80, 5))
    labels = (features[:, 0] > 0).astype(int)
    few = logme(features, labels, classes=[0, 1])
    many = logme(features, labels, classes=[0, 1, 2, 3])
    assert many.gain == pytest.approx(few.gain, rel=1e-9)


SHAPES = [(2 * SMALLEST_SIZE, SMALLEST_SIZE + 3), (SMALLEST_SIZE + 3, 2 * SMALLEST_SIZE)]


@pytest.fixture(params=SHAPES, ids=["n > D", "n < D"])
def profiles(request, generator):
    """Of the same three targets."""
    n, dim = request.param
    features = np.maximum(generator.normal(size=(n, dim)), 0)
    y = features[:, :3] + generator.normal(size=(n, 3))
    fitted = logme(features, y, kind="regression", center=False)
    fit, squares = fitted.over_base_rates, ((y - y.mean(0)) ** 2).sum(0)
    shared = (fitted.spectrum, fit.constant_column, fit.target_mean, squares, np.ones(3, dtype=bool))
    reduced = ReducedBaseRateProfile.of(*shared)
    assert reduced is not None
    return BaseRateProfile.of(*shared), reduced


def test_both_are_the_same_function(profiles):
    whole = slice(None)
    for place in (-6.0, -3.0, 0.0, 2.0):
        points = np.full(3, place)
        first, second = (profile.gain(points, whole) for profile in profiles)
        np.testing.assert_allclose(second, first, atol=1e-10)
        np.testing.assert_allclose(
            np.subtract(*profiles[1].rates(points, whole)), np.subtract(*profiles[0].rates(points, whole)), atol=1e-9
        )
        for profile in profiles:
            np.testing.assert_allclose(profile.gain(points[:1])[:, 0], first, atol=1e-10)


def test_slopes_are_derivatives(profiles):
    step, whole = 1e-4, slice(None)
    for profile in profiles:
        for place in (-6.0, -3.0, 0.0, 2.0):
            low, high = (profile.gain(np.full(3, place + shift), whole) for shift in (-step, step))
            np.testing.assert_allclose(
                np.subtract(*profile.rates(np.full(3, place), whole)), (high - low) / (2 * step), atol=1e-7
            )


def test_the_maximum_is_no_less_than_anywhere(profiles):
    everywhere = np.linspace(-12, 8, 400)
    for profile in profiles:
        gain, ratio = profile.maximize()
        assert (2 * gain >= profile.gain(everywhere).max(1) - 1e-12).all()
        np.testing.assert_allclose(
            np.subtract(*profile.rates(np.log(ratio / profile.scale), slice(None))), 0, atol=1e-7
        )


@pytest.mark.parametrize("dim", [39, 30])
def test_a_fit_without_noise_gains_no_more_than_float64_can_tell(dim: int) -> None:
    """With the intercept every label is fitted, or one that a feature knows; what cancels there is not evidence."""
    generator = np.random.default_rng(1)
    features = np.maximum(generator.normal(size=(40, dim)), 0)
    features[:, 0] = np.arange(40) == 7
    features += 1.0
    ids = np.where(np.arange(40) == 7, 3, generator.integers(0, 3, 40))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedEvidenceWarning)
        from_sums = maximize_evidence(Statistics("classification", list("abcd")).update(features, ids))
        from_rows = logme(features, ids)
    for found in (from_sums, from_rows):
        gain = np.asarray(found.over_base_rates.gain)
        assert (gain < 0.5 * np.log(1 / (40 * np.finfo(float).eps))).all(), gain
