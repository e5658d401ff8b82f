"""The eigenvectors of a symmetric matrix, to multiply with, and to be written out only where they are needed whole.

A matrix is first brought to tridiagonal form, A = Q T Qᵀ, with Q a product of reflections, and then T = S Λ Sᵀ. The
eigenvectors are V = Q S. The score of many targets needs VᵀB for their columns B only, for which Q and S are applied
one after the other: writing V out costs about as much as finding Q. That of a few targets needs QᵀB and T, and not S:
those targets are `Reduced`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hubscout.evidence.array_backend import Array, is_torch
from hubscout.evidence.tridiagonal import Tridiagonal

SMALLEST = 256
"""Below this size there is nothing to be saved."""
COLUMNS = 64
"""How many columns of a triangle are mirrored at a time."""
FEW = 8
"""Times as many dimensions as targets, from where on eigenvectors are dearer than doing without."""
SMALLEST_SIZE = 512
"""Dimensions, below which there is nothing to be saved."""
SMALLEST_VALUE = 1e-10
"""The smallest over the largest σ², below which only eigenvectors tell them apart well enough."""


class WrittenOut:
    """Eigenvectors V, (D, r), that are there as a matrix."""

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix

    def coordinates(self, rows: Array) -> Array:
        """The product rows · V, for (k, D) rows."""
        return rows @ self.matrix

    def combine(self, coefficients: Array) -> Array:
        """The product coefficients · Vᵀ, for (k, r) coefficients."""
        return coefficients @ self.matrix.T

    def since(self, start: int) -> WrittenOut:
        """V without its first `start` columns."""
        return WrittenOut(self.matrix[:, start:])


class Deferred(WrittenOut):
    """Eigenvectors that a function writes out when somebody asks for them. A pickle holds them written out."""

    def __init__(self, write: Callable[[], Array]) -> None:
        self._write = write

    @cached_property
    def matrix(self) -> Array:
        """V, written out."""
        return self._write()

    def __getstate__(self) -> dict[str, Array]:
        return {"matrix": self.matrix}


class Factored:
    """Eigenvectors Q·S from some on, with Q as the reflections that LAPACK's `dsytrd` leaves below the diagonal."""

    def __init__(self, reflections: np.ndarray, factors: np.ndarray, middle: Tridiagonal, start: int = 0) -> None:
        self.reflections, self.factors, self.middle, self.start = reflections, factors, middle, start

    @property
    def inner(self) -> np.ndarray:
        """S."""
        return self.middle.eigenvectors[:, self.start :]

    @cached_property
    def matrix(self) -> np.ndarray:
        """V, written out."""
        return self.reflect(self.inner, transposed=False)

    def coordinates(self, rows: np.ndarray) -> np.ndarray:
        """The product rows · V."""
        return (self.inner.T @ self.reflect(rows.T, transposed=True)).T

    def combine(self, coefficients: np.ndarray) -> np.ndarray:
        """The product coefficients · Vᵀ."""
        return self.reflect(self.inner @ coefficients.T, transposed=False).T

    def since(self, start: int) -> Factored:
        """V without its first columns."""
        return Factored(self.reflections, self.factors, self.middle, self.start + start)

    def reflect(self, columns: np.ndarray, *, transposed: bool) -> np.ndarray:
        """Q · columns, or Qᵀ · columns. Q leaves the first row alone."""
        from scipy.linalg.lapack import dormqr

        result = np.array(columns, order="F")
        lower = np.asfortranarray(result[1:])
        way = "T" if transposed else "N"
        _, work, _ = dormqr("L", way, self.reflections, self.factors, lower, -1)
        result[1:], _, _ = dormqr("L", way, self.reflections, self.factors, lower, int(work[0]), overwrite_c=True)
        return result


Eigenvectors = WrittenOut | Factored


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


def symmetric_eigh(upper: Array, *, overwrite: bool = True) -> tuple[Array, Eigenvectors]:
    """Eigenvalues, rising, and eigenvectors of the matrix that has this upper triangle."""
    if is_torch(upper):
        import torch

        values, vectors = torch.linalg.eigh(upper, UPLO="U")
        return values, WrittenOut(vectors)
    if upper.shape[0] >= SMALLEST:
        found = _tridiagonal(upper)
        if found is not None:
            return found
    from scipy.linalg import eigh

    values, vectors = eigh(upper, lower=False, driver="evd", overwrite_a=overwrite, check_finite=False)
    return values, WrittenOut(vectors)


def _tridiagonal(upper: np.ndarray) -> tuple[np.ndarray, Factored] | None:
    """By LAPACK's steps, one by one; None if the last of them does not converge."""
    from scipy.linalg.lapack import dsterf, dsytrd, dsytrd_lwork

    size = upper.shape[0]
    lower = np.empty_like(upper, order="F")
    for start in range(0, size, COLUMNS):  # a few columns at a time: both triangles lie in memory by columns
        part = slice(start, start + COLUMNS)
        lower[start:, part] = upper[part, start:].T
    work, _ = dsytrd_lwork(size, lower=1)
    reduced, diagonal, beside, factors, _ = dsytrd(lower, lower=1, lwork=int(work), overwrite_a=True)
    values, status = dsterf(diagonal, beside)
    if status != 0:
        return None
    return values, Factored(np.asfortranarray(reduced[1:, :-1]), factors, Tridiagonal(diagonal, beside))
