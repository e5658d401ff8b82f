"""Batches on their way to a device, and what a network made of them on the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hubscout.hubs import Batch


def move(batch: Batch, device: str | torch.device, *, channels_last: bool) -> Batch:
    """The batch on its device, images in the layout that the network wants.

    Images are prepared row by row with their colours side by side, and stay so in a batch unless it is said otherwise.
    """
    import torch

    layout = torch.channels_last if channels_last else torch.contiguous_format
    return {
        name: value.to(device, non_blocking=True, memory_format=layout if value.ndim == 4 else torch.preserve_format)
        for name, value in batch.items()
    }


def filled_up(batch: Batch, rows: int, wanted: int) -> Batch:
    """Images repeated up to the size of the batches before: for another size a GPU would choose its kernels anew, and
    compile some of them, which takes up to two seconds.
    """
    import torch

    filled = {}
    for name, value in batch.items():
        usual = value.is_contiguous()
        repeated = value[torch.arange(wanted, device=value.device) % rows]
        filled[name] = repeated if usual else repeated.contiguous(memory_format=torch.channels_last)
    return filled


def on_its_way(value: Tensor) -> Tensor:
    """A tensor of main memory that a GPU is filling."""
    import torch

    return torch.empty_like(value, device="cpu", pin_memory=True).copy_(value, non_blocking=True)
