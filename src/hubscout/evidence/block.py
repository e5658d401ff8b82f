"""`Block`: the sums over some samples, about a point near their mean.

Squares of features with a large common offset hold that offset and little else: at an offset of 1e8 deviations, float64
has no digit left for the deviations. So features (and real targets) are summed less a shift, and moved to another shift
by algebra that adds only what belongs there.

From the sums of all samples it is told which targets there is anything to explain of, and how many observations they
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.array_backend import (
    EPSILON,
    Array,
    add_outer,
    add_product,
    add_upper,
    is_torch,
    less,
    mirrored,
    namespace,
    packed_upper,
    sums_by_id,
    to_device_of,
    to_float64,
    to_host,
    upper_zeros,
    zeros_like_device,
)
from hubscout.evidence.checks import SMALLEST_NORM, Kind, scale_message


@dataclass
class Block:
    """The sums over one block of samples, in float64. F is (n, D) less the shift, Y is (n, C) less the target shift."""

    n: float
    """How many samples: with weights, their sum."""
    rows: int
    """How many rows they came in. Without weights it is n."""
    upper_gram: Array
    """FᵀF, (D, D), of which only the upper triangle counts: `gram` is the whole."""
    cross: Array
    """YᵀF, (C, D): for classes, the sum of the features of each."""
    target_squares: Array
    """The squared norm of each column of Y, (C,)."""
    feature_sum: Array
    """(D,)"""
    target_sum: Array
    """(C,)"""
    shift: Array
    """(D,): what was taken away from every row of features."""
    target_shift: Array
    """(C,): what was taken away from every row of targets; zero for classes and labels."""

    @property
    def gram(self) -> Array:
        """FᵀF, (D, D): a copy."""
        return mirrored(self.upper_gram)

    @classmethod
    def empty(cls, shift: Array, target_shift: Array) -> Block:
        """Sums over nothing, where the shifts live.

        Args:
            shift: (D,), which every row of features is taken less of.
            target_shift: (C,), the same of the targets.

        Returns:
            A block of no samples, on the device of the shifts.

        """
        sizes = {"D": int(shift.shape[0]), "C": int(target_shift.shape[0])}
        sums = {name: zeros_like_device(shift, *(sizes[axis] for axis in axes)) for name, axes in _AXES_OF_SUMS.items()}
        gram = upper_zeros(shift, sizes["D"])
        return cls(n=0, rows=0, upper_gram=gram, shift=shift, target_shift=target_shift, **sums)

    def add_rows(self, rows: Array, values: Array, kind: str, weights: Array | None = None) -> None:
        """Add features and targets that are not shifted yet.

        Args:
            rows: (n, D) features.
            values: n class ids, or an (n, C) matrix of targets, on the device of the features or on the host.
            kind: "classification", "multilabel" or "regression".
            weights: (n,): a row of weight w counts as w samples. None is 1 for all.

        """
        # Whether there is a shift, an accelerator would have to be asked.
        moved = less(rows, self.shift) if is_torch(rows) or self.shift.any() else to_float64(rows)
        count = int(rows.shape[0])
        self.rows += count
        if weights is None:
            self.n += count
            weighted = moved
            self.upper_gram = add_product(self.upper_gram, moved)
        else:
            self.n = whole_if_it_is(self.n + float(weights.sum()))
            weighted = moved * weights[:, None]
            self.upper_gram = add_product(self.upper_gram, moved * namespace(weights).sqrt(weights)[:, None])
        self.feature_sum += weighted.sum(0)
        if kind == "classification":
            classes = int(self.target_sum.shape[0])
            on_host = None if weights is None else to_host(weights)
            sizes = np.bincount(to_host(values), weights=on_host, minlength=classes).astype(np.float64)
            self.cross += sums_by_id(weighted, to_device_of(values, moved), classes)
            counts = to_device_of(sizes, moved)
            self.target_squares += counts
            self.target_sum += counts
            return
        columns = less(to_device_of(values, moved), self.target_shift)
        self.cross += columns.T @ weighted
        counted = columns if weights is None else columns * weights[:, None]
        self.target_squares += (columns * counted).sum(0)
        self.target_sum += counted.sum(0)

    def add(self, other: Block) -> None:
        """Add the sums of another block to this one.

        Args:
            other: sums over other samples, about any shift.

        """
        theirs = (to_device_of(getattr(other, name), self.cross) for name in _SHIFTS)
        alike = zip(theirs, (self.shift, self.target_shift), strict=True)
        if not all(one is two or bool((one == two).all()) for one, two in alike):
            other = other.about(to_device_of(self.shift, other.cross), to_device_of(self.target_shift, other.cross))
        self.n = whole_if_it_is(self.n + other.n)
        self.rows += other.rows
        add_upper(self.upper_gram, to_device_of(other.upper_gram, self.upper_gram))
        for name in _AXES_OF_SUMS:
            mine = getattr(self, name)
            mine += to_device_of(getattr(other, name), mine)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled as NumPy arrays: sums from one machine's accelerator are merged on another that may have none."""
        return {"n": self.n, "rows": self.rows, **{name: to_host(getattr(self, name)) for name in ARRAYS}}

    def copy(self) -> Block:
        """The same sums in memory of their own.

        Returns:
            The copy.

        """
        fresh = Block.empty(self.shift, self.target_shift)
        fresh.add(self)
        return fresh

    def rounded(self) -> Block:
        """The same sums on the host in memory of their own, for an error bar: float32 where there are many of them.

        The Gram matrix is packed.

        Returns:
            The rounded copy.

        """
        sums = {name: getattr(self, name).copy() for name in ARRAYS if name not in ("upper_gram", "cross")}
        return Block(
            n=self.n,
            rows=self.rows,
            upper_gram=packed_upper(self.upper_gram),
            cross=self.cross.astype(np.float32),
            **sums,
        )

    def select(self, targets: np.ndarray) -> Block:
        """The same sums for some of the targets.

        Args:
            targets: (C,) mask of those that stay.

        Returns:
            Sums whose features are shared with these, not copied.

        """
        if targets.all():
            return self
        rows = np.flatnonzero(targets)
        names = ("cross", "target_squares", "target_sum", "target_shift")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def has_labels(self, center: bool) -> np.ndarray:
        """Which targets differ from zero, or with centring from their mean, by more than rounding: (C,).

        Rounding is what subtraction leaves of equal numbers, as when a constant column is centred.

        Args:
            center: whether targets are centred.

        Returns:
            (C,) truth values.

        """
        n, sums, shift = self.n, to_host(self.target_sum), to_host(self.target_shift)
        squares = to_host(self.target_squares)
        wanted = squares - sums**2 / n if center else squares + shift * (2 * sums + n * shift)
        return wanted > 8 * np.sqrt(n) * EPSILON * squares

    def about(self, shift: Array, target_shift: Array) -> Block:
        """The sums less another shift, in memory of their own. Digits go where the new one is far from the mean.

        Args:
            shift: (D,), of the features.
            target_shift: (C,), of the targets.

        Returns:
            The moved sums.

        """
        moved = self.copy()
        moved.move(self.shift - shift, self.target_shift - target_shift)
        moved.shift, moved.target_shift = shift, target_shift
        return moved

    def about_zero(self) -> Block:
        """The sums of features and targets as they came, in memory of their own.

        Returns:
            The sums without a shift.

        """
        return self.about(0 * self.shift, 0 * self.target_shift)

    def about_mean(self) -> Block:
        """The sums less the means, in memory of their own: those of centred features and targets.

        Returns:
            The centred sums.

        """
        step, target_step = self.feature_sum / self.n, self.target_sum / self.n
        moved = self.copy()
        moved.move(-step, -target_step)
        moved.shift, moved.target_shift = self.shift + step, self.target_shift + target_step
        return moved

    def move(self, step: Array, target_step: Array) -> None:
        """Add a step to every row of features and one to every row of targets; the shifts stay.

        Args:
            step: (D,).
            target_step: (C,).

        """
        n = self.n
        if not (bool(step.any()) or bool(target_step.any())):
            return
        # (F + 1sᵀ)ᵀ(F + 1sᵀ) = FᵀF + s(Fᵀ1 + ns/2)ᵀ + (Fᵀ1 + ns/2)sᵀ
        self.upper_gram = add_outer(self.upper_gram, step, self.feature_sum + 0.5 * n * step)
        self.cross += (self.target_sum + n * target_step)[:, None] * step[None, :]
        self.cross += target_step[:, None] * self.feature_sum[None, :]
        self.target_squares += target_step * (2 * self.target_sum + n * target_step)
        self.feature_sum += n * step
        self.target_sum += n * target_step


def observations(n: float, center: bool) -> float:
    """How many observations n samples are. Centring spends one: only n - 1 contrasts between samples are left.

    It is what integrating over an intercept with a flat prior gives.
    """
    return n - 1 if center else n


def scored_targets(kind: Kind, names: Sequence[str], total: Block, center: bool) -> np.ndarray:
    """Which targets have any label to explain, (C,). A regression column without one is an error."""
    scored = total.has_labels(center)
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


def whole_if_it_is(n: float) -> float:
    """A number of samples as a whole number where it is one: weights may sum up to any."""
    return int(n) if float(n).is_integer() else n


ARRAYS = tuple(field.name for field in fields(Block) if field.name not in ("n", "rows"))
_SHIFTS = ("shift", "target_shift")
_AXES_OF_SUMS = {"cross": "CD", "target_squares": "C", "feature_sum": "D", "target_sum": "C"}
