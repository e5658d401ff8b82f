"""What runs a network: torch, or ONNX Runtime where that is asked for or is expected to pay."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from hubscout.errors import InputError
from hubscout.optional import require

if TYPE_CHECKING:
    from torch import nn

    from hubscout.features.extraction_plan import ExtractionPlan
    from hubscout.features.precision import Precision

TORCH, ONNXRUNTIME = "torch", "onnxruntime"
ACCELERATIONS = ("auto", "off", ONNXRUNTIME)

_NEEDED = ("onnx", ONNXRUNTIME)
_FEWEST_ROWS = {"image": 768, "array": 768, "text": 1024, "text-pair": 1024, "tokens": 1024}
_FEWEST_FLOPS = 1e11
"""With fewer samples, or fewer operations on all of them, exporting and checking take as long as they save."""
_MOST_BYTES = 3 << 29
"""An exported file holds 2 GiB at most."""


def is_installed() -> bool:
    """Whether the packages that acceleration needs are there."""
    return all(importlib.util.find_spec(name) is not None for name in _NEEDED)


def check_acceleration(accelerate: str) -> None:
    """Refuse an acceleration that does not exist, or whose packages are missing."""
    if accelerate not in ACCELERATIONS:
        raise InputError(f"accelerate must be one of {', '.join(ACCELERATIONS)}; got {accelerate!r}.")
    if accelerate == ONNXRUNTIME:
        require("onnxruntime", extra="onnx", purpose="accelerate='onnxruntime'")
        require("onnx", extra="onnx", purpose="accelerate='onnxruntime'")


def pick_backend(accelerate: str, job: ExtractionPlan, device: str, precision: Precision) -> str:
    """What is to run the model: "torch", or "onnxruntime" if that is asked for or is expected to pay.

    The answer hangs on the model and the data alone, never on which of its rows are asked for: whoever runs a part
    of them comes to the same.
    """
    card, module = job.backbone.card, job.backbone.module
    if accelerate == "off" or module is None:
        return TORCH
    fits = device == "cpu" and not precision.reduced
    if accelerate == ONNXRUNTIME:
        if not fits:
            raise InputError(
                f"accelerate={accelerate!r} runs models on the CPU in float32; got the device {device!r} and the "
                f"precision {precision.name!r}. Use device='cpu' and precision='float32', or accelerate='auto'."
            )
        return ONNXRUNTIME
    pays = fits and card.bytes <= _MOST_BYTES and _is_expected_to_pay(job, module)
    return ONNXRUNTIME if pays and is_installed() else TORCH


def _is_expected_to_pay(job: ExtractionPlan, module: nn.Module) -> bool:
    rows, modality = len(job.split), job.task.modality
    if rows < _FEWEST_ROWS.get(modality, rows + 1) or rows * (job.backbone.card.flops or 0) < _FEWEST_FLOPS:
        return False
    if modality != "image":
        return True
    from torch import nn

    # Transformers over images gain nothing to a fifth, as torch does their matrix products as well.
    convolutions, products = (
        sum(isinstance(layer, kind) for layer in module.modules()) for kind in (nn.Conv2d, nn.Linear)
    )
    return 4 * convolutions >= products
