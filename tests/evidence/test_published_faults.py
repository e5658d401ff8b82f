"""Each fault of the released code, written down as a small function, and shown not to be ours."""

import numpy as np
import pytest

from hubscout.evidence import logme


def released(features, y, *, tolerance=1e-3, iterations=11, epsilon=1e-5, drop_prior_volume=True):
    """One target as the released fixed-point code has it: its stopping rule, its 1e-5, its log determinant."""
    n, dim = features.shape
    _, singular, right = np.linalg.svd(features, full_matrices=False)
    squares = singular**2
    z = (features @ right.T / np.where(singular > 0, singular, 1)).T @ y
    rest = max(float(y @ y - z @ z), 0.0)
    alpha = beta = 1.0
    for _ in range(iterations):
        t = alpha / beta
        gamma = (squares / (squares + t)).sum()
        mean_squared = (squares * z**2 / (t + squares) ** 2).sum()
        error = (z**2 / (1 + squares / t) ** 2).sum() + rest
        alpha, beta = gamma / (mean_squared + epsilon), (n - gamma) / (error + epsilon)
        if abs(alpha / beta - t) / t <= tolerance:
            break
    log_determinant = np.log(alpha + beta * squares).sum()
    if not drop_prior_volume:
        log_determinant += (dim - len(squares)) * np.log(alpha)
    return (
        n * np.log(beta)
        + dim * np.log(alpha)
        - n * np.log(2 * np.pi)
        - beta * error
        - alpha * mean_squared
        - log_determinant
    ) / (2 * n)


def released_mean(features, ids):
    return np.mean([released(features, (ids == label).astype(float)) for label in range(ids.max() + 1)])


@pytest.fixture
def few_samples():
    """Real features of 100 dimensions that carry the classes, and pure noise of 2,000 dimensions; 60 samples."""
    generator = np.random.default_rng(0)
    ids = np.arange(60) % 3
    real = generator.normal(size=(60, 100)) + 1.5 * generator.normal(size=(3, 100))[ids]
    return real, generator.normal(size=(60, 2000)), ids


def test_noise_does_not_outrank_features_when_samples_are_few(few_samples):
    real, noise, ids = few_samples
    assert released_mean(noise, ids) > released_mean(real, ids), "the fault: (D - r)/2 · log α is missing"
    assert logme(real, ids).score > logme(noise, ids).score
    assert logme(noise, ids).gain == pytest.approx(0, abs=0.05)


def test_the_function_above_is_right_without_its_faults(few_samples):
    real, _, ids = few_samples
    y = (ids == 0).astype(float)
    repaired = released(real, y, tolerance=0, iterations=5000, epsilon=0.0, drop_prior_volume=False)
    assert logme(real, ids).per_target[0] == pytest.approx(repaired, abs=1e-9)


def test_rescaling_does_not_move_scores(generator):
    features = generator.normal(size=(200, 10))
    y = features[:, 0] + generator.normal(size=200)
    moved = abs(released(features, 1e-4 * y) - np.log(1e4) - released(features, y))
    assert moved > 0.1, "the fault: 1e-5 in a denominator is not small beside small labels"
    shift = logme(features, 1e-4 * y).score - np.log(1e4) - logme(features, y).score
    assert abs(shift) < 1e-10


def test_a_rare_class_is_solved_to_the_end(generator):
    rare = (np.arange(2000) % 100 == 0).astype(int)
    features = 20 * (generator.normal(size=(2000, 30)) + 0.1 * rare[:, None])
    y = rare.astype(float)
    stopped = released(features, y, epsilon=0.0, drop_prior_volume=False)
    exact = released(features, y, epsilon=0.0, drop_prior_volume=False, tolerance=0, iterations=20_000)
    ours = logme(features, rare)
    assert ours.per_target[1] == pytest.approx(exact, abs=1e-9)
    assert exact - stopped > 1e-7, "the fault: eleven iterations are not enough"
    assert ours.converged


def test_an_absent_class_does_not_change_the_mean(generator):
    ids = np.repeat([0, 1, 3], 30)
    features = generator.normal(size=(90, 8)) + generator.normal(size=(4, 8))[ids]
    result = logme(features, ids)
    assert result.targets == ("0", "1", "3")
    listed = logme(features, ids, classes=[0, 1, 2, 3])
    assert listed.targets == ("0", "1", "2", "3")
    assert listed.unscored == ("2",)
    assert listed.score == result.score
    assert listed.per_target[2] == listed.per_target_gain[2] == 0
    assert (listed.weights[2] == 0).all()
    assert np.isfinite(listed.predict(features)).all()
    assert np.isfinite(listed.predict_variance(features)).all()


def test_the_rank_is_relative(generator):
    features = generator.normal(size=(50, 6)) @ generator.normal(size=(6, 9))
    y = features[:, 0] + generator.normal(size=50)
    ranks = {logme(scale * features, y).rank for scale in (1e-8, 1e-3, 1.0, 1e8)}
    assert ranks == {6}


def test_classes_do_not_share_state(generator):
    features = generator.normal(size=(80, 5))
    Y = np.column_stack([features[:, 0], generator.normal(size=80), features.sum(1)])
    together = logme(features, Y)
    for column in range(3):
        alone = logme(features, Y[:, column])
        assert alone.score == pytest.approx(together.per_target[column], rel=1e-13)


@pytest.mark.parametrize("shape", [(60, 8), (8, 60)])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inputs_are_never_changed(generator, shape, center, dtype):
    features = generator.normal(size=shape).astype(dtype)
    Y = generator.normal(size=(shape[0], 2))
    kept = features.copy(), Y.copy()
    features.flags.writeable = Y.flags.writeable = False
    result = logme(features, Y, center=center)
    result.predict(features), result.predict_variance(features)
    np.testing.assert_array_equal(features, kept[0])
    np.testing.assert_array_equal(Y, kept[1])
