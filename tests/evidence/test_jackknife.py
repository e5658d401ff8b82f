import pickle

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import StandardScaler

from hubscout.errors import InputError
from hubscout.evidence import Statistics, logme, maximize_evidence
from hubscout.evidence import jackknife as module
from hubscout.evidence.array_backend import add_product, upper_zeros
from hubscout.evidence.eigenvectors import SMALLEST, Factored
from hubscout.evidence.jackknife import inverse, mean_leverages, middle_ratio, spare
from hubscout.evidence.spectrum import dual_spectrum

DATA = {"digits": load_digits, "breast cancer": load_breast_cancer, "diabetes": load_diabetes}


def load(name):
    features, targets = DATA[name](return_X_y=True)
    return features if name == "digits" else StandardScaler().fit_transform(features), targets


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("center", [False, True])
def test_the_free_jackknife_is_the_exact_one(name, center):
    features, targets = load(name)
    linear = logme(features, targets, center=center)
    exact = logme(features, targets, center=center, jackknife="exact")
    assert linear.score == pytest.approx(exact.score, abs=1e-10)
    assert linear.standard_error == pytest.approx(exact.standard_error, rel=0.2)
    assert np.corrcoef(linear.block_scores, exact.block_scores)[0, 1] > 0.98


@pytest.mark.parametrize("name", DATA)
def test_the_standard_error_is_that_of_a_bootstrap(name):
    features, targets = load(name)
    generator = np.random.default_rng(0)
    draws = []
    for _ in range(60):
        chosen = generator.integers(0, len(targets), len(targets))
        draws.append(logme(features[chosen], targets[chosen], jackknife="none").score)
    blocks = [generator.permutation(len(targets)) % 20 for _ in range(5)]
    jackknife = np.mean([logme(features, targets, blocks=ids).standard_error for ids in blocks])
    assert 0.6 < jackknife / np.std(draws) < 1.6


def test_where_single_samples_decide_only_the_exact_jackknife_will_do():
    """Standardised digits: pixels that a handful of images use have samples of leverage one, beyond first order."""
    features, ids = load_digits(return_X_y=True)
    features = StandardScaler().fit_transform(features)
    generator = np.random.default_rng(0)
    chosen = [generator.integers(0, len(ids), len(ids)) for _ in range(40)]
    bootstrap = np.std([logme(features[rows], ids[rows], jackknife="none").score for rows in chosen])
    assert logme(features, ids).standard_error < 0.5 * bootstrap
    assert 0.5 < logme(features, ids, jackknife="exact").standard_error / bootstrap < 2


def with_more_dimensions_than_samples(n):
    """Real labels, and features that are a random expansion of real ones, as wide as a network's."""
    features, ids = load_digits(return_X_y=True)
    wide = RBFSampler(gamma=0.0008, n_components=600, random_state=0).fit_transform(features[:n])
    return np.maximum(wide, 0), ids[:n]


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("n", [100, 300, 500])
def test_fewer_samples_than_dimensions(generator, n, center):
    """Rows in memory and sums of blocks give the doubt of the exact jackknife, even where labels are interpolated."""
    features, ids = with_more_dimensions_than_samples(n)
    blocks = generator.permutation(n) % 10
    rows = logme(features, ids, blocks=blocks, center=center)
    statistics = Statistics("classification", [str(digit) for digit in range(10)])
    for block in range(10):
        statistics.update(features[blocks == block], ids[blocks == block], block=block)
    sums = maximize_evidence(statistics, center=center)
    exact = maximize_evidence(statistics, center=center, jackknife="exact")
    assert rows.score == pytest.approx(exact.score, abs=1e-7)
    assert sums.standard_error == exact.standard_error
    assert rows.standard_error == pytest.approx(exact.standard_error, rel=0.25)
    assert np.corrcoef(rows.block_scores, exact.block_scores)[0, 1] > 0.95
    np.testing.assert_array_equal(rows.block_sizes, sums.block_sizes)


def log_density_given_the_rest(features, y, alpha, beta, row):
    """By the definition: condition the joint normal of all labels on all but one."""
    covariance = features @ features.T / alpha + np.eye(len(y)) / beta
    rest = np.arange(len(y)) != row
    solved = np.linalg.solve(covariance[np.ix_(rest, rest)], np.stack([y[rest], covariance[rest, row]], axis=1))
    mean = covariance[row, rest] @ solved[:, 0]
    variance = covariance[row, row] - covariance[row, rest] @ solved[:, 1]
    return -0.5 * (np.log(2 * np.pi * variance) + (y[row] - mean) ** 2 / variance)


def test_a_row_adds_its_density_given_the_rest(generator):
    features = generator.normal(size=(24, 30))
    y = features @ generator.normal(size=30) + generator.normal(size=24)
    blocks = np.arange(24) % 4
    result = logme(features, y, center=False, blocks=blocks)
    rows = np.array(
        [log_density_given_the_rest(features, y, result.alpha[0], result.beta[0], row) for row in range(24)]
    )
    means = np.array([rows[blocks == block].mean() for block in range(4)])
    np.testing.assert_allclose(result.block_scores - result.score, means - means.mean(), atol=1e-8)


def test_sums_of_a_block_add_the_expansion(generator):
    """By hand for one target: -½ [β (y - fᵀm)² + fᵀ(FᵀF + tI)⁻¹f] / (1 - h), averaged over each block."""
    features = generator.normal(size=(60, 7))
    y = features @ generator.normal(size=7) + generator.normal(size=60)
    blocks = np.arange(60) % 4
    result = logme(features, y, center=False, blocks=blocks)
    t, beta, m = result.ratio[0], result.beta[0], result.weights[0]
    leverages = np.einsum("ij,jk,ik->i", features, np.linalg.inv(features.T @ features + t * np.eye(7)), features)
    rows = -0.5 * (beta * (y - features @ m) ** 2 + leverages) / (1 - leverages.mean())
    means = np.array([rows[blocks == block].mean() for block in range(4)])
    np.testing.assert_allclose(result.block_scores - result.score, means - means.mean(), atol=1e-12)
    assert result.standard_error == pytest.approx(means.std(ddof=1) / 2)


def test_more_samples_less_doubt(generator):
    def error(n):
        features = generator.normal(size=(n, 4))
        return logme(features, features[:, 0] + generator.normal(size=n), blocks=40).standard_error

    assert error(6400) < 0.5 * error(400)


def test_the_same_blocks_pair_two_models():
    """The difference of two related models is surer than either: what a ranking needs."""
    features, ids = load("digits")
    first, second = logme(features, ids), logme(features[:, :60], ids)
    pairs = first.block_scores - second.block_scores
    assert pairs.std(ddof=1) / np.sqrt(10) < 0.7 * first.standard_error
    np.testing.assert_array_equal(first.block_sizes, second.block_sizes)


def test_blocks_of_unequal_size_and_a_class_in_one_block_only(generator):
    features = generator.normal(size=(50, 3))
    ids = np.concatenate([np.zeros(30, int), np.ones(19, int), [2]])
    blocks = np.concatenate([np.zeros(25, int), np.ones(15, int), np.full(10, 7)])
    for jackknife in ("linear", "exact"):
        result = logme(features, ids, blocks=blocks, jackknife=jackknife)
        assert result.block_sizes.tolist() == [25, 15, 10]
        assert np.isfinite(result.block_scores).all()
        assert result.block_scores @ result.block_sizes / 50 == pytest.approx(result.score)


@pytest.mark.parametrize("solver", ["newton", "fixed-point", "naive"])
def test_a_block_that_holds_a_class_alone(generator, solver):
    """Without it the other class is constant: centred, there is nothing left to score."""
    features, blocks = generator.normal(size=(30, 4)), np.repeat([0, 1, 2], 10)
    for ids in ((blocks == 0).astype(int), blocks):
        result = logme(features, ids, blocks=blocks, center=True, jackknife="exact", solver=solver)
        assert np.isfinite(result.block_scores).all()
        assert result.block_scores @ result.block_sizes / 30 == pytest.approx(result.score)
    two = logme(features[:2], [0, 1], blocks=[0, 1], center=True, jackknife="exact", solver=solver)
    assert np.isfinite(two.block_scores).all()


def test_a_block_that_holds_what_is_largest(generator):
    """Taken away from the whole, it would leave rounding; the others are added up instead."""
    features, ids = generator.normal(size=(30, 2)), np.arange(30) % 2
    features[0] *= 1e9
    blocks = np.repeat([0, 1, 2], 10)
    result = logme(features, ids, blocks=blocks, jackknife="exact")
    alone = logme(features[10:], ids[10:], jackknife="none").score
    shares = result.block_sizes.sum() / result.block_sizes
    pseudo = shares[0] * result.score - (shares[0] - 1) * alone
    others = [logme(features[blocks != b], ids[blocks != b], jackknife="none").score for b in (1, 2)]
    values = np.array([pseudo, *(3 * result.score - 2 * score for score in others)])
    np.testing.assert_allclose(result.block_scores, values - values.mean() + result.score, atol=1e-6)


def test_one_block_has_no_standard_error(generator):
    features = generator.normal(size=(20, 3))
    for result in (logme(features, np.arange(20) % 2, blocks=1), logme(features, np.arange(20) % 2, jackknife="none")):
        assert result.standard_error is None
        assert result.block_scores.tolist() == [result.score]


@pytest.mark.parametrize(
    ("blocks", "message"), [(0, "at least 1"), ([0, 1], "20 block ids"), (np.zeros(20), "float64")]
)
def test_bad_blocks(generator, blocks, message):
    with pytest.raises(InputError, match=message):
        logme(generator.normal(size=(20, 3)), np.arange(20) % 2, blocks=blocks)
    with pytest.raises(InputError, match="one of linear, exact, none; got 'bootstrap'"):
        logme(np.eye(2), [0, 1], jackknife="bootstrap")


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


@pytest.mark.parametrize("offset", [0.0, 30.0, 1e6])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_rows_on_an_accelerator_have_the_error_bar_of_sums_by_block(
    generator, tensors_stay_tensors, monkeypatch, kind, center, offset
):
    import torch

    features, ids = labelled(generator, 300, 20)
    targets = {
        "classification": ids,
        "multilabel": np.column_stack([ids == 0, features[:, 0] > 1, features[:, 0] > 1e9]).astype(np.int64),
        "regression": features[:, :2] + generator.normal(size=(300, 2)) + offset / 10,
    }[kind]
    features = features + offset
    sums = logme(features, targets, kind=kind, center=center, blocks=7)
    monkeypatch.setattr("hubscout.evidence.array_backend.ACCELERATED_BYTES", 1)  # several parts
    rows = logme(torch.from_numpy(features), torch.from_numpy(targets), kind=kind, center=center, blocks=7)
    assert rows.standard_error == pytest.approx(sums.standard_error, rel=1e-7)
    np.testing.assert_allclose(rows.block_scores, sums.block_scores, atol=1e-8)
    np.testing.assert_array_equal(rows.block_sizes, sums.block_sizes)
