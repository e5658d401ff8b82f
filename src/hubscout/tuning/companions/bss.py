"""Batch spectral shrinkage: give up the directions that carry nothing over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from hubscout.tuning.network import Network


class BatchSpectralShrinkage:
    """η · Σ of the k smallest squared singular values of the batch's feature matrix (Chen et al., NeurIPS 2019).

    For: negative transfer, when fine-tuning clings to directions of the pre-trained features that do not serve the
    task. η is the field `bss` (1e-3 in the paper), k = 1. It looks at a batch as a whole, so it does depend on how a
    batch is cut into micro-batches and processes.
    """

    def __init__(self, strength: float, count: int = 1) -> None:
        self.strength = strength
        self.count = count

    def __call__(self, network: Network, features: Tensor) -> Tensor:
        """The penalty."""
        return self.strength * smallest_squared_singular_values(features, self.count).sum()


def smallest_squared_singular_values(matrix: Tensor, count: int) -> Tensor:
    """The `count` smallest of the min(n, D) squared singular values, in ascending order.

    >>> import torch
    >>> smallest_squared_singular_values(torch.diag(torch.tensor([3.0, 2.0])), 1)
    tensor([4.])
    """
    from torch.linalg import eigvalsh

    # Eigenvalues of the smaller Gram matrix: squares are what is wanted, and their gradient exists at ties.
    small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return eigvalsh(small)[:count].clamp_min(0)
