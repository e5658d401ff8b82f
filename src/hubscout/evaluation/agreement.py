"""What one gets by following a ranking, and `evaluate`: everything there is to say of one beside known results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubscout.errors import InputError, check_least
from hubscout.evaluation.correlation import Better, Pairs, Statistic, Values, pair, permutation_p_value, plain, weighted


def top_k_accuracy(
    scores: Values, reference: Values, k: int = 1, *, better: Better = "higher", score_better: Better = "higher"
) -> float:
    """1 if a model with the best reference result is among the k best-scored, else 0.

    Averaged over data sets it is a share. Models tied in score are taken with the worst reference result first: a
    metric gets no credit for what it did not tell apart.

    Args:
        scores: a value per model: a sequence, or a mapping from names.
        reference: the known results of the same models, in the same form.
        k: how many of the best-scored models are looked at.
        better: which way the reference goes: "lower" for an error.
        score_better: which way the scores go.

    Returns:
        1.0 or 0.0.

    Raises:
        InputError: fewer than two models, values that are not finite, or a `k` that is no number of models.

    Example:
        >>> top_k_accuracy([3, 2, 1], [80, 90, 70], k=1), top_k_accuracy([3, 2, 1], [80, 90, 70], k=2)
        (0.0, 1.0)

    """
    pairs = pair(scores, reference, better=better, score_better=score_better)
    return float(pairs.reference[first_k(pairs, k)].max() == pairs.reference.max())


def relative_at_k(
    scores: Values, reference: Values, k: int = 1, *, better: Better = "higher", score_better: Better = "higher"
) -> float:
    """Best reference result among the k best-scored models, relative to the best of all (Rel@k).

    At most 1, and 1 if the best model is among them. Where lower is better it is the least error of all over the least
    error among the chosen. Reference results must be positive, since a ratio means nothing otherwise; an error of 0
    that is not chosen gives 0. Ties as in `top_k_accuracy`.

    Args:
        scores: a value per model: a sequence, or a mapping from names.
        reference: the known results of the same models, in the same form.
        k: how many of the best-scored models are looked at.
        better: which way the reference goes: "lower" for an error.
        score_better: which way the scores go.

    Returns:
        The ratio, from 0 to 1.

    Raises:
        InputError: as for `top_k_accuracy`, or reference results that are negative or all 0.

    Example:
        >>> relative_at_k([3, 2, 1], [45, 90, 70], k=1)
        0.5

    """
    pairs = pair(scores, reference, better=better, score_better=score_better)
    ratio = relative(pairs, first_k(pairs, k), better)
    if ratio is None:
        raise InputError("reference must be positive for a relative result; it has values of another sign or only 0.")
    return ratio


def relative(pairs: Pairs, chosen: np.ndarray, better: Better) -> float | None:
    """Best result among the chosen relative to the best of all; None where a ratio means nothing."""
    results = pairs.reference if better == "higher" else -pairs.reference
    if (results < 0).any() or not results.any():
        return None
    if better == "higher":
        return float(results[chosen].max() / results.max())
    least = float(results[chosen].min())
    return 1.0 if least == results.min() else float(results.min()) / least


def first_k(pairs: Pairs, k: int) -> np.ndarray:
    """Places of the k best-scored models, best first."""
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= len(pairs.names):
        raise InputError(f"k must be a whole number from 1 to the number of models, {len(pairs.names)}; got {k!r}.")
    return np.lexsort((pairs.reference, -pairs.scores))[:k]


FEWEST_MODELS = 6
"""With fewer, a tau is nearly noise: of five models in random order one in 24 has a τ of 0.8 or more."""


@dataclass(frozen=True)
class Agreement:
    """How well scores rank models whose results are known. The taus are defined in `hubscout.evaluation`.

    `weighted_tau_low` and `weighted_tau_high` are a 95% interval by resampling models. `p_value` is the chance that a
    random order has at least this τ_w. `relative_at` and `top_k` map k to Rel@k and to whether the best model is among
    the first k; `relative_at` is empty where the reference has no meaningful ratio. `warning` is to be printed
    wherever the numbers are.
    """

    n_models: int
    """Models that both sides know."""
    kendall_tau: float
    """τ_b, from −1 to 1."""
    weighted_tau: float
    """τ_w, from −1 to 1."""
    weighted_tau_low: float
    weighted_tau_high: float
    p_value: float
    top_k: dict[int, float]
    relative_at: dict[int, float]
    best_model: str
    """The model with the best reference result."""
    chosen_model: str
    """The model with the best score."""
    better: Better
    """Which way the reference goes."""
    left_out: tuple[str, ...] = ()
    """Models that only one side knows."""
    warning: str | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """A line of a table: weighted tau, its interval, p, tau, Rel@1, the model that was chosen."""
        relative = self.relative_at.get(1)
        return (
            f"{self.weighted_tau:+.3f}",
            f"{self.weighted_tau_low:+.2f} … {self.weighted_tau_high:+.2f}",
            f"{self.p_value:.3f}",
            f"{self.kendall_tau:+.3f}",
            "–" if relative is None else f"{relative:.3f}",
            self.chosen_model,
        )

    def __str__(self) -> str:
        interval = f"[{self.weighted_tau_low:+.2f}, {self.weighted_tau_high:+.2f}]"
        line = (
            f"{self.n_models} models: weighted tau {self.weighted_tau:+.3f} {interval}, p = {self.p_value:.3f}, "
            f"tau {self.kendall_tau:+.3f}; chose {self.chosen_model}, best is {self.best_model}"
        )
        return line if self.warning is None else f"{line}. {self.warning}"


def evaluate(
    scores: Values,
    reference: Values,
    *,
    better: Better = "higher",
    score_better: Better = "higher",
    permutations: int = 2000,
    resamples: int = 1000,
    seed: int = 0,
) -> Agreement:
    """Compare scores with reference results, such as accuracies after fine-tuning.

    Args:
        scores: a value per model: a mapping from names, or a sequence. Of mappings, models that only one side knows are
            left out and named.
        reference: the known results of the same models, in the same form.
        better: which way the reference goes: "lower" for an error.
        score_better: which way the scores go.
        permutations: how many random orders the p-value is from, where there are too many to try all.
        resamples: how many times models are drawn again for the interval.
        seed: of both.

    Returns:
        Every number there is on the agreement, with a warning where there are too few models.

    Raises:
        InputError: fewer than two models in both, or values that are not finite.

    Example:
        >>> print(evaluate({"a": 0.9, "b": 0.7, "c": 0.8}, {"a": 91.0, "b": 85.2, "c": 88.1}))
        3 models: weighted tau +1.000 [...], p = 0.167, tau +1.000; chose a, best is a. Only 3 models: ...

    """
    pairs = pair(scores, reference, better=better, score_better=score_better)
    low, high = bootstrap_interval(pairs.scores, pairs.reference, resamples=resamples, seed=seed)
    order = first_k(pairs, len(pairs.names))
    places = [k for k in (1, 3, 5) if k < len(order)]
    best = pairs.reference.max()
    return Agreement(
        n_models=len(pairs.names),
        kendall_tau=plain(pairs.scores, pairs.reference),
        weighted_tau=weighted(pairs.scores, pairs.reference),
        weighted_tau_low=low,
        weighted_tau_high=high,
        p_value=permutation_p_value(pairs.scores, pairs.reference, permutations=permutations, seed=seed),
        top_k={k: float(pairs.reference[order[:k]].max() == best) for k in places},
        relative_at={k: ratio for k in places if (ratio := relative(pairs, order[:k], better)) is not None},
        best_model=pairs.names[int(pairs.reference.argmax())],
        chosen_model=pairs.names[int(order[0])],
        better=better,
        left_out=pairs.left_out,
        warning=(
            None
            if len(pairs.names) >= FEWEST_MODELS
            else f"Only {len(pairs.names)} models: a tau of fewer than {FEWEST_MODELS} is nearly noise; see the p-value"
        ),
    )


def bootstrap_interval(
    scores: np.ndarray,
    reference: np.ndarray,
    *,
    statistic: Statistic = weighted,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """A percentile interval of a rank correlation over models drawn with replacement.

    It answers how far the value would move with another zoo of this size. A model drawn twice ties with itself on both
    sides and so takes no part; draws of one model only are left out.

    Args:
        scores: (K,), higher is better.
        reference: (K,), higher is better.
        statistic: a function of both; weighted tau by default.
        level: the share of draws within the interval.
        resamples: how many draws.
        seed: of the draws.

    Returns:
        The lower and the upper end.

    Raises:
        InputError: `resamples` below 1, or a `level` that is not between 0 and 1.

    Example:
        >>> low, high = bootstrap_interval(np.array([1.0, 2, 3, 4, 5]), np.array([10.0, 30, 20, 40, 50]))
        >>> low < high
        True

    """
    check_least("resamples", resamples)
    if not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1; got {level!r}.")
    draws = np.random.default_rng(seed).integers(len(scores), size=(resamples, len(scores)))
    values = [statistic(scores[draw], reference[draw]) for draw in draws if np.ptp(draw) > 0]
    if not values:
        value = statistic(scores, reference)
        return value, value
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
