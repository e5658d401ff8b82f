"""Which targets there is anything to explain of, and how many observations they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.array_backend import to_host
from hubscout.evidence.block import Block
from hubscout.evidence.checks import SMALLEST_NORM, Kind, scale_message
from hubscout.evidence.spectrum import EPSILON


def observations(n: float, center: bool) -> float:
    """How many observations n samples are. Centring spends one: only n - 1 contrasts between samples are left.

    It is what integrating over an intercept with a flat prior gives.
    """
    return n - 1 if center else n


def scored_targets(kind: Kind, names: Sequence[str], total: Block, center: bool) -> np.ndarray:
    """Which targets have any label to explain, (C,). A regression column without one is an error."""
    scored = has_labels(total, center)
    check_scored(kind, names, scored)
    largest = np.sqrt(to_host(total.target_squares)) + abs(to_host(total.target_shift))
    small = largest < SMALLEST_NORM
    if kind == "regression" and small.any():
        index = int(np.flatnonzero(small)[0])
        raise InputError(scale_message(f"the column {names[index]!r}", f"is of size {largest[index]:.3g}"))
    return scored


def check_scored(kind: Kind, names: Sequence[str], scored: np.ndarray) -> None:
    """Raise if targets that must have labels to explain have none."""
    missing = [name for name, is_scored in zip(names, scored, strict=True) if not is_scored]
    if kind == "regression" and missing:
        raise InputError(
            f"targets: the column {missing[0]!r} is zero everywhere (after centring, if that was asked for), so there "
            "is nothing to explain. Leave the column out."
        )
    if kind == "classification" and scored.sum() < 2:
        raise InputError("targets hold one class only; at least two are needed to compare features.")
    if not scored.any():
        raise InputError("targets: no label occurs in some samples and not in others, so there is nothing to explain.")


def has_labels(block: Block, center: bool) -> np.ndarray:
    """Which targets differ from zero, or with centring from their mean, by more than rounding: (C,).

    Rounding is what subtraction leaves of equal numbers, as when a constant column is centred.
    """
    n, sums, shift = block.n, to_host(block.target_sum), to_host(block.target_shift)
    squares = to_host(block.target_squares)
    wanted = squares - sums**2 / n if center else squares + shift * (2 * sums + n * shift)
    return wanted > 8 * np.sqrt(n) * EPSILON * squares


def select(block: Block, scored: np.ndarray) -> Block:
    """The same sums for some of the targets."""
    if scored.all():
        return block
    rows = np.flatnonzero(scored)
    return replace(
        block,
        cross=block.cross[rows],
        target_squares=block.target_squares[rows],
        target_sum=block.target_sum[rows],
        target_shift=block.target_shift[rows],
    )
