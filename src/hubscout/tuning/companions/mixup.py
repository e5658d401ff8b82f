"""Mixup: train on weighted sums of two samples and of their targets."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hubscout.errors import InputError
from hubscout.tasks import Task
from hubscout.tuning.batches import Share

MIXABLE = ("image", "array")
"""Modalities whose inputs are numbers that can be added."""


def check_mixable(task: Task, alpha: float | None) -> None:
    """Refuse inputs of which a weighted sum is no input."""
    if alpha is not None and task.modality not in MIXABLE:
        raise InputError(
            f"mixup={alpha:g} adds two inputs, and the inputs of {task.name!r} are of modality {task.modality!r}: "
            f"allowed are {' and '.join(MIXABLE)}. Leave it out; label_smoothing and ema go with every input."
        )


def mix(share: Share, alpha: float, seed: int) -> Share:
    """X ← w·x + (1 − w)·x', with w ~ Beta(α, α) for a whole step and x' another sample of it (Zhang et al., ICLR 2018).

    For: few data, with every method. The loss is w·ℓ(x, y) + (1 − w)·ℓ(x, y'), which has the gradient of soft targets
    w·y + (1 − w)·y' for classes, labels and numbers alike; so has the teachers' term. Teachers that run live see the
    mixed input. Partners are found among the samples of a process.
    """
    generator = np.random.default_rng(seed)
    weight = float(generator.beta(alpha, alpha))
    order = torch.as_tensor(generator.permutation(len(share.samples)))
    views = {
        name: {key: _blend(value, value[order.to(value.device)], weight) for key, value in batch.items()}
        for name, batch in share.views.items()
    }
    return Share(share.samples, views, partners=share.samples[order], weight=weight)


def _blend(first: Tensor, second: Tensor, weight: float) -> Tensor:
    if first.is_floating_point():
        return torch.lerp(second, first, weight)
    # Pixels stay 8-bit pixels: what follows normalises those and takes floats for normalised already.
    return torch.lerp(second.float(), first.float(), weight).round().to(first.dtype)
