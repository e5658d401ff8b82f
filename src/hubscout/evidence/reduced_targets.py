"""Targets in coordinates in which the matrix of the features is tridiagonal, where that is all that is needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hubscout.evidence.array_backend import Array
from hubscout.evidence.eigenvectors import Eigenvectors, Factored
from hubscout.evidence.tridiagonal import Tridiagonal

FEW = 8
"""Times as many dimensions as targets, from where on eigenvectors are dearer than doing without."""
SMALLEST_SIZE = 512
"""Dimensions, below which there is nothing to be saved."""
SMALLEST_VALUE = 1e-10
"""The smallest over the largest σ², below which only eigenvectors tell them apart well enough."""


@dataclass(frozen=True)
class Reduced:
    """Targets in the coordinates Q in which FᵀF, or in the dual FFᵀ, is the tridiagonal matrix T.

    With full rank, a score needs no more of them than this; their z takes the eigenvectors of T.
    """

    vectors: Factored
    """Q and T."""
    columns: np.ndarray
    """Qᵀ Fᵀ y, in the dual Qᵀ y: (D, C)."""
    dual: bool
    largest: float
    """The largest eigenvalue of T."""

    @cached_property
    def matrix(self) -> Tridiagonal:
        """T over its largest eigenvalue."""
        return self.vectors.middle.scaled(1 / self.largest)

    @classmethod
    def of(cls, vectors: Eigenvectors, rows: Array, values: Array, *, dual: bool) -> Reduced | None:
        """Reduce the targets, (C, D), where that pays: they are few, and the matrix has full rank."""
        if not isinstance(vectors, Factored) or vectors.start:
            return None
        if len(values) < max(FEW * len(rows), SMALLEST_SIZE) or values[0] < SMALLEST_VALUE * values[-1]:
            return None
        return cls(vectors, vectors.reflect(rows.T, transposed=True), dual, float(values[-1]))

    def projections(self, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The z of targets, (k, r), that are rows in these coordinates, (k, D)."""
        found = rows @ self.vectors.inner
        return found if self.dual else found / np.sqrt(values)
