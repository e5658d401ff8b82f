"""The last word on cached features: a few samples go through the model again, and must give what they gave before.

Weights and source say what a model is made of; what it computes also hangs on code and settings that neither shows.
Two samples are enough to notice, and cost one small forward pass in float32. Numbers are compared, not hashed: devices,
threads and versions of a library round differently.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hubscout.features.precision import SAFE_RELATIVE_ERROR

_TRIES = 8
_ROWS = "rows"


@dataclass(frozen=True)
class Probe:
    """What the samples `rows` gave: `arrays` by the names of a shard's."""

    rows: np.ndarray
    arrays: Mapping[str, np.ndarray]

    def agrees_with(self, kept: Probe) -> bool:
        """Whether a model that gave this is the one that gave `kept`. Other samples tell nothing, so they agree."""
        if not np.array_equal(self.rows, kept.rows):
            return True
        if self.arrays.keys() != kept.arrays.keys():
            return False
        return all(_close(array, kept.arrays[name]) for name, array in self.arrays.items())

    def encode(self) -> bytes:
        """As the content of a file."""
        buffer = io.BytesIO()
        np.savez(buffer, **{_ROWS: self.rows, **self.arrays})  # type: ignore[arg-type]
        return buffer.getvalue()

    @classmethod
    def decode(cls, content: bytes) -> Probe | None:
        """Out of a file; None where it is none."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            return cls(arrays.pop(_ROWS), arrays)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None


def places_to_try(count: int) -> list[range]:
    """Where the samples of a probe are taken from, the first in each that can be read: the start, and the middle.

    >>> places_to_try(1000)
    [range(0, 8), range(500, 508)]
    """
    return [range(start, min(start + _TRIES, count)) for start in sorted({0, count // 2})]


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    """Alike up to the difference at which scores stay the same, as for number formats.

    It is more than TF32 makes, which CUDA takes for float32 convolutions: it has the mantissa of float16.
    """
    if one.shape != other.shape:
        return False
    size = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)))
    return float(np.linalg.norm(one.astype(np.float64) - other)) <= SAFE_RELATIVE_ERROR * size
