"""Processes that decode small images for a GPU, started before the first model is there that they decode for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hubscout.features.device_batches import common_shape
from hubscout.features.preparing import default_processes
from hubscout.features.process_pool import process_pool
from hubscout.hubs.device_resizing import MOST_PIXELS

if TYPE_CHECKING:
    from hubscout.tasks import Task


def start_decoders(device: str, task: Task) -> bool:
    """Start them for images that the GPU itself resizes, and do not wait: by the time that the imports of torch and of
    the first model have taken, they are ready. Whether they are needed. Once they are there, they stay.
    """
    inputs = task.train.inputs
    count = default_processes(device, task.modality, len(inputs), decode_alone=True)
    shape = common_shape(inputs, range(len(inputs))) if count else None
    if shape is None or shape[0] * shape[1] > MOST_PIXELS:
        return False
    with suppress(OSError):  # where there can be none, threads decode
        process_pool(count)
    return True
