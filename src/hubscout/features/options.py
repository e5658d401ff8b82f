"""How a model is run over a task: `ExtractionOptions`, and what runs the network: torch, ONNX Runtime or OpenVINO."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubscout.errors import InputError, MissingDependencyError, check_choice, check_keywords, first_line
from hubscout.features.precision import check_precision
from hubscout.optional import require

if TYPE_CHECKING:
    from torch import nn

    from hubscout.features.extraction_plan import ExtractionPlan
    from hubscout.features.precision import Precision

TORCH, ONNXRUNTIME, OPENVINO = "torch", "onnxruntime", "openvino"
RUNTIMES = {ONNXRUNTIME: "ONNX Runtime", OPENVINO: "OpenVINO"}
"""What can run a network in the place of torch, with the name that people know it by."""
ACCELERATIONS = ("auto", "off", *RUNTIMES)

_NEEDED = {ONNXRUNTIME: ("onnx", ONNXRUNTIME), OPENVINO: ("onnx", ONNXRUNTIME, OPENVINO)}
_FEWEST_ROWS = {"image": 512, "array": 512, "text": 768, "text-pair": 768, "tokens": 768}
_FEWEST_FLOPS = 1e11
"""With fewer samples, or fewer operations on all of them, exporting and checking take as long as they save."""
_MOST_BYTES = 3 << 29
"""Larger ones were not tried; ONNX Runtime makes a second copy of the matrices that it multiplies by."""
_RUNTIME_FIELDS = frozenset({"device", "batch_size", "accelerate"})
"""They decide where and how fast a model runs, not what comes out."""


def installed_runtimes() -> list[str]:
    """Those of `RUNTIMES` whose packages are there and load."""
    return [name for name in RUNTIMES if _is_installed(name)]


def _is_installed(runtime: str) -> bool:
    there = all(importlib.util.find_spec(needed) is not None for needed in _NEEDED[runtime])
    return there and (runtime != OPENVINO or not _why_openvino_does_not_run())


def _why_openvino_does_not_run() -> str:
    """What is wrong with an OpenVINO that is installed: one of its libraries, or its age; empty for nothing."""
    try:
        module = require("openvino", extra="openvino", purpose="accelerate='openvino'")
    except MissingDependencyError:
        raise
    except Exception as error:
        return f"it does not load ({type(error).__name__}: {first_line(error)})"
    return "" if hasattr(module, "Core") else "it is too old"


def check_acceleration(accelerate: str) -> None:
    """Refuse an acceleration that does not exist, or whose packages are missing."""
    check_choice("accelerate", accelerate, ACCELERATIONS)
    if accelerate in RUNTIMES:
        require("onnxruntime", extra="onnx", purpose="Running networks in ONNX Runtime or OpenVINO")
        require("onnx", extra="onnx", purpose="Running networks in ONNX Runtime or OpenVINO")
    if accelerate == OPENVINO and (why := _why_openvino_does_not_run()):
        raise InputError(
            f"accelerate='openvino' needs an OpenVINO that runs; got one that does not: {why}. Install it again with "
            "pip install --force-reinstall 'hubscout[openvino]', or use accelerate='auto'."
        )


def pick_backend(accelerate: str, job: ExtractionPlan, device: str, precision: Precision) -> str:
    """What is to run the model: "torch", or one of `RUNTIMES` if that is asked for or is expected to pay.

    The answer hangs on the model and the data alone, never on which of its rows are asked for: whoever runs a part
    of them comes to the same.
    """
    card, module = job.backbone.card, job.backbone.module
    if accelerate == "off" or module is None:
        return TORCH
    fits = device == "cpu" and not precision.reduced
    if accelerate in RUNTIMES:
        if not fits:
            raise InputError(
                f"accelerate={accelerate!r} runs models on the CPU in float32; got the device {device!r} and the "
                f"precision {precision.name!r}. Use device='cpu' and precision='float32', or accelerate='auto'."
            )
        return accelerate
    if not fits or card.bytes > _MOST_BYTES or not _is_expected_to_pay(job, module):
        return TORCH
    convolutions, products = _layers_by_kind(module)
    if convolutions > products and _is_installed(OPENVINO):  # others hardly gain end to end: docs/scale.md
        return OPENVINO
    return ONNXRUNTIME if _is_installed(ONNXRUNTIME) else TORCH


def _is_expected_to_pay(job: ExtractionPlan, module: nn.Module) -> bool:
    rows, modality = len(job.split), job.task.modality
    if rows < _FEWEST_ROWS.get(modality, rows + 1) or rows * (job.backbone.card.flops or 0) < _FEWEST_FLOPS:
        return False
    convolutions, products = _layers_by_kind(module)
    # Transformers over images gain nothing to a fifth, as torch does their matrix products as well.
    return modality != "image" or 4 * convolutions >= products


def _layers_by_kind(module: nn.Module) -> tuple[int, int]:
    """How many convolutions and how many products with a matrix a network has."""
    from torch import nn

    layers = list(module.modules())
    return sum(isinstance(layer, nn.Conv2d) for layer in layers), sum(isinstance(layer, nn.Linear) for layer in layers)


@dataclass(frozen=True, kw_only=True)
class ExtractionOptions:
    """How a model is run over a task. `extract` and `rank` take every field as a keyword.

    A new field is there for both at once, and is kept with a ranking unless it is among `_RUNTIME_FIELDS`.

    Example:
        >>> ExtractionOptions(device="cpu").replace(batch_size=8).batch_size
        8

    """

    layers: Sequence[str] | str | None = None
    """Names of layers to tap in the same pass; "all" for every one that the model names, "mean" for the average of all
    but the first, where they are alike (transformers)."""
    device: str = "auto"
    """ "auto", "cpu", "cuda", "cuda:N" or "mps"."""
    precision: str = "auto"
    """ "auto", "float32", "bfloat16" or "float16". "auto" uses a reduced format only on CUDA, and only where the
    features of the first batch agree with float32."""
    batch_size: int | None = None
    """Samples at once; None guesses, and either is halved when memory runs out."""
    accelerate: str = "auto"
    """ "auto", "off", "onnxruntime" or "openvino": whether the network is exported and run by ONNX Runtime or OpenVINO,
    which are faster on a CPU. "auto" does so where they are installed and the data is large enough, and where features
    and LogME of a few samples agree with torch."""
    blocks: int = 10
    """How many blocks of rows the statistics are kept in, for the jackknife."""
    skip_bad: bool = False
    """Leave samples out that cannot be read, instead of raising. Which ones depends on the data alone."""

    def __post_init__(self) -> None:
        check_acceleration(self.accelerate)
        check_precision(self.precision)

    @classmethod
    def of(cls, **options: Any) -> ExtractionOptions:
        """Options out of keywords, with an error that names the unknown ones.

        Args:
            options: fields by name.

        Returns:
            The options.

        Raises:
            UnknownNameError: there is no such field.

        Example:
            >>> ExtractionOptions.of(device="cpu").device
            'cpu'

        """
        return cls().replace(**options)

    @classmethod
    def from_record(cls, settings: Mapping[str, Any]) -> ExtractionOptions:
        """The options that a ranking was made with, out of its `settings`.

        Args:
            settings: of a ranking.

        Returns:
            The options; those that the settings do not name have their defaults.

        """
        return cls(**{name: settings[name] for name in cls().decisive() if name in settings})

    def replace(self, **changes: Any) -> ExtractionOptions:
        """The same with some fields changed.

        Args:
            changes: fields by name.

        Returns:
            New options.

        Raises:
            UnknownNameError: there is no such field.

        """
        check_keywords(changes, vars(self), context="extraction options")
        return dataclasses.replace(self, **changes)

    def decisive(self) -> dict[str, Any]:
        """The fields that decide what comes out, as they are kept with a ranking.

        Returns:
            Name → value.

        """
        found = {name: value for name, value in dataclasses.asdict(self).items() if name not in _RUNTIME_FIELDS}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
