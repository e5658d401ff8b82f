"""Processes that decode small images for a GPU, started before the first model is there that they decode for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hubscout.features.device_batches import common_shape
from hubscout.features.preparing import default_processes, process_pool
from hubscout.hubs.device_resizing import MOST_PIXELS

if TYPE_CHECKING:
    from hubscout.tasks import Task


def start_decoders(device: str, task: Task) -> threading.Thread | None:
    """Start them, in a thread, for images that the GPU itself resizes: by the time that the imports of the first model
    have taken, they are ready. None where none are needed.
    """
    inputs = task.train.inputs
    count = default_processes(device, task.modality, len(inputs), decode_alone=True)
    shape = common_shape(inputs, range(len(inputs))) if count else None
    if shape is None or shape[0] * shape[1] > MOST_PIXELS:
        return None

    thread = threading.Thread(target=lambda: process_pool(count).submit(int), name="hubscout-decoders")
    thread.start()
    return thread
