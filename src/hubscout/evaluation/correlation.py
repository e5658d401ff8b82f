"""How alike two rankings are: Kendall's tau, its weighted form, and how likely chance does as well."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations as all_permutations

import numpy as np

from hubscout.errors import InputError
from hubscout.evaluation.pairs import Better, Values, pair

Statistic = Callable[[np.ndarray, np.ndarray], float]
_EXACT_UP_TO = 6
"""720 orders; from seven models on, a sample of orders is drawn."""


def kendall_tau(
    scores: Values, reference: Values, *, better: Better = "higher", score_better: Better = "higher"
) -> float:
    """Kendall's τ_b: the share of pairs of models in the right order less that in the wrong one.

    From −1 to 1. A tie on either side leaves the pair out of the numerator, and shrinks that side's factor of the
    denominator. A side that is all one tie ranks nothing: 0.

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

    Up to six models all orders are tried; beyond, `permutations` of them drawn with `seed`, the observed one counted
    among them, so that the value is never 0. `statistic` takes two arrays with higher as better; τ_w where None.

    >>> permutation_p_value([1, 2, 3], [1, 2, 3])  # one order of six
    0.16666666666666666
    """
    if permutations < 1:
        raise InputError(f"permutations must be at least 1; got {permutations}.")
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
    if _ranks_nothing(scores, reference):
        return 0.0
    from scipy import stats

    return float(stats.kendalltau(scores, reference).statistic)


def weighted(scores: np.ndarray, reference: np.ndarray) -> float:
    """τ_w of two arrays, 0 where it is undefined."""
    if _ranks_nothing(scores, reference):
        return 0.0
    from scipy import stats

    return float(stats.weightedtau(scores, reference).statistic)


def _ranks_nothing(scores: np.ndarray, reference: np.ndarray) -> bool:
    return np.ptp(scores) == 0 or np.ptp(reference) == 0
