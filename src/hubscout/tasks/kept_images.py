"""Images that are decoded once: their pixels are kept for whoever reads them next, as long as there is room."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.optional import require
from hubscout.tasks.images import Images, is_encoded, is_pillow
from hubscout.tasks.sequences import Chained, LazyRows, Rows, digest_of

if TYPE_CHECKING:
    from hubscout.tasks.task import Task


class KeptImages(LazyRows):
    """The images of another sequence, pixel for pixel, each decoded once if `has_room` says so of its bytes.

    Other processes decode for themselves what is not kept when they begin, and what is sent to them: to send pixels
    takes longer.
    """

    def __init__(self, images: Sequence[Any], has_room: Callable[[int], bool]) -> None:
        self.images, self.has_room = images, has_room
        self.pixels: dict[int, np.ndarray] = {}
        self._process = os.getpid()

    def __len__(self) -> int:
        return len(self.images)

    def let_go(self) -> None:
        """Forget the pixels and keep none from now on: somebody has what was made of them."""
        self.has_room = lambda size: False
        self.pixels.clear()

    def read(self, row: int) -> Any:
        known = self.pixels.get(row)
        if known is not None:
            return require("PIL.Image", extra="vision", purpose="Images").fromarray(known)
        image = self.images[row]
        # A forked process would keep for itself what ends with it.
        if is_pillow(image) and os.getpid() == self._process:
            pixels = np.asarray(image)
            if self.has_room(pixels.nbytes):
                self.pixels[row] = pixels
        return image

    def digest(self, row: int) -> bytes:
        """The content digest of one row."""
        return digest_of(self.images, row)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _received, (self.images,)


def _received(images: Sequence[Any]) -> Sequence[Any]:
    return images


def keep_decoded(task: Task, has_room: Callable[[int], bool]) -> Task:
    """The same task, whose images are kept once they were decoded; where none is decoded, the task itself."""
    kept = {
        name: replace(split, inputs=KeptImages(split.inputs, has_room))
        for name, split in task.splits.items()
        if _is_decoded(split.inputs)
    }
    return replace(task, splits={**task.splits, **kept}) if kept else task


def let_go_of_pixels(inputs: Sequence[Any]) -> None:
    """Forget the pixels that inputs keep, where they keep any."""
    base = inputs.base if isinstance(inputs, Rows) else inputs
    if isinstance(base, KeptImages):
        base.let_go()


def _is_decoded(inputs: Sequence[Any]) -> bool:
    """Whether a row is an image that is decoded each time it is read."""
    if isinstance(inputs, Chained):
        return any(map(_is_decoded, inputs.parts))
    base = inputs.base if isinstance(inputs, Rows) else inputs
    return type(base) is Images and len(inputs) > 0 and is_encoded(base.encoded[0])
