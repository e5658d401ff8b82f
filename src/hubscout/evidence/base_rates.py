"""What features add to base rates: the evidence of a model with an intercept over that of the intercept alone.

The null model of a person is the base rate: how frequent a class is, the mean of a number. LogME of the paper has no
intercept, so part of its score is that features can say "one" at all. The model y = b + Fw + noise with a flat prior
on b needs no second decomposition. With K = I + FFᵀ/t, s = t/(t + σ²), a = Uᵀ1 and the targets less their mean,

    N(t) = 1ᵀK⁻¹1 = n - ‖a‖² + Σ a²s        M(t) = 1ᵀK⁻¹y = -Σ a z (1 - s)
    q(t) = ‖y‖² - ‖z‖² + Σ z²s - M²/N       β = (n - 1) / q

    2 L(t)/(n - 1) = log((n - 1)/q) - [Σ log(1 + σ²/t) + log(N/n)] / (n - 1) - 1 - log 2π

which is the evidence of centred features and targets, at the price of one more target: the constant. At t = ∞ it is
that of the intercept alone. The gain is the difference, and never negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hubscout.evidence.array_backend import Array, to_host
from hubscout.evidence.base_rate_profile import BaseRateProfile, ReducedBaseRateProfile
from hubscout.evidence.spectrum import EPSILON, Spectrum


@dataclass(frozen=True)
class OverBaseRates:
    """The fit with an intercept. Arrays have one entry per target; an unscored one has gain 0 and ratio ∞."""

    gain: np.ndarray
    """In nats per sample, over the intercept alone."""
    ratio: np.ndarray
    """t = α/β of the fit with an intercept; ∞ where features add nothing."""
    target_mean: np.ndarray
    """The base rates."""
    constant_column: np.ndarray
    """The constant as one more target: as `constant`, or where the spectrum's targets are reduced, as those."""
    feature_mean: np.ndarray | None
    """What was taken away from the features of the spectrum."""
    spectrum: Spectrum | None

    @cached_property
    def constant(self) -> np.ndarray:
        """A = Uᵀ1, (r,); zero for centred features, which do not reach the constant."""
        return self.constant_column if self.spectrum is None else _projected(self.spectrum, self.constant_column)


def _projected(spectrum: Spectrum, column: np.ndarray) -> np.ndarray:
    """The z of a target that is given as those of the spectrum are."""
    if spectrum.reduced is None or not len(column):
        return column
    return spectrum.reduced.projections(column[None, :], spectrum.squared_singular_values)[0]


def constant_of(spectrum: Spectrum, mean: Array) -> np.ndarray:
    """The constant as a target, from the features' mean: Fᵀ1 is n times that. See `OverBaseRates.constant_column`.

    With V, a = Uᵀ1 is that over σ: UᵀU Σ Vᵀ = Vᵀ Fᵀ 1.
    """
    if spectrum.reduced is not None:
        return spectrum.n * spectrum.reduced.vectors.reflect(mean[:, None], transposed=True)[:, 0]
    coordinates = spectrum.mean_coordinates
    if coordinates is None:
        coordinates = spectrum.vectors.coordinates(mean[None, :])[0]
    return spectrum.n * to_host(coordinates) / np.sqrt(to_host(spectrum.squared_singular_values))


def over_base_rates(
    spectrum: Spectrum, constant: np.ndarray, target_mean: np.ndarray, squares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gain over an intercept and its t, (C,) each, from the spectrum of features as they came.

    `target_mean` are the means of the targets of the spectrum, `squares` their sums of squares about these.
    """
    gain, ratio = np.zeros(len(squares)), np.full(len(squares), np.inf)
    varied = squares > 8 * np.sqrt(spectrum.n) * EPSILON * to_host(spectrum.target_squares)
    if spectrum.rank == 0 or spectrum.n < 2 or not varied.any():
        return gain, ratio
    reduced = ReducedBaseRateProfile.of(spectrum, constant, target_mean, squares, varied)
    constant = constant if reduced is not None else _projected(spectrum, constant)
    profile = reduced or BaseRateProfile.of(spectrum, constant, target_mean, squares, varied)
    gain[varied], ratio[varied] = profile.maximize()
    return gain, ratio
