"""The solvers find the maximum, and the paper's three the same one where there is one."""

import numpy as np
import pytest

from hubscout.errors import UnknownSolverError
from hubscout.evidence import logme
from hubscout.evidence.profile import Profile
from hubscout.evidence.solvers import Problem, newton
from hubscout.evidence.spectrum import Spectrum


def test_two_local_maxima_and_the_better_one_is_found():
    """A weak, long direction and a strong, short one: the iteration of the paper stops at the nearer maximum."""
    n = 4000
    values = np.concatenate([np.full(5, 1e8), np.full(2000, 1.0)])
    squares = np.concatenate([np.full(5, 60.0), np.full(2000, 1.5)])
    rest = n * 0.35
    features = np.zeros((n, 2005))
    features[np.arange(2005), np.arange(2005)] = np.sqrt(values)
    y = np.zeros(n)
    y[:2005] = np.sqrt(squares)
    y[2005:] = np.sqrt(rest / (n - 2005))
    left, squares_of_y = np.array([rest]), np.array([y @ y])
    spectrum = Spectrum(
        n,
        2005,
        values[::-1],
        y[None, :2005][:, ::-1],
        left,
        squares_of_y,
        None,
        noise_free=left < 0,
        repeated=left < 0,
        magnitude=values[0],
        target_magnitude=squares_of_y,
    )
    gain, slope = Profile.of(spectrum).on_grid(np.linspace(-30, 18, 400))
    crossings = np.flatnonzero((slope[0, :-1] > 0) & (slope[0, 1:] <= 0))
    assert len(crossings) == 2, "the example has two local maxima"
    best = Profile.of(spectrum)
    ratio = newton(Problem(spectrum, None)).ratio
    found = best.gain(ratio / best.scale, best.squares, best.unreachable)[0][0]
    assert found == pytest.approx(gain[0].max(), abs=1e-3)
    assert found >= gain[0].max()


def test_unknown_solver():
    with pytest.raises(UnknownSolverError, match=r"'newtonn'. Did you mean 'newton'"):
        logme(np.eye(3), [0, 1, 1], solver="newtonn")


def test_a_solver_that_is_cut_short_says_so(generator):
    features, y = generator.normal(size=(60, 150)), generator.normal(size=60)
    assert not logme(features, y, solver="fixed-point", max_iterations=2).converged
    assert logme(features, y, solver="fixed-point").iterations > 2
