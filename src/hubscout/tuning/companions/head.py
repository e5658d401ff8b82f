"""The new head and its first weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.plan import mixed_seed

if TYPE_CHECKING:
    from hubscout.evidence import Evidence


def new_head(feature_dim: int, loss: TaskLoss, seed: int) -> nn.Linear:
    """A linear head, random by the seed alone; for numbers zero, which is their mean.

    Random weights times large features miss the numbers by many deviations, and the first steps spoil the backbone.
    """
    head = nn.Linear(feature_dim, loss.outputs)
    if loss.likelihood.to_values is None:
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head
    generator = torch.Generator().manual_seed(mixed_seed(seed, 1))
    bound = feature_dim**-0.5
    with torch.no_grad():
        head.weight.uniform_(-bound, bound, generator=generator)
        head.bias.zero_()
    return head


def start_from_posterior(
    head: nn.Linear, evidence: Evidence, features: np.ndarray, targets: torch.Tensor, loss: TaskLoss
) -> float:
    """Set the head to the posterior weights m of the frozen features, and return the factor they were stretched by.

    m predicts the targets themselves: for regression it is the head, in the units of the loss. For classes fᵀm lies
    near 0 and 1, far too flat for logits, so it is centred and stretched by the factor that the train split likes best.
    """
    weights = torch.as_tensor(evidence.weights, dtype=torch.float64)
    values = torch.as_tensor(np.asarray(features, dtype=np.float64))
    bias = torch.as_tensor(evidence.intercept, dtype=torch.float64)
    if loss.offset is not None and loss.scale is not None:
        weights = weights / torch.as_tensor(loss.scale)[:, None]
        bias = (bias - torch.as_tensor(loss.offset)) / torch.as_tensor(loss.scale)
    bias = bias - loss.likelihood.middle
    stretch = 1.0 if loss.likelihood.to_values is None else best_stretch(values @ weights.T + bias, targets.cpu(), loss)
    with torch.no_grad():
        head.weight.copy_(stretch * weights)
        head.bias.copy_(stretch * bias)
    return stretch


def best_stretch(outputs: torch.Tensor, targets: torch.Tensor, loss: TaskLoss) -> float:
    """The factor with the least loss on a grid: the loss is convex in it."""
    grid = np.geomspace(1.0, 64.0, 49)
    return float(min(grid, key=lambda factor: float(loss(factor * outputs, targets).mean())))
