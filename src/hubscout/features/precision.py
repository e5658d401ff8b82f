"""Which device a model runs on, in which number format and memory layout."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubscout.errors import InputError
from hubscout.optional import uncollected

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from hubscout.hubs import Batch

PRECISIONS = ("auto", "float32", "bfloat16", "float16")

SAFE_RELATIVE_ERROR = 0.01
"""Largest relative difference (Frobenius) between the features of the first batch in a reduced format and in
float32 at which `precision="auto"` stays with the reduced one. Measured with an EfficientNet-Lite0 on pets: float16
differs by 0.4% and moves the LogME score by 2e-5; bfloat16 differs by 4% and moves it by 3e-4 with 161 images, but by
5e-3 with 40 images of digits. The bar lies between the two, so that scores stay the same to 1e-3."""


def pick_device(device: str = "auto") -> str:
    """The device named, or for "auto" the best there is: CUDA, then Apple's MPS, then the CPU.

    >>> pick_device("cpu")
    'cpu'
    """
    with uncollected():  # where a command meets torch for the first time
        import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        if torch.backends.mps.is_available():
            return "mps"
        return "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise InputError(f"device must be 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps', got {device!r}.") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device={device!r}: no CUDA device is available here. Use 'cpu' or 'auto'.")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"device={device!r}: no MPS device is available here. Use 'cpu' or 'auto'.")
    return device


@dataclass(frozen=True)
class Precision:
    """The number format of the forward pass. `checked` formats are compared with float32 on the first batch."""

    name: str
    device_type: str
    checked: bool = False

    @property
    def reduced(self) -> bool:
        """Whether the forward pass runs under autocast."""
        return self.name != "float32"

    @property
    def label(self) -> str:
        """What the cache calls it: a format that was asked for may be far from float32, a checked one is not."""
        return f"{self.name}, checked" if self.checked else self.name

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which the model runs."""
        if not self.reduced:
            return nullcontext()
        import torch

        return torch.autocast(self.device_type, dtype=getattr(torch, self.name))


def check_precision(precision: str) -> None:
    """Refuse a number format that there is not."""
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}.")


def pick_precision(precision: str, device: str) -> Precision:
    """The format asked for; for "auto" float16 autocast on CUDA (checked on the first batch), float32 elsewhere.

    float16 rather than bfloat16, because its rounding error is eight times smaller and features need no range.

    >>> pick_precision("auto", "cpu")
    Precision(name='float32', device_type='cpu', checked=False)
    """
    check_precision(precision)
    device_type = device.partition(":")[0]
    if precision == "auto":
        on_cuda = device_type == "cuda"
        return Precision("float16" if on_cuda else "float32", device_type, checked=on_cuda)
    return Precision(precision, device_type)


def relative_error(reduced: Tensor, exact: Tensor) -> float:
    """‖reduced − exact‖ / ‖exact‖; infinite where the reduced features are not finite."""
    import torch

    difference = (reduced.double() - exact.double()).norm()
    if not torch.isfinite(difference):
        return float("inf")
    return float(difference / exact.double().norm().clamp_min(1e-300))


def wants_channels_last(module: nn.Module | None, device: str) -> bool:
    """Whether the network is convolutional and on a device where channels-last convolutions are the fast ones."""
    import torch

    if module is None or device.partition(":")[0] not in ("cpu", "cuda"):
        return False
    return any(isinstance(layer, torch.nn.Conv2d) for layer in module.modules())


def move(batch: Batch, device: str | torch.device, *, channels_last: bool) -> Batch:
    """The batch on its device, images in the layout that the network wants."""
    import torch

    moved = {}
    for name, value in batch.items():
        if channels_last and value.ndim == 4:
            moved[name] = value.to(device, non_blocking=True, memory_format=torch.channels_last)
        else:
            moved[name] = value.to(device, non_blocking=True)
    return moved
