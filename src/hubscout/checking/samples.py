"""Samples of a task under one number each: names, labels and thumbnails for people, and one look at every input."""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.errors import TaskError
from hubscout.runs.data_check import Sample
from hubscout.tasks import Task
from hubscout.tasks.images import Images
from hubscout.tasks.kept_images import KeptImages
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.sequences import Chained, Rows, in_threads, row_digests

_THUMBNAIL = 112
_LONGEST_NAME = 90
_SKETCH = 16
"""Of the small picture by which images are compared, in pixels."""
_MAGIC = {
    b"\xff\xd8\xff": (".jpg", ".jpeg", ".jfif"),
    b"\x89PNG": (".png",),
    b"GIF8": (".gif",),
    b"BM": (".bmp",),
    b"RIFF": (".webp",),
    b"II*\0": (".tif", ".tiff"),
    b"MM\0*": (".tif", ".tiff"),
}


class Samples:
    """Every sample of every split: `places[i]` is its split and its row there."""

    def __init__(self, task: Task) -> None:
        self.task = task
        arguments = (task.source or {}).get("arguments", {})
        self.places = [(split, row) for split, part in task.splits.items() for row in range(len(part))]
        self._root = str(arguments.get("folder") or arguments.get("image_root") or self._common_folder())

    def _common_folder(self) -> str:
        """What all paths begin with, of a task that does not know its folder; of many, a thousand are asked."""
        if self.task.modality not in ("image", "audio"):
            return ""
        asked = range(0, len(self.places), max(1, len(self.places) // 1000))
        paths = [value for value in map(self.stored, asked) if isinstance(value, Path) and value.is_absolute()]
        with suppress(ValueError):  # there is none: no path at all, or several drives
            return os.path.commonpath([path.parent for path in paths])
        return ""

    def value(self, number: int) -> Any:
        """The input, decoded; raises `TaskError` for one that cannot be."""
        split, row = self.places[number]
        return self.task.splits[split].inputs[row]

    def digests(self) -> Iterator[bytes]:
        """A digest of every input as it is stored."""
        for part in self.task.splits.values():
            yield from row_digests(part.inputs)

    def stored(self, number: int) -> Any:
        """What an input is read from: a path, bytes, or the value itself."""
        split, row = self.places[number]
        return stored(self.task.splits[split].inputs, row)

    def label(self, number: int) -> str:
        """The label, in words."""
        split, row = self.places[number]
        kind, target = kind_of(self.task.kind), self.task.splits[split].targets[row]
        if kind.classes_of_samples:
            return self.task.target_names[int(target)]
        if kind.has_label_sets:
            return ", ".join(self.task.target_names[place] for place in np.flatnonzero(target))
        if kind.rows_are_words:
            return " ".join(self.task.target_names[int(tag)] for tag in target)
        return ", ".join(f"{value:.4g}" for value in np.ravel(target))

    def describe(self, number: int, note: str = "", *, thumbnail: bool = True, longest: int = _LONGEST_NAME) -> Sample:
        """A sample as it is shown; of a text at most `longest` characters."""
        split, row = self.places[number]
        picture = self._thumbnail(number) if thumbnail and self.task.modality == "image" else ""
        is_path = self.task.modality in ("image", "audio")
        name = _name(self.stored(number), split, row, None if is_path else longest)
        if self._root:
            name = name.removeprefix(self._root).lstrip("/\\")
        label = self.label(number)
        if kind_of(self.task.kind).rows_are_words and len(label) > _LONGEST_NAME:
            label = label[:_LONGEST_NAME] + "…"
        return Sample(split=split, row=row, name=name, label=label, note=note, thumbnail=picture)

    def _thumbnail(self, number: int) -> str:
        try:
            image = self.value(number).copy()
        except TaskError:
            return ""
        image.thumbnail((_THUMBNAIL, _THUMBNAIL))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=80)
        return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def stored(inputs: Any, row: int) -> Any:
    """What a row is read from: a path, bytes, or the value itself."""
    if isinstance(inputs, Rows):
        return stored(inputs.base, int(inputs.rows[row]))
    if isinstance(inputs, Chained):
        return stored(*inputs._locate(row))
    if isinstance(inputs, KeptImages):
        return stored(inputs.images, row)
    if not isinstance(inputs, Images):
        return inputs[row]
    value = inputs.encoded[row]
    if isinstance(value, Mapping):
        value = value.get("path") if value.get("bytes") is None else value["bytes"]
    return inputs.root / value if inputs.root is not None and isinstance(value, str | Path) else value


def _name(value: Any, split: str, row: int, longest: int | None) -> str:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list) and all(isinstance(part, str) for part in value):
        value = " ".join(value)
    if not isinstance(value, str) or not value.strip():
        return f"{split}, row {row}"
    return value if longest is None or len(value) <= longest else value[:longest] + "…"


class Looked:
    """What was seen of each sample: `problems` by number, `sketches` of images, `texts` of texts that are not empty."""

    def __init__(self, samples: Samples) -> None:
        self.problems: dict[int, str] = {}
        self.sketches: dict[int, np.ndarray] = {}
        self.texts: dict[int, str] = {}
        self.empty: list[int] = []
        for number, seen in enumerate(in_threads(partial(_look, samples), len(samples.places))):
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

        return np.asarray(value.convert("L").resize((_SKETCH, _SKETCH), Image.Resampling.BOX), dtype=np.float32)
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
