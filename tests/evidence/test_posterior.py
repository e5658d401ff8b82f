import numpy as np
import pytest
from scipy.stats import norm
from sklearn.datasets import load_digits

from hubscout.errors import InputError
from hubscout.evidence import logme, nearest
from hubscout.evidence.posterior import probability_of_largest


def test_a_weight_vector_is_nearest_to_the_prototype_of_its_class():
    features, ids = load_digits(return_X_y=True)
    features = features - features.mean(0)
    prototypes = np.stack([features[ids == digit].mean(0) for digit in range(10)])
    names = [f"digit {digit}" for digit in range(10)]
    found = nearest(logme(features, ids, center=True).weights, prototypes, names, k=3)
    assert [near[0].name for near in found] == names
    for near in found:
        similarities = [neighbour.similarity for neighbour in near]
        assert similarities == sorted(similarities, reverse=True)
        assert all(-1 <= value <= 1 for value in similarities)


def test_length_does_not_matter_and_zero_is_like_nothing():
    near = nearest([[1.0, 1.0]], [[1e-9, 1e-9], [0.0, 0.0], [-5.0, -5.0]], ["same", "zero", "opposite"], k=3)[0]
    assert [(item.name, round(item.similarity, 12)) for item in near] == [("same", 1), ("zero", 0), ("opposite", -1)]


@pytest.mark.parametrize(
    ("weights", "names", "k", "message"),
    [
        (np.ones((1, 2)), ["a"], 1, "must name 3 embeddings; got 1"),
        (np.ones((1, 2)), list("abc"), 4, "between 1 and the number of embeddings, 3; got 4"),
        (np.ones((1, 3)), list("abc"), 1, "embeddings must have 3 columns"),
        (np.full((1, 2), np.nan), list("abc"), 1, "weights must be finite"),
        (np.ones(2), list("abc"), 1, "weights must be a matrix"),
    ],
)
def test_bad_input(weights, names, k, message):
    with pytest.raises(InputError, match=message):
        nearest(weights, np.ones((3, 2)), names, k)


def test_probability_of_largest_is_what_drawing_gives():
    means = np.array([[0.3, -0.5, 1.0, 0.9]])
    draws = means + np.random.default_rng(0).normal(size=(200_000, 4))
    frequencies = np.bincount(draws.argmax(1), minlength=4) / len(draws)
    np.testing.assert_allclose(probability_of_largest(means)[0], frequencies, atol=0.005)
    np.testing.assert_allclose(
        probability_of_largest(np.array([[0.7, 0.0]]))[0, 0], norm.cdf(0.7 / np.sqrt(2)), rtol=1e-12
    )


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_rows_are_left_out_where_one_target_is_fitted_and_another_not_explained():
    """A target that features say nothing of has no ratio to divide by."""
    generator = np.random.default_rng(0)
    fitted = np.arange(24.0) % 2
    features = generator.normal(size=(24, 80)) * 0.01 + 5 * np.eye(2, 80)[fitted.astype(int)]
    alternating = np.tile([1.0, 1.0, -1.0, -1.0], 6)  # orthogonal to both means
    targets = np.column_stack([fitted, alternating])
    found = logme(features, targets, kind="regression", center=False)
    assert np.isinf(found.ratio).tolist() == [False, True]
    assert found.ratio[0] < 1e-6
    assert np.isfinite(found.predict_left_out(features, targets)).all()


@pytest.mark.filterwarnings("ignore::hubscout.errors.UnboundedEvidenceWarning")
def test_rows_are_left_out_of_a_fit_without_noise():
    """With more features than rows labels are fitted exactly, and what the other rows say of one is not 0 / 0."""
    generator = np.random.default_rng(0)
    ids = np.arange(24) % 3
    features = generator.normal(size=(24, 80)) + 2 * np.eye(3, 80)[ids] * 3
    labels = np.eye(3)[ids]
    found = logme(features, ids).predict_left_out(features, labels)
    for row in range(24):
        others = np.arange(24) != row
        expected = features[row] @ np.linalg.pinv(features[others]) @ labels[others]
        np.testing.assert_allclose(found[row], expected, atol=1e-6)
