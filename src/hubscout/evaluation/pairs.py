"""Scores and reference results of the same models, side by side and both with higher as better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hubscout.errors import InputError

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
        if value not in ("higher", "lower"):
            raise InputError(f"{argument} must be 'higher' or 'lower'; got {value!r}.")
    if isinstance(scores, Mapping) != isinstance(reference, Mapping):
        raise InputError("scores and reference must both be mappings from names, or both sequences in one order.")
    left_out: tuple[str, ...] = ()
    if isinstance(scores, Mapping) and isinstance(reference, Mapping):
        names = tuple(name for name in scores if name in reference)
        left_out = tuple(sorted(set(scores) ^ set(reference)))
        if len(names) < 2:
            raise InputError(
                f"scores and reference must share at least two models; they share {len(names)} "
                f"of {len(scores)} and {len(reference)}."
            )
        first, second = [scores[name] for name in names], [reference[name] for name in names]
    else:
        first, second = list(scores), list(reference)
        if len(first) != len(second):
            raise InputError(f"scores has {len(first)} models, reference has {len(second)}: they must be equal.")
        if len(first) < 2:
            raise InputError(f"at least two models are needed to compare rankings; got {len(first)}.")
        names = tuple(str(place) for place in range(len(first)))
    return Pairs(
        names, _numbers(first, "scores", score_better), _numbers(second, "reference", better), left_out=left_out
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
