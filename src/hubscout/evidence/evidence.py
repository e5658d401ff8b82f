"""`Evidence`: what evidence maximisation finds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hubscout.evidence.base_rates import OverBaseRates
from hubscout.evidence.checks import Kind
from hubscout.evidence.posterior import predict_left_out, predict_mean, predict_variance
from hubscout.evidence.spectrum import Spectrum

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, eq=False)
class Evidence:
    """How well features explain targets: the log maximum evidence per sample, and the posterior it belongs to.

    Arrays have one entry per target, in the order of `targets`. A target without a single non-zero label (a class or a
    label that does not occur) has no evidence: it is named in `unscored`, is left out of every mean, and its entries
    are those of a model that predicts 0.
    """

    kind: Kind
    targets: tuple[str, ...]
    n: float
    feature_dim: int
    score: float
    """The mean over the scored targets of log evidence / n, in nats per sample. Higher is better."""
    null_score: float
    """The score of a model that predicts 0 for every sample, or with centring the mean."""
    per_target: np.ndarray
    per_target_null: np.ndarray
    alpha: np.ndarray
    """The prior precision of the weights; ∞ where the null model is best."""
    beta: np.ndarray
    """The precision of the noise."""
    ratio: np.ndarray
    """t = α / β."""
    weights: np.ndarray = field(repr=False)
    """m, the posterior mean, (C, D)."""
    intercept: np.ndarray = field(repr=False)
    """(C,): what centring took away; zero without it."""
    rank: int
    standard_error: float | None
    """Of the score, by a block jackknife; None with fewer than two blocks."""
    block_scores: np.ndarray = field(repr=False)
    """The jackknife's pseudo-values of the score; over the same blocks of samples, two models compare in pairs."""
    block_sizes: np.ndarray = field(repr=False)
    solver: str
    center: bool
    iterations: int
    per_target_converged: np.ndarray = field(repr=False)
    over_base_rates: OverBaseRates = field(repr=False)
    """The fit with an intercept: what features add to base rates, and predictions for samples left out."""
    unscored: tuple[str, ...] = ()
    unbounded: tuple[str, ...] = ()
    """Targets that the features fit without noise, as far as float64 can tell. Their evidence grows without bound as
    the noise goes to zero, so their scores say only that, and compare with no other."""
    rounding: float = 0.0
    """About how much of the score is rounding, in nats per sample."""
    feature_mean: np.ndarray | None = field(default=None, repr=False)
    spectrum: Spectrum | None = field(default=None, repr=False)
    """What convergence and predictive variances need; None after `without_spectrum`."""

    @property
    def gain(self) -> float:
        """What the features add to base rates, in nats per sample: the mean over the scored targets.

        It is not `score` less `null_score`, unless means were taken away: the score of the paper counts for classes
        and labels what a constant explains as well.
        """
        scored = np.array([name not in self.unscored for name in self.targets])
        return float(self.per_target_gain[scored].mean())

    @property
    def per_target_gain(self) -> np.ndarray:
        """What the features add to the base rate of each target, in nats per sample; times n, a log Bayes factor."""
        return self.over_base_rates.gain

    @property
    def converged(self) -> bool:
        """Whether the solver finished for every scored target."""
        return bool(self.per_target_converged.all())

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be said beside the score; nothing, as a rule."""
        from hubscout.evidence.evidence_table import remarks

        return tuple(remarks(self))

    @property
    def convergence_guaranteed(self) -> np.ndarray:
        """Theorem 2 for every scored target: whether MacKay's iteration must have a fixed point."""
        from hubscout.evidence.convergence import convergence_guaranteed

        return convergence_guaranteed(self)

    def predict(self, features: object) -> np.ndarray:
        """The posterior predictive mean fᵀm (+ intercept), (n, C)."""
        return predict_mean(self, features)

    def predict_variance(self, features: object) -> np.ndarray:
        """The posterior predictive variance fᵀA⁻¹f + 1/β, (n, C)."""
        return predict_variance(self, features)

    def predict_left_out(self, features: object, labels: np.ndarray) -> np.ndarray:
        """Of the rows that were fitted: what the other rows predict for each, (n, C); `labels` are (n, C)."""
        return predict_left_out(self, features, labels)

    def __rich__(self) -> Table:
        from hubscout.evidence.evidence_table import as_table

        return as_table(self)

    def _repr_html_(self) -> str:
        from hubscout.evidence.evidence_table import as_html

        return as_html(self)

    def without_spectrum(self) -> Evidence:
        """The same without what only predictive variances and convergence need: small enough to keep many."""
        return replace(self, spectrum=None, over_base_rates=replace(self.over_base_rates, spectrum=None))
