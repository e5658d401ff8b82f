"""A symmetric positive definite tridiagonal T, and what the evidence asks of it without its eigenvectors.

For a column c that is cᵀ(T + tI)⁻¹c and its derivatives in t. At one t per column LAPACK factorises T + tI. For all
columns on a grid of t, T is cut into short pieces with a row between every two: with the eigenvectors of the pieces
the rest is matrix products and, for the rows between, an elimination of a dozen steps. All eigenvectors of T would take
as long as half of the reduction to T.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

LENGTH = 128
"""Rows of a piece, about."""


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
