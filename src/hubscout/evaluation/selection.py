"""What one gets by following a ranking: is the best model among the first k, and how good is the best of those?"""

from __future__ import annotations

import numpy as np

from hubscout.errors import InputError
from hubscout.evaluation.pairs import Better, Pairs, Values, pair


def top_k_accuracy(
    scores: Values, reference: Values, k: int = 1, *, better: Better = "higher", score_better: Better = "higher"
) -> float:
    """1 if a model with the best reference result is among the k best-scored, else 0.

    Averaged over data sets it is a share. Models tied in score are taken with the worst reference result first: a
    metric gets no credit for what it did not tell apart.

    >>> top_k_accuracy([3, 2, 1], [80, 90, 70], k=1), top_k_accuracy([3, 2, 1], [80, 90, 70], k=2)
    (0.0, 1.0)
    """
    pairs = pair(scores, reference, better=better, score_better=score_better)
    chosen = first_k(pairs, k)
    return float(pairs.reference[chosen].max() == pairs.reference.max())


def relative_at_k(
    scores: Values, reference: Values, k: int = 1, *, better: Better = "higher", score_better: Better = "higher"
) -> float:
    """Best reference result among the k best-scored models, relative to the best of all (Rel@k).

    At most 1, and 1 if the best model is among them. Where lower is better it is the least error of all over the least
    error among the chosen. Reference results must be positive, since a ratio means nothing otherwise; an error of 0
    that is not chosen gives 0. Ties as in `top_k_accuracy`.

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
