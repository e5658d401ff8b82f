"""What features depend on, put into words.

Equal descriptions mean equal features as far as weights, layers and source code can tell; the last word has a probe,
see `hubscout.features.probe`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hubscout.errors import CacheError
from hubscout.hubs.hub_registry import Identifier

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hubscout.features.extraction_plan import ExtractionPlan
    from hubscout.hubs import Backbone

_FORMAT = "4"
_CHUNK = 1 << 16
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def describe(job: ExtractionPlan, precision: str, backend: str) -> dict[str, str]:
    """Everything that the features of a model on a task depend on, with names for people.

    It says what is computed, not how that was asked for: labels are no part of it, and an option that the model's
    fingerprint or its preprocessing tells of counts as they have it, written out or not.
    """
    card, preprocessing, task = job.backbone.card, job.backbone.preprocessing, job.task
    if not job.identity:
        raise CacheError(f"{card.identifier} has no fingerprint of its weights, so its features cannot be cached.")
    return {
        "format": _FORMAT,
        "model": card.identifier,
        # The options of `python:` are the arguments of somebody's function, whatever they are called.
        "network": _without_options(card.identifier, () if card.code_fingerprint else job.backbone.settled_options),
        "architecture": card.architecture,
        "weights": job.identity,
        # A key may stop short of what the network itself does to its input, such as normalising; the configuration
        # has it all.
        "preprocessing": f"{preprocessing.key} {getattr(preprocessing, 'config', '')}".strip(),
        "inputs": job.split.fingerprint or task.fingerprint,
        "task_name": task.name,
        "selection": job.selection,
        "precision": precision,
        "backend": backend,
        "dtype": "float32",
    }


def _without_options(identifier: str, settled: Collection[str]) -> str:
    if not settled:
        return identifier
    named = Identifier.parse(identifier)
    return str(replace(named, options={key: value for key, value in named.options.items() if key not in settled}))


def identity(backbone: Backbone) -> str:
    """What a model is made of, as it is now: weights, layers and, for `python:`, source. "" where that is unknown."""
    card = backbone.card
    weights = card.weights_fingerprint
    if backbone.module is not None:
        weights += "/" + network_digest(backbone.module)
    return f"{weights}/{card.code_fingerprint}" if weights and card.code_fingerprint else weights


def network_digest(module: nn.Module) -> str:
    """A digest of the network as it is now: every number of its parameters and buffers, and what its layers are.

    The card knows which weights were loaded, not whether the network was changed since. Layers count with what they
    print of themselves (stride, epsilon, kind of activation); a network that another version of its library prints in
    another way counts as another.
    """
    digest = hashlib.sha256()
    for name, part in module.named_modules():
        digest.update(f"{name} {type(part).__qualname__} {_ADDRESS.sub('', part.extra_repr())}\n".encode())
    digest.update(tensors_digest(module.state_dict()))
    return digest.hexdigest()[:16]


def tensors_digest(tensors: Mapping[str, Tensor]) -> bytes:
    """A digest of every number and its place, three times as fast as a cryptographic hash.

    The bits of each chunk, read as whole numbers, are summed with a weight for each place. Such sums are exact in any
    order, so the digest does not depend on threads, device or memory layout; it is no protection against somebody who
    wants a collision.
    """
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    digest = hashlib.sha256()
    weights: Tensor | None = None
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        plain = tensor.detach()
        flat = (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1)
        bits = flat.view(whole[flat.element_size()])
        if weights is None or weights.device != bits.device:
            weights = _place_weights().to(bits.device)
        sums = [(chunk * weights[: len(chunk)]).sum() for chunk in bits.split(_CHUNK)]
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(torch.stack(sums).cpu().numpy().tobytes())
    return digest.digest()


def _place_weights() -> Tensor:
    """An odd number for each place of a chunk, without pattern: those of splitmix64."""
    import torch

    mixed = torch.arange(1, _CHUNK + 1) * -0x61C8864680B583EB
    for factor, shift in ((-0x40A7B892E31B1A47, 30), (-0x6B2FB644ECCEEE15, 27)):
        mixed = (mixed ^ (mixed >> shift)) * factor
    return (mixed ^ (mixed >> 31)) | 1


def key(description: Mapping[str, str], layer: str | None = None) -> str:
    """A short name for a description, and for one layer of it.

    >>> key({"weights": "a"}) != key({"weights": "a"}, "stem")
    True
    """
    named = dict(description) if layer is None else {**description, "layer": layer}
    # Names are for people: a model may be written in several ways, and data may be renamed.
    named.pop("model", None)
    named.pop("task_name", None)
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:24]
