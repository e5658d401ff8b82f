"""What a GPU does for the batches of many models: it keeps them, and resizes small images itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.hubs.device_resizing import decoded, resizing_on
from hubscout.hubs.image_preprocessing import ImagePreprocessing

if TYPE_CHECKING:
    from hubscout.features.extraction_plan import ExtractionPlan
    from hubscout.hubs import Batch, Preprocessing

_LOOKED_AT = 8
"""Images from all over the split: what they have in common, the others are taken to have too."""


@dataclass(frozen=True)
class HeldSamples(Sequence[Any]):
    """The samples of a batch that is on the device: they are cut without being stacked again."""

    batch: Batch

    def __len__(self) -> int:
        return len(next(iter(self.batch.values())))

    def __getitem__(self, place: Any) -> Any:
        return HeldSamples({name: value[place] for name, value in self.batch.items()})


def free_on(device: str) -> int:
    """Bytes that are free on a CUDA device; none elsewhere: on a CPU the decoded samples are there already."""
    if not device.startswith("cuda"):
        return 0
    import torch

    return torch.cuda.mem_get_info(device)[0]


def preprocessing_on(device: str, job: ExtractionPlan) -> Preprocessing:
    """The model's own preprocessing; for small images of one size and a GPU, one that resizes them there."""
    own = job.backbone.preprocessing
    if not isinstance(own, ImagePreprocessing) or job.backbone.module is None or not free_on(device):
        return own
    shape = common_shape(job.split.inputs, job.rows)
    return own if shape is None else resizing_on(device, own, shape) or own


def common_shape(inputs: Sequence[Any], rows: Sequence[int] | np.ndarray) -> tuple[int, ...] | None:
    """The shape that images of these rows have in common; None where they differ, or none can be read."""
    shapes = set()
    for place in np.unique(np.linspace(0, len(rows) - 1, _LOOKED_AT).astype(int)):
        with suppress(Exception):  # the reader meets the same error, and names the sample
            shapes.add(decoded(inputs[int(rows[place])]).shape)
    return shapes.pop() if len(shapes) == 1 else None
