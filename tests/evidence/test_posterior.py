"""What the posterior predicts."""

import numpy as np
from scipy.stats import norm

from hubscout.evidence.posterior import probability_of_largest


def test_probability_of_largest_is_what_drawing_gives():
    means = np.array([[0.3, -0.5, 1.0, 0.9]])
    draws = means + np.random.default_rng(0).normal(size=(200_000, 4))
    frequencies = np.bincount(draws.argmax(1), minlength=4) / len(draws)
    np.testing.assert_allclose(probability_of_largest(means)[0], frequencies, atol=0.005)
    np.testing.assert_allclose(
        probability_of_largest(np.array([[0.7, 0.0]]))[0, 0], norm.cdf(0.7 / np.sqrt(2)), rtol=1e-12
    )
