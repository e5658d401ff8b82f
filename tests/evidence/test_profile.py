"""The ends of the profile (labels that say nothing, that are interpolated), and the theorems of convergence."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

from hubscout.errors import InputError, RoundingWarning, UnboundedEvidenceWarning
from hubscout.evidence import Statistics, convergence_margin, fixed_point_map, logme, maximize_evidence
from hubscout.evidence.profile import Profile


def test_labels_orthogonal_to_the_features_are_the_null_model():
    features = np.eye(20)[:, :5]
    y = np.ones(20)
    y[:5] = 0
    result = logme(features, y, center=False)
    assert np.isinf(result.alpha[0])
    assert result.score == result.null_score
    assert result.gain > 0.5  # they are orthogonal, and the intercept makes of them all there is to know
    assert result.score == pytest.approx(0.5 * (np.log(20 / 15) - 1 - np.log(2 * np.pi)), rel=1e-14)
    assert (result.weights == 0).all()
    np.testing.assert_allclose(result.predict_variance(features), 15 / 20)
    assert np.isfinite(result.standard_error)


def test_features_that_are_all_zero_are_the_null_model():
    for shape in ((10, 3), (3, 10)):
        result = logme(np.zeros(shape), np.arange(shape[0]) % 2)
        assert (result.rank, result.gain, result.converged) == (0, 0.0, True)
        assert np.isfinite(result.predict_variance(np.ones((2, shape[1])))).all()


def test_one_sample_or_equal_singular_values_leave_nothing_to_choose():
    assert logme([[2.0, 1.0]], [3.0], center=False).gain == 0
    assert logme(np.eye(4), [1.0, 2.0, 3.0, 4.0], center=False).gain == pytest.approx(0, abs=1e-12)


def test_interpolated_labels_have_the_limit_of_the_profile():
    """r = n, and labels that lie where the features are long: the evidence rises all the way to t = 0."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(30, 100)) * np.logspace(0, -3, 100)
    U, singular, _ = np.linalg.svd(features, full_matrices=False)
    y = U @ (singular**2 * generator.normal(size=30))
    result = logme(features, y, center=False)
    z = U.T @ y
    limit = 0.5 * (np.log(30 / (z**2 / singular**2).sum()) - np.log(singular**2).mean() - 1 - np.log(2 * np.pi))
    assert result.score == pytest.approx(limit, abs=1e-9)
    for values in (result.alpha, result.beta, result.weights, result.predict_variance(features)):
        assert np.isfinite(values).all()
    np.testing.assert_allclose(result.predict(features)[:, 0], y, atol=1e-8)
    assert result.alpha[0] == pytest.approx(30 / (z**2 / singular**2).sum(), rel=1e-6)


@pytest.mark.parametrize("n", [40, 400])
def test_labels_without_noise_stay_finite(n):
    """Their evidence has no bound; the score says how little noise float64 can see, at any scale."""
    features = np.random.default_rng(0).normal(size=(n, 10))
    y = features @ np.arange(1.0, 11.0)
    with pytest.warns(UnboundedEvidenceWarning, match="without noise.*no bound.*: 0. Is the label among the features"):
        result = logme(features, y)
    assert result.unbounded == ("0",)
    assert "no bound" in result.notes[0]
    assert 10 < result.gain < 20
    assert np.isfinite(result.beta).all()
    with pytest.warns(UnboundedEvidenceWarning):
        assert logme(1e3 * features, 1e-3 * y).gain == pytest.approx(result.gain, abs=0.5)
    with pytest.warns(UnboundedEvidenceWarning):
        assert maximize_evidence(Statistics("regression", ["y"]).update(features, y)).unbounded == ("y",)
    np.testing.assert_allclose(result.weights[0], np.arange(1.0, 11.0), rtol=1e-6)


def test_only_what_has_no_bound_is_said_to_have_none(generator, recwarn):
    """Interpolation by as many features as samples has a finite limit, and little noise is some."""
    features = generator.normal(size=(50, 5))
    for shape in ((20, 20), (20, 60)):
        assert not logme(generator.normal(size=shape), generator.normal(size=20), center=False).unbounded
        assert not logme(generator.normal(size=shape), np.arange(20) % 2).unbounded
    little = features[:, 0] + 1e-4 * generator.normal(size=50)
    assert not logme(features, little).unbounded
    assert not maximize_evidence(Statistics("regression", ["y"]).update(features, little)).unbounded
    assert not recwarn.list
    sums = Statistics("regression", ["y"]).update(features, features[:, 0] + 1e-6 * generator.normal(size=50))
    with pytest.warns(RoundingWarning, match="are rounding"):
        assert not maximize_evidence(sums).unbounded
    one_hot = np.eye(3)[np.arange(30) % 3]
    with pytest.warns(UnboundedEvidenceWarning, match="cat, dog"):
        assert logme(one_hot[:, :2], np.arange(30) % 3, target_names=["cat", "dog", "eel"]).unbounded == ("cat", "dog")


def test_labels_far_from_zero_are_not_noise_free(generator):
    """Beside the square of an offset that a column of ones explains, the noise is small; it is not nothing."""
    features = np.hstack([generator.normal(size=(2000, 4)), np.ones((2000, 1))])
    y = 1e6 + features[:, 0] + generator.normal(size=2000)
    far, near = logme(features, y, center=False), logme(features[:, :4], y)
    assert not far.unbounded
    assert 0.9 < far.beta[0] / near.beta[0] < 1.1


def test_derivatives_of_the_profile():
    features, ids = load_digits(return_X_y=True)
    from hubscout.evidence.spectrum import primal_spectrum
    from hubscout.evidence.statistics import Statistics

    names = [str(index) for index in range(10)]
    profile = Profile.of(primal_spectrum(Statistics("classification", names).update(features, ids).total()))
    step = 1e-4
    for place in (-12.0, -6.0, 0.0, 3.0):
        points = np.full(10, place)
        low, middle, high = (
            profile.gain(np.exp(points + shift), profile.squares, profile.unreachable)[0] for shift in (-step, 0, step)
        )
        first, second = profile.slopes(points, profile.squares, profile.unreachable)
        np.testing.assert_allclose(first, (high - low) / (2 * step), rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(second, (high - 2 * middle + low) / step**2, rtol=1e-3, atol=1e-6)
        grid_gain, grid_slope = profile.on_grid(np.array([place]))
        np.testing.assert_allclose(grid_gain[:, 0], middle, rtol=1e-12)
        np.testing.assert_allclose(grid_slope[:, 0], first, rtol=1e-9)


def test_digits_lost_by_squaring_are_found_again():
    """Dimensions that differ by 1e5 in scale: of the squares of the smallest, float64 keeps six digits."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(300, 12)) * np.logspace(0, -5, 12)
    y = features[:, -1] * 1e5 + 0.1 * generator.normal(size=300)
    result = logme(features, y, center=False)
    assert result.rank == 12
    scaled = np.linalg.svd(features, compute_uv=False)
    t = result.ratio[0]
    q = (
        y @ y
        - y
        @ features
        @ np.linalg.lstsq(
            np.vstack([features, np.sqrt(t) * np.eye(12)]), np.concatenate([y, np.zeros(12)]), rcond=None
        )[0]
    )
    by_hand = 0.5 * (np.log(300 / q) - np.log1p(scaled**2 / t).sum() / 300 - 1 - np.log(2 * np.pi))
    assert result.score == pytest.approx(by_hand, abs=1e-9)
    assert result.gain > 1


def test_columns_without_labels(generator):
    features = generator.normal(size=(40, 5))
    Y = np.column_stack([features[:, 0], np.zeros(40)])
    with pytest.raises(InputError, match="column 'second' is zero everywhere"):
        logme(features, Y, target_names=["first", "second"])
    with pytest.raises(InputError, match="zero everywhere"):
        logme(features, np.full(40, 0.1), center=True)
    assert np.isfinite(logme(features, np.full(40, 0.1), center=False).score), (
        "a constant column can be explained without centring"
    )
    labels = np.column_stack([features[:, 0] > 0, np.zeros(40, bool), np.ones(40, bool)])
    assert logme(features, labels).unscored == ("1",)
    assert logme(features, labels, center=True).unscored == ("1", "2")
    np.testing.assert_allclose(logme(features, labels, center=True).predict(features)[:, 2], 1)
    with pytest.raises(InputError, match="nothing to explain"):
        logme(features, labels[:, 1:2])


def test_the_map_is_one_step_of_mackay(generator):
    """Theorem 1, against α and β of the algorithm itself."""
    features = generator.normal(size=(40, 6))
    y = features[:, 0] + generator.normal(size=40)
    result = logme(features, y, center=False)
    for alpha, beta in ((1.0, 1.0), (3.0, 0.2), (0.01, 5.0)):
        A = alpha * np.eye(6) + beta * features.T @ features
        m = beta * np.linalg.solve(A, features.T @ y)
        gamma = beta * np.trace(np.linalg.solve(A, features.T @ features))
        expected = (gamma / (m @ m)) / ((40 - gamma) / ((features @ m - y) ** 2).sum())
        assert fixed_point_map(result, alpha / beta)[0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("load", [load_iris, load_digits])
def test_the_solution_is_a_fixed_point(load):
    result = logme(*load(return_X_y=True))
    np.testing.assert_allclose(np.diag(fixed_point_map(result, result.ratio)), result.ratio, rtol=1e-6)
    assert fixed_point_map(result, np.ones((4, 3))).shape == (len(result.targets), 4, 3)


def test_the_condition_is_the_sum_of_theorem_2(generator):
    features = generator.normal(size=(12, 4))
    y = features[:, 0] + generator.normal(size=12)
    U, singular, _ = np.linalg.svd(features)
    z, squares = (U.T @ y) ** 2, np.concatenate([singular**2, np.zeros(8)])
    total = sum((z[i] - z[j]) * (squares[i] - squares[j]) for i in range(12) for j in range(12))
    result = logme(features, y, center=False)
    assert convergence_margin(result)[0] == pytest.approx(total / (2 * (y @ y) * squares.sum()), rel=1e-9)
    assert result.convergence_guaranteed.tolist() == [total > 0]


def test_the_condition_holds_for_meaningful_labels_and_fails_for_others(generator):
    assert logme(*load_digits(return_X_y=True)).convergence_guaranteed.all()
    features = np.eye(20)[:, :5]
    y = np.ones(20)
    y[:5] = 0.1
    result = logme(features, y, center=False)
    assert not result.convergence_guaranteed.any()
    assert np.isinf(result.ratio[0])
    assert not logme(generator.normal(size=(5, 9)), np.arange(5.0)).convergence_guaranteed.any(), "r = n"


def test_what_cannot_be_mapped():
    result = logme(*load_iris(return_X_y=True))
    with pytest.raises(InputError, match="t must be positive"):
        fixed_point_map(result, 0.0)
    with pytest.raises(InputError, match="keep_spectrum=True"):
        fixed_point_map(result.without_spectrum(), 1.0)


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("copies", [1, 8])
def test_a_sample_that_occurs_again_is_no_sign_of_labels_without_noise(generator, kind, copies):
    """With more features than samples every label is fitted: a copy says nothing of the noise, nor of a leak."""
    ids = np.arange(60) % 3
    features = generator.normal(size=(60, 200))
    features[:, :3] += 1.5 * np.eye(3)[ids]
    targets = (
        ids
        if kind == "classification"
        else features[:, :2] @ generator.normal(size=(2, 2)) + generator.normal(size=(60, 2))
    )
    once = logme(features, targets)
    rows = np.append(np.arange(60), np.arange(copies))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = logme(features[rows], targets[rows])
        sums = Statistics(kind, once.targets).update(features[rows], targets[rows])
        from_sums = maximize_evidence(sums)
    assert not again.unbounded
    assert again.gain == pytest.approx(once.gain, abs=0.01 * copies)
    assert again.score - again.null_score == pytest.approx(once.score - once.null_score, abs=0.01 * copies)
    assert from_sums.score == pytest.approx(again.score, abs=1e-6)
    assert from_sums.gain == pytest.approx(again.gain, abs=1e-6)
    assert again.standard_error == pytest.approx(once.standard_error, rel=0.5)
    assert from_sums.standard_error is None or from_sums.standard_error < 10 * once.standard_error
    new = generator.normal(size=(50, 200))
    assert np.corrcoef(again.predict(new).ravel(), once.predict(new).ravel())[0, 1] > 0.9
