"""What a model costs: parameters, bytes and floating-point operations."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hubscout.hubs.backbone import Backbone, Batch

switches_of_torch = threading.RLock()
"""Held while attention is switched to its plain form, which all threads see, and while a batch runs: the features of a
model do not hang on another one being opened meanwhile."""


def count_params(module: nn.Module) -> int:
    """The number of learnt numbers; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def count_bytes(module: nn.Module) -> int:
    """The bytes of parameters and buffers, in the types that they are held in."""
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass(frozen=True)
class Measured:
    """What one forward pass over one sample shows; `flops` is None where they cannot be counted."""

    feature_dim: int
    flops: int | None


def measure(backbone: Backbone, batch: Batch) -> Measured:
    """The width of the features and the operations of a pass over `batch`, multiply-adds counted twice.

    Runs on the meta device, where nothing is computed and no weights are copied. A network that looks at its values
    on the way cannot run there and gets one real pass. One that cannot be counted at all is run once as it is: what
    a model costs is worth knowing, but no reason to be without the model.
    """
    import torch

    for count in (_count_on_meta, _count_in_a_real_pass):
        try:
            return count(backbone, batch)
        except Exception:  # What a network may do that a counter cannot follow has no end.
            continue
    with torch.no_grad():
        return Measured(backbone.forward(batch).features.shape[-1], None)


def _count_on_meta(backbone: Backbone, batch: Batch) -> Measured:
    """Runs a copy without weights.

    Networks keep tables from one pass to the next, and one from the meta device would spoil those that follow.
    """
    import torch

    assert backbone.module is not None
    kept: dict[int, Any] = {id(backbone.preprocessing): backbone.preprocessing}
    for parameter in backbone.module.parameters():
        kept[id(parameter)] = torch.nn.Parameter(parameter.detach().to("meta"), requires_grad=False)
    for buffer in backbone.module.buffers():
        kept[id(buffer)] = buffer.detach().to("meta")
    return _count(copy.deepcopy(backbone, kept), {name: tensor.to("meta") for name, tensor in batch.items()})


def _count_in_a_real_pass(backbone: Backbone, batch: Batch) -> Measured:
    assert backbone.module is not None
    with switches_of_torch, _frozen(backbone.module), _plain_attention():
        return _count(backbone, batch)


def _count(backbone: Backbone, batch: Batch) -> Measured:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        features = backbone.forward(batch).features
    # Nothing counted is not nothing done: the work is in numpy, in another thread, or in an unknown operator.
    return Measured(features.shape[-1], counter.get_total_flops() or None)


@contextmanager
def _frozen(module: nn.Module) -> Iterator[None]:
    """Without gradients: the counter stumbles over views of weights that take them, even where none are computed."""
    learnt = [parameter for parameter in module.parameters() if parameter.requires_grad]
    try:
        for parameter in learnt:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learnt:
            parameter.requires_grad_(True)


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Attention as matrix products: the counter knows nothing of the CPU's fused forms."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
