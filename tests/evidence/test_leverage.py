"""Leverages against their definition, and an error bar that needs no eigenvectors."""

import pickle

import numpy as np
import pytest

from hubscout.evidence import leverage as module
from hubscout.evidence import logme
from hubscout.evidence.array_backend import add_product, upper_zeros
from hubscout.evidence.eigenvectors import SMALLEST, Factored
from hubscout.evidence.leverage import inverse, mean_leverages, middle_ratio, spare
from hubscout.evidence.spectrum import dual_spectrum

LARGE, SMALL = SMALLEST + 30, 40
"""On both sides of where eigenvectors are kept in factors."""


def samples(generator, n, dim, decay=0.5):
    return generator.normal(size=(n, dim)) * np.arange(1, dim + 1) ** -decay


def upper_of(rows):
    return add_product(upper_zeros(rows, rows.shape[1]), rows)


def labelled(generator, n, dim, classes=7):
    ids = np.arange(n) % classes
    return np.maximum(samples(generator, n, dim) + 0.5 * generator.normal(size=(classes, dim))[ids], 0), ids


@pytest.mark.parametrize(("t", "accuracy"), [(1.0, 1e-4), (1e-6, 1e-6)])
def test_inverse_is_the_inverse(generator, t, accuracy):
    """In float32 where that will do, and in float64 where it will not."""
    rows = samples(generator, 2 * LARGE, LARGE, decay=1.0 if t == 1 else 2.0)
    upper = upper_of(rows)
    spectrum = dual_spectrum(upper, np.eye(LARGE)[:, :2], LARGE, LARGE)
    assert isinstance(spectrum.vectors, Factored)
    wanted = np.triu(3 * np.linalg.inv(rows.T @ rows + t * np.eye(LARGE)))
    found = inverse(spectrum, upper, t, 3.0)
    np.testing.assert_allclose(found, wanted, atol=accuracy * np.abs(wanted).max())
    np.testing.assert_allclose(inverse(spectrum, None, t, 3.0), wanted, atol=1e-7 * np.abs(wanted).max())
    np.testing.assert_array_equal(inverse(spectrum, upper, np.inf), np.zeros((LARGE, LARGE)))


@pytest.mark.parametrize("n", [SMALL, LARGE])
@pytest.mark.parametrize("known", [True, False])
def test_spare_is_what_the_others_leave(generator, n, known):
    """The diagonal of t (FFᵀ + tI)⁻¹: for one target exactly, for others nearly, and one for the null model."""
    rows = samples(generator, n, 2 * n)
    upper = upper_of(rows.T)
    spectrum = dual_spectrum(upper, np.eye(n)[:, :4], n, 2 * n)
    ratio = np.array([2.0, 3.0, 4.5, np.inf])
    wanted = np.stack([t * np.diag(np.linalg.inv(rows @ rows.T + t * np.eye(n))) for t in ratio[:3]], axis=1)
    found = spare(spectrum, upper if known else None, ratio)
    np.testing.assert_allclose(found[:, :3], wanted, rtol=0.02)
    np.testing.assert_allclose(found[:, 3], 1, rtol=1e-12)
    alone = spare(spectrum, upper if known else None, ratio[:1])
    np.testing.assert_allclose(alone[:, 0], wanted[:, 0], rtol=1e-4)


def test_the_middle_of_ratios_leaves_the_null_model_out():
    assert middle_ratio(np.array([1.0, 100.0, np.inf]), np.array([0.3, 0.3, 0.0])) == pytest.approx(10)
    assert middle_ratio(np.array([np.inf]), np.array([0.0])) == np.inf


def test_mean_leverages_are_means(generator):
    rows = samples(generator, 60, SMALL)
    spectrum = logme(rows, rows[:, 0] + generator.normal(size=60), center=False).spectrum
    hat = rows @ np.linalg.inv(rows.T @ rows + 0.7 * np.eye(SMALL)) @ rows.T
    np.testing.assert_allclose(mean_leverages(spectrum, np.array([0.7, np.inf])), [np.diag(hat).mean(), 0], atol=1e-12)


@pytest.mark.parametrize("n", [2 * LARGE, LARGE])
@pytest.mark.parametrize("center", [False, True])
def test_the_error_bar_is_that_of_eigenvectors(generator, monkeypatch, n, center):
    """From one Cholesky factorisation as from all eigenvectors, for more samples than dimensions and for fewer."""
    features, ids = labelled(generator, n, LARGE + 10)
    quick = logme(features, ids, center=center)
    monkeypatch.setattr(module, "DOUBLE_PRECISION", 0.0)
    slow = logme(features, ids, center=center)
    assert quick.score == slow.score
    assert quick.standard_error == pytest.approx(slow.standard_error, rel=0.02)
    deviations = np.stack([quick.block_scores, slow.block_scores]) - quick.score
    np.testing.assert_allclose(deviations[0], deviations[1], atol=0.05 * np.abs(deviations).max())


@pytest.mark.parametrize("n", [2 * LARGE, LARGE])
def test_neither_score_nor_error_bar_write_eigenvectors_out(generator, monkeypatch, n):
    def never(self):
        raise AssertionError("eigenvectors were written out")

    features, ids = labelled(generator, n, LARGE + 10)
    wanted = logme(features, ids)
    monkeypatch.setattr(Factored, "matrix", property(never))
    assert logme(features, ids).standard_error == wanted.standard_error


def test_variances_of_few_samples_are_of_the_features_that_were_fitted(generator):
    """Right singular vectors are written out late: what happens to the features until then does not matter."""
    features, ids = labelled(generator, LARGE, LARGE + 10)
    whole = np.concatenate([features, np.zeros_like(features)])[:LARGE]
    fitted = logme(whole, ids)
    again = pickle.loads(pickle.dumps(logme(features, ids)))
    whole[:] = 0
    basis = fitted.spectrum.basis
    np.testing.assert_allclose(basis.T @ basis, np.eye(fitted.rank), atol=1e-9)
    variance = fitted.predict_variance(features[:5])
    np.testing.assert_allclose(again.predict_variance(features[:5]), variance, rtol=1e-9)


@pytest.mark.parametrize("n", [2 * LARGE, LARGE])
@pytest.mark.parametrize("center", [False, True])
def test_tensors_have_the_error_bar_of_arrays(generator, tensors_stay_tensors, n, center):
    torch = pytest.importorskip("torch")
    features, ids = labelled(generator, n, LARGE + 10)
    arrays, tensors = (logme(rows, ids, center=center) for rows in (features, torch.from_numpy(features)))
    assert tensors.score == pytest.approx(arrays.score, abs=1e-9)
    assert tensors.standard_error == pytest.approx(arrays.standard_error, rel=0.02)
    variances = [fitted.predict_variance(features[:5]) for fitted in (arrays, tensors)]
    np.testing.assert_allclose(variances[1], variances[0], rtol=1e-7)
