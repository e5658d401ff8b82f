"""How sure is the order, and whether any model knows the labels. Paired comparisons from the blocks of a jackknife.

Every model is scored on the same blocks of data, so what makes a block easy or hard for all models cancels in the
difference of two. With `s_i` the score of model i and `p_ib` its jackknife pseudo-value of block b (B blocks):

    C_ij = 1/(B(B-1)) Σ_b (p_ib - p̄_i)(p_jb - p̄_j)          covariance of the scores
    T_ij = (s_i - s_j) / √(C_ii - 2 C_ij + C_jj)             Student's t, B-1 degrees of freedom
    P(i better than j) = F_{B-1}(T_ij)

P(best) is the share of draws from the matching multivariate t (centre s, scale C, B-1 degrees of freedom) in which
the model comes first; draws are seeded. These are probabilities over which sample of data one happens to have, with a
flat prior; they say nothing of what fine-tuning may change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

import numpy as np
import scipy

from hubscout.errors import InputError
from hubscout.runs.row import Cause, Failure

if TYPE_CHECKING:
    from hubscout.runs.ranking import Ranking
    from hubscout.runs.row import Row


DRAWS = 20_000
TIED_ABOVE = 0.05
"""A model is not told apart from the best while P(it is better than the best) is at least this."""


@dataclass(frozen=True)
class Comparison:
    """Scores of K models with what is known of their differences.

    `pairwise[i, j]` is P(i better than j), one half on the diagonal. `p_best` sums to one. `tied` marks the models
    that cannot be told apart from the one with the best score, itself included.
    """

    pairwise: np.ndarray
    p_best: np.ndarray
    tied: np.ndarray


def deviations(block_scores: np.ndarray, block_sizes: np.ndarray | None = None) -> np.ndarray:
    """A root (K, B) of the covariance of the scores: C = D Dᵀ, from pseudo-values (K, B) of K models.

    Blocks of unequal size are weighted as in the delete-m_j jackknife (Busing, Meijer and van der Leeden, 1999):
    with h_b = n / m_b, each block's square is divided by B (h_b - 1), which for equal blocks is B (B-1).
    """
    values = np.asarray(block_scores, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2:
        raise InputError(f"block_scores must be (models, at least 2 blocks), not of shape {values.shape}.")
    blocks = values.shape[1]
    sizes = np.ones(blocks) if block_sizes is None else np.asarray(block_sizes, dtype=np.float64)
    if sizes.shape != (blocks,) or (sizes <= 0).any():
        raise InputError(f"block_sizes must be {blocks} positive numbers, not {sizes.tolist()}.")
    ratios = sizes.sum() / sizes
    centre = (values / ratios).sum(axis=1, keepdims=True)
    return (values - centre) / np.sqrt(blocks * (ratios - 1.0))


def compare(
    scores: np.ndarray, block_scores: np.ndarray, *, block_sizes: np.ndarray | None = None, seed: int = 0
) -> Comparison:
    """Compare models that were scored on the same blocks of samples.

    Args:
        scores: (K,), higher is better.
        block_scores: (K, B), the paired pseudo-values of a jackknife.
        block_sizes: (B,), samples of each block; None where they are equal.
        seed: of the draws.

    Returns:
        P(best) of each model, P(better) of each pair, and who is tied with the best.

    Raises:
        InputError: shapes that do not fit together, or values that are not finite.

    Example:
        >>> blocks = np.array([[1.0, 1.2, 1.1, 1.3], [0.5, 0.7, 0.6, 0.8]])
        >>> compare(np.array([1.15, 0.65]), blocks).p_best.tolist()   # always 0.5 apart, however hard the block
        [1.0, 0.0]

    """
    scores = np.asarray(scores, dtype=np.float64)
    root = deviations(block_scores, block_sizes)
    if scores.shape != (len(root),):
        raise InputError(f"scores of shape {scores.shape} do not fit block_scores of {len(root)} models.")
    pairwise = _pairwise(scores, root)
    best = int(scores.argmax())
    tied = pairwise[:, best] >= TIED_ABOVE
    tied[best] = True
    return Comparison(pairwise=pairwise, p_best=_probability_of_best(scores, root, seed), tied=tied)


def in_order(rows: Sequence[Row], seed: int) -> tuple[tuple[Row, ...], Comparison | None]:
    """Sort, number, and fill in P(best) and who is tied with the best. Dropped models come after the rest."""
    ranked = sorted(
        rows,
        key=lambda row: (row.dropped is not None, -row.dropped.n if row.dropped else 0, -row.score, row.identifier),
    )
    found = _comparison([row for row in ranked if row.dropped is None], seed)

    def placed(place: int, row: Row) -> Row:
        if found is None or row.dropped is not None:
            return replace(row, rank=place + 1, p_best=None, tied_with_best=place == 0 and row.dropped is None)
        p_best, tied = float(found.p_best[place]), bool(found.tied[place])
        return replace(row, rank=place + 1, p_best=p_best, tied_with_best=tied)

    return tuple(placed(place, row) for place, row in enumerate(ranked)), found


def _comparison(rows: Sequence[Row], seed: int) -> Comparison | None:
    """The paired comparison of the rows where all have pseudo-values of the same blocks, else None.

    A model may have skipped a sample that others took, so sizes may differ a little; other blocks differ more.
    """
    if not rows or any(len(row.block_scores) < 2 for row in rows):
        return None
    sizes = [np.array(row.block_sizes, dtype=np.float64) for row in rows]
    if any(len(other) != len(sizes[0]) or not np.allclose(other, sizes[0], rtol=0.1) for other in sizes):
        return None
    scores = np.array([row.score for row in rows])
    return compare(scores, np.array([row.block_scores for row in rows]), block_sizes=sizes[0], seed=seed)


def _resolution(scores: np.ndarray) -> float:
    """Differences below this are rounding: two copies of one model must come out even."""
    return 1e-10 * (1.0 + float(np.abs(scores).max(initial=0.0)))


def _pairwise(scores: np.ndarray, root: np.ndarray) -> np.ndarray:
    difference = scores[:, None] - scores[None, :]
    # By hand, and the t distribution by its function alone: scipy's modules for these hold 50 MB.
    spread = np.array([np.linalg.norm(root - row, axis=1) for row in root])
    resolution = _resolution(scores)
    certain = spread <= resolution
    settled = np.where(difference > resolution, 1.0, np.where(difference < -resolution, 0.0, 0.5))
    statistic = difference / np.where(certain, 1.0, spread)
    return np.where(certain, settled, scipy.special.stdtr(root.shape[1] - 1, statistic))


def _probability_of_best(scores: np.ndarray, root: np.ndarray, seed: int) -> np.ndarray:
    models, blocks = root.shape
    generator = np.random.default_rng(seed)
    wins = np.zeros(models)
    resolution = _resolution(scores)
    remaining = DRAWS
    while remaining:
        count = min(remaining, max(1, 2_000_000 // models))  # bounds the memory for a large hub
        shrink = np.sqrt(generator.chisquare(blocks - 1, size=(count, 1)) / (blocks - 1))
        draws = scores + (generator.standard_normal((count, blocks)) / shrink) @ root.T
        first = draws >= draws.max(axis=1, keepdims=True) - resolution
        wins += (first / first.sum(axis=1, keepdims=True)).sum(axis=0)
        remaining -= count
    return wins / DRAWS


ODDS = 20.0
"""To 1, that features explain a label: the least that counts."""
NOTHING_EXPLAINED = (
    "None of these models explains your labels: no label is predicted better than by its base rate. Check the labels "
    "and which column they come from, or try models of another kind."
)

TOO_FEW_TO_EXPLAIN = (
    "There are too few samples to be sure that any of these models explains your labels: no model reaches odds of 20 "
    "to 1, counted over all models and labels that were tried. Label more samples, or take the order as a guess."
)


def nothing_explained(rows: Sequence[Row]) -> str:
    """What is said where no model explains the labels; other words where one beats guessing by its interval."""
    beats = any(row.expected and row.expected[0].low > row.expected[0].guess for row in rows)
    return TOO_FEW_TO_EXPLAIN if beats else NOTHING_EXPLAINED


def any_explains(odds: Sequence[float | None], targets: int) -> bool | None:
    """Whether any model explains a target, from the log Bayes factor of each over base rates; None without any.

    The odds must be 20 to 1 times the number of targets and of models that were tried: of many that know nothing, the
    luckiest is not taken for one that knows.

    >>> any_explains([2.0, 40.0], targets=10), any_explains([2.0, 4.0], targets=10), any_explains([None], targets=10)
    (True, False, None)
    """
    known = [value for value in odds if value is not None]
    if not known:
        return None
    return max(known) > math.log(ODDS * len(known) * max(targets, 1))


def failed_words(ranking: Ranking) -> str:
    """How many of the models failed, and how many cost too much, in words."""
    models = len(ranking.rows) + len(ranking.failures)
    words = {"failed": "failed", "not reached": "not reached in time", "over the limits": "over the limits"}
    counts = {words[cause]: len(found) for cause, found in by_cause(ranking.failures).items() if found}
    first, *rest = (f"{count} {said}" for said, count in counts.items())
    number, said = first.split(" ", 1)
    return ", ".join([f"{number} of {models} models {said}", *rest])


def by_cause(failures: Sequence[Failure]) -> dict[str, list[Failure]]:
    """Models that could not be ranked: "failed", "not reached" in the time that there was, and "over the limits"."""
    found: dict[str, list[Failure]] = {cause: [] for cause in get_args(Cause)}
    for one in failures:
        found[one.cause].append(one)
    return found


def over_limit(failures: Sequence[Failure]) -> list[Failure]:
    """Those of models that cost more than was allowed, which nobody calls a failure."""
    return by_cause(failures)["over the limits"]
