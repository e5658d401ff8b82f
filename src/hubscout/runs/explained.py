"""Whether models know anything of the labels, and what is said where none of them does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubscout.runs.ranking import Ranking

ODDS = 20.0
"""To 1, that features explain a label: the least that counts."""
NOTHING_EXPLAINED = (
    "None of these models explains your labels: no label is predicted better than by its base rate. Check the labels "
    "and which column they come from, or try models of another kind."
)


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
    """How many of the models failed, in words."""
    failed = len(ranking.failures)
    return f"{failed} of {len(ranking.rows) + failed} models failed"
