"""The eigenvectors of a symmetric matrix, to multiply with, and to be written out only where they are needed whole.

A matrix is first brought to tridiagonal form, A = Q T Qᵀ, with Q a product of reflections, and then T = S Λ Sᵀ. The
eigenvectors are V = Q S. The score of many targets needs VᵀB for their columns B only, for which Q and S are applied
one after the other: writing V out costs about as much as finding Q. That of a few targets needs QᵀB and T, and not S:
those targets are `Reduced`.

Of T, a score needs cᵀ(T + tI)⁻¹c and its derivatives in t, for a column c. At one t per column LAPACK factorises T +
tI. For all columns on a grid of t, T is cut into short pieces with a row between every two: with the eigenvectors of
the pieces the rest is matrix products and, for the rows between, an elimination of a dozen steps. All eigenvectors of
T would take as long as half of the reduction to T.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from hubscout.evidence.array_backend import Array, is_torch

LENGTH = 32
"""Rows of a piece, about. One thread takes as long with pieces of 128; with several, NumPy's would wake up for products
of that size, and get in the way of SciPy's."""


@dataclass(frozen=True)
class Piece:
    """Some rows of T, S Λ Sᵀ, in the coordinates of S."""

    rows: slice
    values: np.ndarray
    """Λ."""
    vectors: np.ndarray
    """S."""
    left: np.ndarray
    """What ties the piece to the row before it; zero for the first."""
    right: np.ndarray
    """The same for the row after it."""


@dataclass(frozen=True)
class Tridiagonal:
    """T, by its diagonal, (D,), and what is beside it, (D - 1,)."""

    diagonal: np.ndarray
    beside: np.ndarray

    @property
    def size(self) -> int:
        """D."""
        return len(self.diagonal)

    @cached_property
    def eigenvectors(self) -> np.ndarray:
        """All of them, (D, D), by rising eigenvalue."""
        from scipy.linalg import eigh_tridiagonal
        from scipy.linalg.lapack import dstevd

        _, vectors, status = dstevd(self.diagonal, self.beside, compute_v=1)
        return vectors if status == 0 else eigh_tridiagonal(self.diagonal, self.beside)[1]

    def solve(self, t: np.ndarray, *columns: np.ndarray, repeats: int = 1) -> list[np.ndarray]:
        """(T + tI)⁻¹ to the powers 1 to `repeats`, times every column, (D, P) each; with one t per column, (P,).

        The results of the first columns come first.
        """
        from scipy.linalg.lapack import dpttrf, dpttrs

        # In memory column by column, as (P, columns, D).
        right = np.stack([column.T for column in columns], axis=1)
        found = np.empty((repeats, *right.shape))
        for place, ratio in enumerate(t):
            pivots, ties, status = dpttrf(self.diagonal + ratio, self.beside)
            if status:
                raise np.linalg.LinAlgError("a tridiagonal matrix is not positive definite")
            solved = right[place].T
            for power in range(repeats):
                solved, _ = dpttrs(pivots, ties, solved)
                found[power, place] = solved.T
        return [found[power, :, index].T for index in range(len(columns)) for power in range(repeats)]

    def solve_all(self, columns: np.ndarray) -> np.ndarray:
        """T⁻¹ times (D, C) columns."""
        from scipy.linalg.lapack import dptsv

        _, _, found, status = dptsv(self.diagonal, self.beside, columns)
        if status:
            raise np.linalg.LinAlgError("a tridiagonal matrix is not positive definite")
        return found

    def scaled(self, factor: float) -> Tridiagonal:
        """T times a number."""
        return Tridiagonal(self.diagonal * factor, self.beside * factor)

    def on_grid(self, columns: np.ndarray, t: np.ndarray, *, with_last: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Find cᵀ(T + tI)⁻¹c and cᵀ(T + tI)⁻²c for all (D, C) columns at all t, (C, G) each.

        With `with_last`, the last column stands on the right of all of them.
        """

        def mate(array: np.ndarray) -> np.ndarray:
            return array[-1:] if with_last else array

        zeros, none = np.zeros((columns.shape[1], len(t))), np.zeros(len(t))
        form, change = zeros, zeros.copy()
        # Elimination from the first row on, piece by piece, with its derivative in t. Of the row before a piece: its
        # right-hand sides and its pivot.
        rest, rest_change, pivot, pivot_change = zeros.copy(), zeros.copy(), none + 1, none
        for piece in self.pieces:
            shrunk = 1 / (piece.values[:, None] + t)
            squared = shrunk**2
            seen = columns[piece.rows].T @ piece.vectors
            squares, left, right = seen * mate(seen), seen * piece.left, seen * piece.right
            form += squares @ shrunk
            change -= squares @ squared
            rest -= left @ shrunk
            rest_change += left @ squared
            pivot = pivot - piece.left**2 @ shrunk
            pivot_change = pivot_change + piece.left**2 @ squared
            form += rest * (mate(rest) / pivot)
            change += (
                rest_change * mate(rest) + rest * (mate(rest_change) - mate(rest) * pivot_change / pivot)
            ) / pivot
            if piece.rows.stop == self.size:
                break
            row, across = piece.rows.stop, piece.left * piece.right
            tie, tie_change = -across @ shrunk, across @ squared
            factor = tie / pivot
            factor_change = (tie_change - factor * pivot_change) / pivot
            rest_change = right @ squared - factor_change * rest - factor * rest_change
            rest = columns[row][:, None] - right @ shrunk - factor * rest
            pivot = self.diagonal[row] + t - piece.right**2 @ shrunk - factor * tie
            pivot_change = 1 + piece.right**2 @ squared - factor_change * tie - factor * tie_change
        return form, -change

    @cached_property
    def pieces(self) -> list[Piece]:
        """All rows but one between every two pieces."""
        return list(self._cut())

    def _cut(self) -> Iterator[Piece]:
        from scipy.linalg import eigh_tridiagonal

        count = max(round(self.size / LENGTH), 1)
        edges = [-1, *((index * self.size) // count for index in range(1, count)), self.size]
        for before, after in pairwise(edges):
            rows = slice(before + 1, after)
            values, vectors = eigh_tridiagonal(self.diagonal[rows], self.beside[before + 1 : after - 1])
            left = self.beside[before] * vectors[0] if before >= 0 else 0 * values
            right = self.beside[after - 1] * vectors[-1] if after < self.size else 0 * values
            yield Piece(rows, values, vectors, left, right)


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
