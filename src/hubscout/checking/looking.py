"""One look at every input: whether it can be read, and a small picture of it to compare with others."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.checking.samples import Samples
from hubscout.errors import TaskError

SIDE = 16
"""Of the small picture by which images are compared, in pixels."""
_THREADS = 4
_MAGIC = {
    b"\xff\xd8\xff": (".jpg", ".jpeg", ".jfif"),
    b"\x89PNG": (".png",),
    b"GIF8": (".gif",),
    b"BM": (".bmp",),
    b"RIFF": (".webp",),
    b"II*\0": (".tif", ".tiff"),
    b"MM\0*": (".tif", ".tiff"),
}


class Looked:
    """What was seen of each sample: `problems` by number, `sketches` of images, `texts` of texts that are not empty."""

    def __init__(self, samples: Samples) -> None:
        self.problems: dict[int, str] = {}
        self.sketches: dict[int, np.ndarray] = {}
        self.texts: dict[int, str] = {}
        self.empty: list[int] = []
        with ThreadPoolExecutor(_THREADS) as pool:
            for number, seen in enumerate(pool.map(lambda one: _look(samples, one), range(len(samples)))):
                if isinstance(seen, TaskError):
                    self.problems[number] = str(seen)
                elif isinstance(seen, np.ndarray):
                    self.sketches[number] = seen
                elif seen == "":
                    self.empty.append(number)
                elif isinstance(seen, str):
                    self.texts[number] = seen


def _look(samples: Samples, number: int) -> Any:
    try:
        value = samples.value(number)
    except TaskError as error:
        return error
    if samples.task.modality == "image":
        from PIL import Image

        return np.asarray(value.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32)
    if samples.task.modality in ("text", "text-pair", "tokens"):
        parts = [value] if isinstance(value, str) else list(value)
        blank = [not part.strip() for part in parts]
        if any(blank) if samples.task.modality == "text-pair" else all(blank):
            return ""
        whole = "\t".join(parts).casefold()
        # A text of marks alone is compared as it is: without them nothing would be left of it.
        return re.sub(r"[\W_]+", " ", whole).strip() or whole
    return None


def wrong_ending(path: Path) -> str | None:
    """The ending that the first bytes of an image file speak for, where its own is another."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError:
        return None
    endings = next((endings for magic, endings in _MAGIC.items() if start.startswith(magic)), None)
    return endings[0] if endings is not None and path.suffix.lower() not in endings else None
