"""Samples as people see them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from hubscout.checking.samples import Samples
from hubscout.tasks import Task


def test_an_image_is_named_from_its_folder_on_wherever_the_task_came_from(tmp_path: Path) -> None:
    for name in ("cats/a.png", "cats/b.png", "dogs/a.png", "dogs/b.png"):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "pets" / name)
    task = Task.from_image_folder(tmp_path / "pets", test_size=0.5)
    for known in (task, replace(task, source=None)):  # a race cuts its own splits, and such a task has no source
        samples = Samples(known)
        names = {samples.describe(number, thumbnail=False).name for number in range(4)}
        assert names == {"cats/a.png", "cats/b.png", "dogs/a.png", "dogs/b.png"}


def test_an_image_in_memory_is_named_by_its_row() -> None:
    images = [Image.new("RGB", (4, 4)) for _ in range(8)]
    samples = Samples(Task.from_arrays(images, np.arange(8) % 2))
    split, row = samples.places[0]
    assert samples.describe(0, thumbnail=False).name == f"{split}, row {row}"
