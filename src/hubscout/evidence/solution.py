"""What a solver is given and what it returns, and the names of the solvers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hubscout.errors import UnknownSolverError
from hubscout.evidence.block import Block
from hubscout.evidence.spectrum import Spectrum
from hubscout.registry import Registry


@dataclass(frozen=True)
class Problem:
    """One data set: its spectrum, and its sums where the solver asked for them."""

    spectrum: Spectrum
    block: Block | None


@dataclass(frozen=True)
class Solution:
    """The best t = α/β of every target, (C,): ∞ for the null model."""

    ratio: np.ndarray
    iterations: int
    """The most that any target took."""
    converged: np.ndarray


@dataclass(frozen=True)
class Solver:
    """A way to find t. `needs_sums` is whether it works on FᵀF itself and not only on its spectrum."""

    solve: Callable[..., Solution]
    needs_sums: bool


SOLVERS: Registry[Solver] = Registry("solver", UnknownSolverError)
