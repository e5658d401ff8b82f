"""`Evidence`: what evidence maximisation finds, and how a person reads it in the terminal and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hubscout.evidence.array_backend import add_product, to_host
from hubscout.evidence.base_rates import OverBaseRates
from hubscout.evidence.block import Block
from hubscout.evidence.checks import Kind
from hubscout.evidence.posterior import predict_left_out, predict_mean, predict_variance
from hubscout.evidence.spectrum import Spectrum, kept
from hubscout.evidence.statistics import Statistics
from hubscout.text_table import html_table, text_table

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 12
"""Of more targets than this, the best and the worst explained ones are shown."""
NOTABLE_ROUNDING = 1e-5
"""Nats per sample from which rounding is worth a note."""
HEADS = ("target", "log evidence", "gain", "t = α/β", "β")


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """How well features explain targets: the log maximum evidence per sample, and the posterior it belongs to.

    Arrays have one entry per target, in the order of `targets`. A target without a single non-zero label (a class or a
    label that does not occur) has no evidence: it is named in `unscored`, is left out of every mean, and its entries
    are those of a model that predicts 0.

    Example:
        >>> from hubscout.evidence import logme
        >>> labels = np.repeat([0, 1], 20)
        >>> found = logme(np.eye(2)[labels] + 0.1 * np.random.default_rng(0).normal(size=(40, 2)), labels)
        >>> found.score > found.null_score, found.rank
        (True, 2)

    """

    kind: Kind
    """"classification", "multilabel" or "regression"."""
    targets: tuple[str, ...]
    n: float
    """How many samples; with weights, their sum."""
    feature_dim: int
    """D, the columns of the features."""
    score: float
    """The mean over the scored targets of log evidence / n, in nats per sample. Higher is better."""
    null_score: float
    """The score of a model that predicts 0 for every sample, or with centring the mean."""
    per_target: np.ndarray
    """The score of each target, in nats per sample."""
    per_target_null: np.ndarray
    """That of the null model."""
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
    """Of the features."""
    standard_error: float | None
    """Of the score, by a block jackknife; None with fewer than two blocks."""
    block_scores: np.ndarray = field(repr=False)
    """The jackknife's pseudo-values of the score; over the same blocks of samples, two models compare in pairs."""
    block_sizes: np.ndarray = field(repr=False)
    """Samples of each block of the jackknife."""
    solver: str
    """Which solver found it."""
    center: bool
    """Whether means were taken away first."""
    iterations: int
    """Of the solver."""
    per_target_converged: np.ndarray = field(repr=False)
    """Whether the solver finished, per target."""
    over_base_rates: OverBaseRates = field(repr=False)
    """The fit with an intercept: what features add to base rates, and predictions for samples left out."""
    unscored: tuple[str, ...] = ()
    unbounded: tuple[str, ...] = ()
    """Targets that the features fit without noise, as far as float64 can tell. Their evidence grows without bound as
    the noise goes to zero, so their scores say only that, and compare with no other."""
    rounding: float = 0.0
    """About how much of the score is rounding, in nats per sample."""
    feature_mean: np.ndarray | None = field(default=None, repr=False)
    """(D,), where means were taken away; else None."""
    spectrum: Spectrum | None = field(default=None, repr=False)
    """What convergence and predictive variances need; None after `without_spectrum`."""

    def __repr__(self) -> str:
        doubt = "" if self.standard_error is None else f" ± {self.standard_error:.4f}"
        size = f"n={self.n:g}, D={self.feature_dim:,}, {len(self.targets):,} targets"
        return f"Evidence({self.score:.4f}{doubt}, gain {self.gain:+.4f}; {size})"

    @property
    def gain(self) -> float:
        """What the features add to base rates, in nats per sample: the mean over the scored targets.

        It is not `score` less `null_score`, unless means were taken away: the score of the paper counts for classes
        and labels what a constant explains as well.
        """
        return float(self.per_target_gain[self.scored].mean())

    @property
    def scored(self) -> np.ndarray:
        """(C,), which targets have an evidence: all but those in `unscored`."""
        return np.array([name not in self.unscored for name in self.targets])

    @property
    def per_target_gain(self) -> np.ndarray:
        """What the features add to the base rate of each target, in nats per sample; times n, a log Bayes factor."""
        return self.over_base_rates.gain

    @property
    def converged(self) -> bool:
        """Whether the solver finished for every scored target."""
        return bool(self.per_target_converged.all())

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said beside the score; nothing, as a rule."""
        return tuple(notes(self))

    @property
    def convergence_guaranteed(self) -> np.ndarray:
        """Theorem 2 for every scored target: whether MacKay's iteration must have a fixed point."""
        from hubscout.evidence.profile import convergence_guaranteed

        return convergence_guaranteed(self)

    def predict(self, features: object) -> np.ndarray:
        """The posterior predictive mean fᵀm (+ intercept) of every target.

        Args:
            features: (n, D), as those of the fit.

        Returns:
            (n, C).

        Raises:
            InputError: features of another dimension, or that are not finite.

        """
        return predict_mean(self, features)

    def predict_variance(self, features: object) -> np.ndarray:
        """The posterior predictive variance fᵀA⁻¹f + 1/β of every target.

        Args:
            features: (n, D), as those of the fit.

        Returns:
            (n, C).

        Raises:
            InputError: as for `predict`, or the evidence was fitted with `keep_spectrum=False`.

        """
        return predict_variance(self, features)

    def predict_left_out(self, features: object, labels: np.ndarray) -> np.ndarray:
        """What the other rows predict for each of the rows that were fitted.

        Args:
            features: (n, D), those of the fit.
            labels: (n, C): 0/1 for classes and labels, numbers for regression.

        Returns:
            (n, C).

        Raises:
            InputError: as for `predict_variance`, or labels of another shape.

        """
        return predict_left_out(self, features, labels)

    def __rich__(self) -> Table:
        return text_table(HEADS, cells(self), right=HEADS[1:], title=title(self), notes=self.notes)

    def _repr_html_(self) -> str:
        return html_table(HEADS, cells(self), title=title(self), notes=self.notes)

    def without_spectrum(self) -> Evidence:
        """The same without what only predictive variances and convergence need: small enough to keep many.

        Returns:
            The smaller evidence; its scores and weights are the same.

        """
        return replace(self, spectrum=None, over_base_rates=replace(self.over_base_rates, spectrum=None))


def statistics_of(evidence: Evidence) -> Statistics:
    """The sums that an evidence with a spectrum came from, to rounding, in one block; to add to.

    Without centring the sums of features and targets themselves are not known: they are zero here, so that the result
    is only good for another maximisation without centring.
    """
    spectrum = kept(evidence.spectrum)
    values, basis = to_host(spectrum.squared_singular_values), to_host(spectrum.basis)
    scored = evidence.scored
    statistics = Statistics(evidence.kind, evidence.targets, feature_dim=evidence.feature_dim)
    shifts = (np.zeros(evidence.feature_dim), np.zeros(len(scored)))
    if evidence.feature_mean is not None:
        shifts = (evidence.feature_mean, evidence.intercept + evidence.weights @ evidence.feature_mean)
    block = Block.empty(*shifts)
    block.n, block.rows = evidence.n, round(evidence.n)
    block.upper_gram = add_product(block.upper_gram, (basis * np.sqrt(values)).T)
    block.cross[scored] = (to_host(spectrum.projections) * np.sqrt(values)) @ basis.T
    block.target_squares[scored] = to_host(spectrum.target_squares)
    # Batches of classes and labels are added as the zeros and ones that they are.
    statistics.blocks[0] = block if evidence.kind == "regression" else block.about(block.shift, 0 * block.target_shift)
    return statistics


def title(evidence: Evidence) -> str:
    """The score and what it is of."""
    error = f" ± {evidence.standard_error:.4f}" if evidence.standard_error is not None else ""
    return (
        f"LogME {evidence.score:.4f}{error}, gain {evidence.gain:+.4f} over base rates "
        f"(n = {evidence.n:,}, {evidence.feature_dim} features of rank {evidence.rank}, {evidence.kind})"
    )


def cells(evidence: Evidence) -> list[tuple[str, ...]]:
    """One line per target, the best explained first; the middle of many is left out."""
    gains = np.asarray(evidence.per_target_gain)
    order = [int(i) for i in np.argsort(-gains, kind="stable") if evidence.scored[i]]
    hidden = len(order) - SHOWN if len(order) > SHOWN + 1 else 0
    if hidden:
        order = order[: SHOWN // 2] + order[-(SHOWN // 2) :]
    lines: list[tuple[str, ...]] = [
        (
            str(evidence.targets[i]),
            f"{evidence.per_target[i]:.4f}",
            f"{gains[i]:+.4f}",
            f"{evidence.ratio[i]:.4g}",
            f"{evidence.beta[i]:.4g}",
        )
        for i in order
    ]
    if hidden:
        lines.insert(SHOWN // 2, (f"… {hidden} more", "", "", "", ""))
    return lines


def notes(evidence: Evidence) -> list[str]:
    """What must be said below the table."""
    lines = []
    if evidence.unscored:
        lines.append(f"Not scored, no label: {', '.join(str(name) for name in evidence.unscored)}.")
    if not evidence.converged:
        lines.append("The solver did not converge for every target.")
    return lines + caveats(evidence)


def caveats(evidence: Evidence) -> list[str]:
    """Why the score may not be taken at its word."""
    lines = []
    if evidence.unbounded:
        names = ", ".join(evidence.unbounded[:SHOWN]) + (", …" if len(evidence.unbounded) > SHOWN else "")
        lines.append(
            f"The features fit these targets without noise, so their evidence has no bound and the score compares "
            f"with no other: {names}. Is the label among the features, or do samples occur many times?"
        )
    elif evidence.rounding > 1:
        lines.append(
            "For some target the features leave so little noise that its part of the score is rounding, and the score "
            "compares with no other. Are there classes of very few samples, or samples that occur many times?"
        )
    elif evidence.rounding > NOTABLE_ROUNDING:
        lines.append(
            f"About {evidence.rounding:.1g} nats per sample of the score are rounding: the features differ too much in "
            "scale for float64, or leave too little noise in the labels. Standardise or centre them."
        )
    return lines
