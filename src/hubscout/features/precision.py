"""Which device a model runs on, in which number format and memory layout, and how many samples at once."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from hubscout.errors import InputError, ModelError, check_choice, check_least
from hubscout.optional import uncollected

if TYPE_CHECKING:
    from torch import Tensor, nn

PRECISIONS = ("auto", "float32", "bfloat16", "float16")

SAFE_RELATIVE_ERROR = 0.01
"""Largest relative difference (Frobenius) between the features of the first batch in a reduced format and in
float32 at which `precision="auto"` stays with the reduced one. Measured with an EfficientNet-Lite0 on pets: float16
differs by 0.4% and moves the LogME score by 2e-5; bfloat16 differs by 4% and moves it by 3e-4 with 161 images, but by
5e-3 with 40 images of digits. The bar lies between the two, so that scores stay the same to 1e-3."""
_FIRST_GUESS = {
    # Measured: a CPU gains little beyond these, and small batches of short texts waste less on padding. 32 images take
    # 1% less time each in an EfficientNet-Lite0 than 16, and twice the memory; 32 texts take 4% (20 words) to 15% (100
    # words) more time in a MiniLM than 16.
    "cpu": {"image": 16, "text": 16, "text-pair": 16, "tokens": 16, "audio": 4, "array": 256},
    "cuda": {"image": 256, "text": 256, "text-pair": 256, "tokens": 256, "audio": 32, "array": 4096},
    "mps": {"image": 64, "text": 64, "text-pair": 64, "tokens": 64, "audio": 8, "array": 1024},
}
_MANY_SAMPLES = 100_000
_SIGNS_OF_EXHAUSTION = ("out of memory", "can't allocate memory", "not enough memory", "failed to allocate memory")
_SIGNS_OF_FAULT = ("CUDA error", "HIP error", "CUDNN_STATUS_", "CUBLAS_STATUS_", "device-side assert")
_warming: dict[str, threading.Thread] = {}


_NO_DEVICE = "device must be 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps', got {!r}."
_NOT_HERE = "device={!r}: no {} device is available here. Use 'cpu' or 'auto'."


def pick_device(device: str = "auto") -> str:
    """The device named, or for "auto" the best there is: CUDA, then Apple's MPS, then the CPU.

    >>> pick_device("cpu")
    'cpu'
    """
    if "torch" not in sys.modules:  # where a command meets it for the first time
        with uncollected(imports_alone=True):
            importlib.import_module("torch")
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
        raise InputError(_NO_DEVICE.format(device)) from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(_NOT_HERE.format(device, "CUDA"))
    if kind == "mps" and not torch.backends.mps.is_available():
        raise InputError(_NOT_HERE.format(device, "MPS"))
    return device


def warm_up(device: str) -> None:
    """Start a device's libraries in a thread, once in a process.

    On a GPU the first convolution, matrix product and eigenproblem each open a library, which takes up to a second; in
    that time the first model can be opened.
    """
    if device not in _warming:
        _warming[device] = threading.Thread(target=_use, args=(device,), name="hubscout-warm-up")
        _warming[device].start()


def wait_until_warm(device: str) -> None:
    """Let a `warm_up` come to its end, if there was one: two threads must not open the same library at once."""
    if device in _warming:
        _warming[device].join()


def _use(device: str) -> None:
    import torch

    with suppress(RuntimeError):  # who needs the device meets the same error
        for number in (torch.float32, torch.float16):
            images = torch.zeros(8, 8, 8, 8, dtype=number, device=device)
            torch.nn.functional.conv2d(images, images).flatten(1) @ images[:, 0, 0]
        square = torch.eye(8, dtype=torch.float64, device=device)
        torch.linalg.eigh(square @ square)


def refuse_device(device: str) -> None:
    """Refuse a device that is known not to be here without importing torch."""
    kind = device.partition(":")[0]
    if kind not in ("auto", *_FIRST_GUESS):
        raise InputError(_NO_DEVICE.format(device))
    if kind == "cuda" and version("torch").endswith("+cpu"):
        raise InputError(_NOT_HERE.format(device, "CUDA"))
    if kind == "mps" and sys.platform != "darwin":
        raise InputError(_NOT_HERE.format(device, "MPS"))


def check_device(device: str) -> None:
    """Refuse a device that is not here; "auto" and "cpu" always are, and cost no import of torch."""
    refuse_device(device)
    if device not in ("auto", "cpu"):
        pick_device(device)


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
    check_choice("precision", precision, PRECISIONS)


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
    """Whether the network is convolutional and on a device where channels-last convolutions are the fast ones.

    Training too is faster so, on a CPU up to 1.7 times (`benchmarks/layouts.py`).
    """
    import torch

    if module is None or device.partition(":")[0] not in ("cpu", "cuda"):
        return False
    return any(isinstance(layer, torch.nn.Conv2d) for layer in module.modules())


def needs_usual_layout(error: BaseException) -> bool:
    """Whether a network failed because it takes a view of its maps as vectors, which channels-last maps do not allow.

    >>> import torch
    >>> try:
    ...     torch.empty(2, 3, 4, 4).contiguous(memory_format=torch.channels_last).view(2, -1)
    ... except RuntimeError as error:
    ...     print(needs_usual_layout(error))
    True
    """
    return isinstance(error, RuntimeError) and "view size is not compatible" in str(error)


def compiling_pays(module: nn.Module | None, device: str, samples: int) -> bool:
    """Whether so many samples earn the seconds in which a GPU compiles a network's quickest kernels.

    Depthwise convolutions are compiled for every shape, number format and layout, except in float32 and the usual
    layout. One H200, 256 images of 128 pixels: a MobileNetV2 takes 8.0 ms so, at once; 3.6 ms in float16 and
    channels-last, after 1.3 s and another 1.2 s for the comparison with float32. At 224 pixels the two meet at
    75,000 (MobileNetV2) to 94,000 images (EfficientNet-Lite0). Other networks have nothing to compile.
    """
    import torch

    if module is None or not device.startswith("cuda") or samples >= _MANY_SAMPLES:
        return True
    convolutions = (layer for layer in module.modules() if isinstance(layer, torch.nn.Conv2d))
    return not any(layer.groups == layer.in_channels > 1 for layer in convolutions)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception of any backend means that memory ran out.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes do not match"))
    (True, False)
    """
    if isinstance(error, MemoryError):
        return True
    # torch.OutOfMemoryError is a RuntimeError, as are the failures of the CPU and MPS allocators.
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS_OF_EXHAUSTION)


def is_device_fault(error: BaseException) -> bool:
    """Whether an exception says that the accelerator failed, whatever it was given.

    >>> is_device_fault(RuntimeError("CUDA error: an illegal memory access was encountered"))
    True
    """
    import torch

    kind = getattr(torch, "AcceleratorError", None)  # of torch 2.8 and later
    if kind is not None and isinstance(error, kind):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS_OF_FAULT)


@dataclass
class BatchSize:
    """The batch size in use. `halve` is called when memory ran out; `tell` hears of it."""

    size: int
    tell: Callable[[str], None] = field(default=lambda text: None, repr=False)

    @classmethod
    def choose(cls, asked: int | None, modality: str, device: str, tell: Callable[[str], None]) -> BatchSize:
        """The size asked for, or a first guess for this kind of input and device."""
        if asked is not None:
            check_least("batch_size", asked)
            return cls(asked, tell)
        guesses = _FIRST_GUESS.get(device.partition(":")[0], _FIRST_GUESS["cpu"])
        return cls(guesses.get(modality, 16), tell)

    def halve(self, failed: int, cause: BaseException) -> None:
        """Go down to half of `failed`, the number of samples that did not fit."""
        if failed <= 1:
            raise ModelError("Out of memory with a single sample: the model does not fit this device.") from cause
        smaller = failed // 2
        if smaller < self.size:
            self.size = smaller
            self.tell(f"out of memory with {failed} samples at once: going on with {smaller}")
