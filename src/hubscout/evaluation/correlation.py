"""How alike two rankings are: scores beside reference results, Kendall's tau, its weighted form, and chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations as all_permutations
from typing import Any, Literal, get_args

import numpy as np

from hubscout.errors import InputError, check_choice, check_least

Better = Literal["higher", "lower"]
Values = Sequence[float] | np.ndarray | Mapping[str, Any]
"""One value per model: in the same order on both sides, or by name. A `Score` brings its own direction."""


@dataclass(frozen=True)
class Pairs:
    """`scores[i]` and `reference[i]` are of the model `names[i]`, higher is better in both.

    `left_out` are models that only one side knows.
    """

    names: tuple[str, ...]
    scores: np.ndarray
    reference: np.ndarray
    left_out: tuple[str, ...] = ()


def pair(scores: Values, reference: Values, *, better: Better = "higher", score_better: Better = "higher") -> Pairs:
    """Bring scores and reference results of at least two models side by side.

    `better` is of the reference: `"lower"` for an error. A reference where lower is better is turned round, not the
    correlation: a weighted one looks at the best models most, and these would otherwise be the worst.

    >>> pair({"a": 1.0, "b": 2.0}, {"b": 0.1, "a": 0.3}, better="lower").reference
    array([-0.3, -0.1])
    """
    for argument, value in (("better", better), ("score_better", score_better)):
        check_choice(argument, value, get_args(Better))
    if isinstance(scores, Mapping) != isinstance(reference, Mapping):
        raise InputError("scores and reference must both be mappings from names, or both sequences in one order.")
    if not isinstance(scores, Mapping) and len(scores) != len(reference):
        raise InputError(f"scores has {len(scores)} models, reference has {len(reference)}: they must be equal.")
    first, second = (
        values if isinstance(values, Mapping) else {str(place): value for place, value in enumerate(values)}
        for values in (scores, reference)
    )
    names = tuple(name for name in first if name in second)
    if len(names) < 2:
        raise InputError(
            f"at least two models are needed to compare rankings; scores and reference share {len(names)} of "
            f"{len(first)} and {len(second)}."
        )
    return Pairs(
        names,
        _numbers([first[name] for name in names], "scores", score_better),
        _numbers([second[name] for name in names], "reference", better),
        left_out=tuple(sorted(set(first) ^ set(second))),
    )


def _numbers(values: Sequence[Any], argument: str, better: Better) -> np.ndarray:
    sign = 1.0 if better == "higher" else -1.0
    try:
        numbers = np.array(
            [value.signed_value if hasattr(value, "signed_value") else sign * float(value) for value in values]
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"{argument} must be numbers: {error}.") from error
    if not np.isfinite(numbers).all():
        raise InputError(f"{argument} must be finite; got {numbers[~np.isfinite(numbers)][0]}.")
    return numbers


Statistic = Callable[[np.ndarray, np.ndarray], float]
_EXACT_UP_TO = 6
"""720 orders; from seven models on, a sample of orders is drawn."""


def kendall_tau(
    scores: Values, reference: Values, *, better: Better = "higher", score_better: Better = "higher"
) -> float:
    """Kendall's τ_b: the share of pairs of models in the right order less that in the wrong one.

    From −1 to 1. A tie on either side leaves the pair out of the numerator, and shrinks that side's factor of the
    denominator. A side that is all one tie ranks nothing: 0.

    Args:
        scores: a value per model: a sequence, or a mapping from names.
        reference: the known results of the same models, in the same form.
        better: which way the reference goes: "lower" for an error.
        score_better: which way the scores go.

    Returns:
        τ_b.

    Raises:
        InputError: fewer than two models, or values that are not finite.

    Example:
        >>> kendall_tau([1, 2, 3], [10, 20, 30])
        1.0
        >>> kendall_tau([1, 2, 3], [0.3, 0.2, 0.1], better="lower")
        1.0

    """
    pairs = pair(scores, reference, better=better, score_better=score_better)
    return plain(pairs.scores, pairs.reference)


def weighted_tau(
    scores: Values, reference: Values, *, better: Better = "higher", score_better: Better = "higher"
) -> float:
    """Kendall's τ_w as SciPy's `weightedtau` computes it, which is the one that the papers print.

    An exchange of models ranked r and s, counted from 0 at the best, weighs 1/(r+1) + 1/(s+1) (the additive
    hyperbolic weigher), so that errors at the top cost most. The ranks are those of the reference and those of the
    scores, and the two results are averaged. Ties are as in τ_b, and among tied models the other side decides the
    rank. From −1 to 1; a side that is all one tie gives 0. Lower-is-better values are negated before ranking: τ_w of
    a negated side is not the negative of τ_w.

    Args:
        scores: a value per model: a sequence, or a mapping from names.
        reference: the known results of the same models, in the same form.
        better: which way the reference goes: "lower" for an error.
        score_better: which way the scores go.

    Returns:
        τ_w.

    Raises:
        InputError: fewer than two models, or values that are not finite.

    Example:
        >>> weighted_tau([3, 2, 1], [30, 20, 10])
        1.0
        >>> round(weighted_tau([3, 1, 2], [30, 20, 10]), 3), round(weighted_tau([2, 3, 1], [30, 20, 10]), 3)
        (0.545, 0.182)

    """
    pairs = pair(scores, reference, better=better, score_better=score_better)
    return weighted(pairs.scores, pairs.reference)


def permutation_p_value(
    scores: Values,
    reference: Values,
    *,
    better: Better = "higher",
    score_better: Better = "higher",
    statistic: Statistic | None = None,
    permutations: int = 2000,
    seed: int = 0,
) -> float:
    """How likely a random order of the models agrees with the reference at least as well: one-sided.

    Up to six models all orders are tried; beyond, a sample of them, the observed one counted among them, so that the
    value is never 0.

    Args:
        scores: a value per model: a sequence, or a mapping from names.
        reference: the known results of the same models, in the same form.
        better: which way the reference goes: "lower" for an error.
        score_better: which way the scores go.
        statistic: a function of two arrays in which higher is better; τ_w where None.
        permutations: how many orders are drawn where there are more than six models.
        seed: of the draws.

    Returns:
        The share of orders that agree at least as well.

    Raises:
        InputError: fewer than two models, values that are not finite, or `permutations` below 1.

    Example:
        >>> permutation_p_value([1, 2, 3], [1, 2, 3])  # one order of six
        0.16666666666666666

    """
    check_least("permutations", permutations)
    pairs = pair(scores, reference, better=better, score_better=score_better)
    measure = statistic or weighted
    # A trifle below, so that orders equal but for rounding count as equal.
    observed = measure(pairs.scores, pairs.reference) - 1e-12
    if len(pairs.names) <= _EXACT_UP_TO:
        orders = [np.array(order) for order in all_permutations(range(len(pairs.names)))]
        return float(np.mean([measure(pairs.scores[order], pairs.reference) >= observed for order in orders]))
    generator = np.random.default_rng(seed)
    as_good = sum(
        measure(generator.permutation(pairs.scores), pairs.reference) >= observed for _ in range(permutations)
    )
    return (1 + as_good) / (1 + permutations)


def plain(scores: np.ndarray, reference: np.ndarray) -> float:
    """τ_b of two arrays, 0 where it is undefined."""
    if len(scores) > _BY_PAIRS_UP_TO:
        return _by_scipy("kendalltau", scores, reference)
    return _share(_PairSums.of(scores, reference), np.ones(len(scores)))


def weighted(scores: np.ndarray, reference: np.ndarray) -> float:
    """τ_w of two arrays, 0 where it is undefined."""
    if len(scores) > _BY_PAIRS_UP_TO:
        return _by_scipy("weightedtau", scores, reference)
    sums, weights = _PairSums.of(scores, reference), 1.0 / np.arange(1, len(scores) + 1)
    both = 0.0
    for order in (np.lexsort((reference, scores)), np.lexsort((scores, reference))):
        by_model = np.empty(len(scores))
        by_model[order[::-1]] = weights
        both += _share(sums, by_model)
    return both / 2


_BY_PAIRS_UP_TO = 200
"""Models of which all pairs are looked at. SciPy's way, of n log n, takes longer up to about here, for its checks."""


@dataclass(frozen=True)
class _PairSums:
    """For each model over all others: +1 where both sides put the two in one order, −1 where not; and how many are
    not tied with it, on either side.
    """

    agreement: np.ndarray
    untied_scores: np.ndarray
    untied_reference: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, reference: np.ndarray) -> _PairSums:
        first, second = (
            (side[:, None] > side).astype(np.int8) - (side[:, None] < side).astype(np.int8)
            for side in (scores, reference)
        )
        return cls((first * second).sum(1), np.abs(first).sum(1), np.abs(second).sum(1))


def _share(sums: _PairSums, weights: np.ndarray) -> float:
    """Agreement as a share of what it could be, where an exchange of two models weighs the sum of their weights."""
    most = float(np.sqrt((weights @ sums.untied_scores) * (weights @ sums.untied_reference)))
    return float(np.clip(weights @ sums.agreement / most, -1.0, 1.0)) if most > 0 else 0.0


def _by_scipy(name: str, scores: np.ndarray, reference: np.ndarray) -> float:
    if np.ptp(scores) == 0 or np.ptp(reference) == 0:
        return 0.0
    from scipy import stats

    return float(getattr(stats, name)(scores, reference).statistic)
