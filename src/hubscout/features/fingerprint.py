"""What features depend on, put into words: equal descriptions mean equal features."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hubscout.errors import CacheError

if TYPE_CHECKING:
    from torch import nn

    from hubscout.hubs import Backbone
    from hubscout.tasks import Task

_FORMAT = "1"


def describe(backbone: Backbone, task: Task, selection: str, precision: str) -> dict[str, str]:
    """Everything that the features of a model on a task depend on. Options such as pooling are in the identifier."""
    card = backbone.card
    weights = card.weights_fingerprint
    if backbone.module is not None:
        weights += "/" + network_digest(backbone.module)
    if not weights:
        raise CacheError(f"{card.identifier} has no fingerprint of its weights, so its features cannot be cached.")
    return {
        "format": _FORMAT,
        "model": card.identifier,
        "architecture": card.architecture,
        "weights": weights,
        # A key may stop short of what the network itself does to its input, such as normalising; the configuration
        # has it all.
        "preprocessing": f"{backbone.preprocessing.key} {getattr(backbone.preprocessing, 'config', '')}".strip(),
        "task": task.fingerprint,
        "task_name": task.name,
        "selection": selection,
        "precision": precision,
        "dtype": "float32",
    }


def network_digest(module: nn.Module) -> str:
    """A digest of the parameters and buffers as they are now, at the speed of memory.

    The card knows which weights were loaded, not whether the network was trained since. The sum of all bits read as
    whole numbers is exact in any order, so the digest does not depend on threads, device or memory layout; it is no
    protection against somebody who wants a collision.
    """
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        if not isinstance(tensor, torch.Tensor):
            continue
        flat = tensor.detach()
        if flat.is_complex():
            flat = torch.view_as_real(flat)
        bits = flat if flat.dtype == torch.bool else flat.view(whole[flat.element_size()])
        total = int(bits.sum(dtype=torch.int64)) if bits.numel() else 0
        # The squares tell a permutation or a sign swap between two numbers from no change at all.
        mixed = bits.to(torch.int64).square().sum() if bits.numel() and bits.numel() < 100_000 else total
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {total} {int(mixed)}\n".encode())
    return digest.hexdigest()[:16]


def key(description: Mapping[str, str], layer: str | None = None) -> str:
    """A short name for a description, and for one layer of it.

    >>> key({"model": "a"}) != key({"model": "a"}, "stem")
    True
    """
    named = dict(description) if layer is None else {**description, "layer": layer}
    # The task's name is for people; its fingerprint is what counts.
    named.pop("task_name", None)
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:24]
