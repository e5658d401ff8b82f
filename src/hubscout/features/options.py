"""`ExtractionOptions`: how a model is run over a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubscout.errors import UnknownNameError
from hubscout.features.backend import check_acceleration
from hubscout.features.precision import check_precision

_RUNTIME_FIELDS = frozenset({"device", "batch_size", "accelerate"})
"""They decide where and how fast a model runs, not what comes out."""


@dataclass(frozen=True, kw_only=True)
class ExtractionOptions:
    """How a model is run over a task. `extract` and `rank` take every field as a keyword.

    A new field is there for both at once, and is kept with a ranking unless it is among `_RUNTIME_FIELDS`.
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
    """ "auto", "off" or "onnxruntime": whether the network is exported and run by ONNX Runtime, which is faster on a
    CPU. "auto" does so where it is installed and the data is large enough, and where features and LogME of a few
    samples agree with torch."""
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

        >>> ExtractionOptions.of(device="cpu").device
        'cpu'
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(options) - known):
            raise UnknownNameError(unknown[0], known, context="extraction options")
        return cls(**options)

    @classmethod
    def from_record(cls, settings: Mapping[str, Any]) -> ExtractionOptions:
        """The options that a ranking was made with, out of its `settings`."""
        return cls(**{name: settings[name] for name in cls().decisive() if name in settings})

    def replace(self, **changes: Any) -> ExtractionOptions:
        """The same with some fields changed."""
        return dataclasses.replace(self, **changes)

    def decisive(self) -> dict[str, Any]:
        """The fields that decide what comes out, as they are kept with a ranking."""
        found = {name: value for name, value in dataclasses.asdict(self).items() if name not in _RUNTIME_FIELDS}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
