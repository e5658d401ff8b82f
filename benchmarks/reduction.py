"""What the spectrum costs, part by part, and what other ways to it would cost, in times the Gram product: in one run.

    python benchmarks/reduction.py                     # 2048 dimensions, 6667 samples
    python benchmarks/reduction.py --dim 1024 --one-thread

The score reduces FᵀF to tridiagonal form. With many targets it takes the eigenvectors of that; with few it factorises
the tridiagonal form on a grid of t, and then at one t per target. A reduction to a band of some width is products of
matrices throughout, and the band could be factorised at every t, at a price that grows with its width.
`--one-thread` counts processor seconds of one thread, which others on the machine disturb least.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.linalg import blas, eigvals_banded, lapack

from evidence import best_of
from hubscout.evidence.eigenvectors import Tridiagonal

TARGETS, GRID = (100, 1000), 66
FLOPS = 4 / 3
"""Of any reduction, in units of D³; the Gram product has n/D of them."""


def tridiagonal(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The diagonal of T and what is beside it."""
    work, _ = lapack.dsytrd_lwork(len(matrix), lower=1)
    _, diagonal, beside, _, _ = lapack.dsytrd(matrix.copy(order="F"), lower=1, lwork=int(work), overwrite_a=True)
    return diagonal, beside


def band(matrix: np.ndarray, width: int) -> np.ndarray:
    """The lower band, (width + 1, D), of a matrix with the same eigenvalues: panel by panel, by block reflections.

    Only lower triangles are worked on, by products of matrices alone but for the panels.
    """
    rest, size = matrix.copy(order="F"), len(matrix)
    found = np.zeros((width + 1, size))
    for start in range(0, size, width):
        columns = rest[: 2 * width, :width].copy()
        if len(rest) > width:
            panel, factors, _, _ = lapack.dgeqrf(rest[width:, :width])
            count = len(factors)
            vectors = np.asfortranarray(np.tril(panel, -1)[:, :count] + np.eye(len(panel), count))
            # I - V S Vᵀ is the product of the panel's reflections.
            inner = np.eye(count) + factors[:, None] * np.triu(vectors.T @ vectors, 1)
            scale = np.linalg.solve(inner, np.diag(factors))
            columns[width:] = np.triu(panel)[: len(columns) - width]
            rest = np.asfortranarray(rest[width:, width:])
            product = blas.dsymm(1.0, rest, vectors @ scale, lower=1)
            product -= 0.5 * vectors @ (scale.T @ (vectors.T @ product))
            rest = blas.dsyr2k(-1.0, vectors, product, beta=1.0, c=rest, lower=1, overwrite_c=True)
        for place in range(columns.shape[1]):
            below = columns[place : place + width + 1, place]
            found[: len(below), start + place] = below
    return found


def one_thread() -> AbstractContextManager[object]:
    """A context in which the linear algebra has one thread."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--samples", type=int, default=6667)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one-thread", action="store_true")
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    dim, samples = arguments.dim, arguments.samples
    features = generator.normal(size=(samples, dim)) * np.arange(1, dim + 1) ** -0.5
    gram = features.T @ features
    diagonal, beside = tridiagonal(gram)
    values = lapack.dsterf(diagonal, beside)[0]
    ratio = np.geomspace(values[0] / 10, values[-1] * 100, GRID)
    shifted = gram + values.mean() * np.eye(dim)
    works: dict[str, Callable[[], object]] = {
        "Gram product": lambda: features.T @ features,
        "tridiagonal form": lambda: tridiagonal(gram),
        "its eigenvalues": lambda: lapack.dsterf(diagonal, beside),
        "its eigenvectors too": lambda: lapack.dstevd(diagonal, beside),
    }
    for count in TARGETS:
        right = generator.normal(size=(dim, count))
        works[f"  or {GRID} t without them, {count} targets"] = lambda r=right: Tridiagonal(diagonal, beside).on_grid(
            r, ratio
        )
        works[f"  and one t per target, {count} targets"] = lambda r=right: Tridiagonal(diagonal, beside).solve(
            np.full(r.shape[1], ratio[GRID // 2]), r, repeats=2
        )
    few = generator.normal(size=(dim, TARGETS[0]))
    for width in (32, 64, 128):
        works[f"band of {width}"] = lambda w=width: band(gram, w)
        shifted_band = band(gram, width)
        shifted_band[0] += values.mean()
        works[f"  and one t, {TARGETS[0]} targets, band of {width}"] = lambda b=shifted_band: lapack.dpbtrs(
            lapack.dpbtrf(b, lower=1)[0], few, lower=1
        )
    works["Cholesky factor"] = lambda: lapack.dpotrf(shifted)
    works["  and the inverse, float32"] = lambda: lapack.spotri(lapack.spotrf(shifted.astype(np.float32))[0])
    clock = time.process_time if arguments.one_thread else time.perf_counter
    with one_thread() if arguments.one_thread else nullcontext():
        seconds = {name: best_of(arguments.repeats, work, clock) for name, work in works.items()}
    table = Table("what", "seconds", "times the Gram product", title=f"{samples} × {dim}")
    for name, taken in seconds.items():
        table.add_row(name, f"{taken:.3f}", f"{taken / seconds['Gram product']:.2f}")
    ideal = FLOPS * dim / samples
    table.add_row(
        "any reduction at the rate of the Gram product", f"{ideal * seconds['Gram product']:.3f}", f"{ideal:.2f}"
    )
    Console(width=120).print(table)
    error = np.abs(eigvals_banded(band(gram, 32), lower=True) - values).max() / values[-1]
    print(f"eigenvalues of the band differ from those of the tridiagonal form by {error:.1e} of the largest")


if __name__ == "__main__":
    main()
