"""Batches out of data that was prepared once and is held: images on the device, where they are augmented as well."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hubscout.errors import InputError
from hubscout.features.decoded import default_limit_bytes, size_bytes
from hubscout.features.device_batches import free_on
from hubscout.hubs import Batch, Preprocessing
from hubscout.tuning.batches import MODEL, Batches, BatchPlan, Share, uniforms, view_of

CHUNK = 64
"""Samples that a thread prepares at a time."""
SHARE_OF_DEVICE = 0.25
"""Of the memory that is free on a GPU, for data that nobody asked to hold; the rest is for the training."""
CROP_AREA = (0.35, 1.0)
"""Least and greatest share of the image that a random crop keeps."""
CROP_RATIO = (3 / 4, 4 / 3)
"""Least and greatest ratio of a crop's width to its height."""


class HeldBatches(Batches):
    """Every sample prepared once by each view's preprocessing.

    Images of one size become one tensor on the device and are cropped and flipped there, the same crop for all views.
    The crops are taken from the prepared image, so what the preprocessing's centre crop left out is never seen, and
    colours stay as they are. Anything else is kept as the preprocessing gave it.
    """

    def __post_init__(self) -> None:
        self.views = _held_views(self.inputs, self.preprocessings, workers=self.workers, device=self.device)
        self.augment = self.augment and augments(self.preprocessings)
        if self.augment and any(view.images is None for view in self.views.values()):
            raise InputError(
                "data_in_memory=True needs images that the preprocessing brings to one size; it gave several."
            )

    def train(self, plan: BatchPlan, steps: range, process: int, processes: int) -> Iterator[Share]:
        for step in steps:
            samples = plan.share(step, process, processes)
            view = view_of(plan.epoch(step), self.fixed_views)
            crops = random_crops(samples, self.seed, view) if self.augment else None
            yield Share(torch.as_tensor(samples), {name: v.batch(samples, crops) for name, v in self.views.items()})

    def evaluate(self, samples: np.ndarray, batch_size: int) -> Iterator[Share]:
        for start in range(0, len(samples), batch_size):
            chunk = samples[start : start + batch_size]
            yield Share(torch.as_tensor(chunk), {MODEL: self.views[MODEL].batch(chunk, None)})


def augments(preprocessings: Mapping[str, Preprocessing]) -> bool:
    """Whether any of them has augmentations."""
    return any(one.augmented().key != one.key for one in preprocessings.values())


def fits(inputs: Sequence[Any], preprocessings: Mapping[str, Preprocessing], device: torch.device) -> bool:
    """Whether prepared arrays, by the size of the first one, take a quarter of the free memory at most.

    Tokens are not held: they cost less to make than to keep.
    """
    if not len(inputs):
        return False
    first = inputs[0]
    sizes = [size_bytes(one(first)) for one in preprocessings.values()]
    room = SHARE_OF_DEVICE * free_on(str(device)) if device.type == "cuda" else default_limit_bytes()
    return None not in sizes and sum(filter(None, sizes)) * len(inputs) <= room


_kept: dict[int, dict[tuple[str, str], _View]] = {}
"""By the id of the inputs: what the last run over them held, for the next one. Gone when the inputs are."""


def _held_views(
    inputs: Sequence[Any], preprocessings: Mapping[str, Preprocessing], *, workers: int, device: torch.device
) -> dict[str, _View]:
    """The views, decoded now or taken over from the last run: a comparison of methods decodes its data once."""
    before = _kept.pop(id(inputs), {})
    now: dict[tuple[str, str], _View] = {}
    for one in preprocessings.values():
        place = (one.key, str(device))
        now[place] = now.get(place) or before.get(place) or _View(inputs, one, workers=workers, device=device)
    views = {name: now[one.key, str(device)] for name, one in preprocessings.items()}
    try:
        weakref.finalize(inputs, _kept.pop, id(inputs), None)
    except TypeError:  # a plain list, say, which tells nobody when it goes
        return views
    _kept[id(inputs)] = now
    return views


class _View:
    def __init__(
        self, inputs: Sequence[Any], preprocessing: Preprocessing, *, workers: int, device: torch.device
    ) -> None:
        self.preprocessing = preprocessing
        self.device = device
        self.samples: list[Any] = []
        self.images: Tensor | None = None
        self.name = ""
        # Threads, not processes: Pillow decodes and resizes outside the interpreter's lock, and a process that is
        # spawned with the data pickled into it takes longer to start than its share of the decoding.
        with ThreadPoolExecutor(max(workers, 1)) as pool:
            prepared = pool.map(partial(_prepare, inputs, preprocessing), range(0, len(inputs), CHUNK))
            chunks = [chunk.to(device) if isinstance(chunk, Tensor) else chunk for chunk in prepared]
        stacks = [chunk for chunk in chunks if isinstance(chunk, Tensor)]
        if len(stacks) == len(chunks) and len({stack.shape[1:] for stack in stacks}) == 1:
            self.images = torch.cat(stacks)
            (self.name,) = preprocessing.collate([self.images[0].cpu().numpy()])
        else:
            samples = (sample for chunk in chunks for sample in chunk)
            self.samples = [sample.cpu().numpy() if isinstance(sample, Tensor) else sample for sample in samples]

    def batch(self, samples: np.ndarray, crops: Tensor | None) -> Batch:
        if self.images is None:
            return self.preprocessing.collate([self.samples[sample] for sample in samples.tolist()])
        images = self.images[torch.as_tensor(samples).to(self.device)]
        return {self.name: images if crops is None else crop_and_flip(images, crops.to(self.device))}


def _prepare(inputs: Sequence[Any], preprocessing: Preprocessing, start: int) -> Tensor | list[Any]:
    prepared = [preprocessing(inputs[number]) for number in range(start, min(start + CHUNK, len(inputs)))]
    if all(isinstance(p, np.ndarray) and p.ndim == 3 and p.shape == prepared[0].shape for p in prepared):
        stack = torch.from_numpy(np.stack(prepared))
        (found, *others) = preprocessing.collate(prepared[:2]).values()
        if not others and found.dtype == stack.dtype and torch.equal(found, stack[:2]):  # it does nothing more
            return stack
    return prepared


def random_crops(samples: np.ndarray, seed: int, view: int) -> Tensor:
    """(samples, 5): centre x and y in [-1, 1], half-width, half-height, and -1 for a mirrored image, else 1."""
    draws = uniforms(samples, 5, seed, view)
    area = CROP_AREA[0] + draws[:, 0] * (CROP_AREA[1] - CROP_AREA[0])
    low, high = np.log(CROP_RATIO)
    ratio = np.exp(low + draws[:, 1] * (high - low))
    width, height = np.minimum(np.sqrt(area * ratio), 1.0), np.minimum(np.sqrt(area / ratio), 1.0)
    x, y = (2 * draws[:, 2] - 1) * (1 - width), (2 * draws[:, 3] - 1) * (1 - height)
    mirror = np.where(draws[:, 4] < 0.5, -1.0, 1.0)
    return torch.as_tensor(np.stack([x, y, width, height, mirror], axis=1), dtype=torch.float32)


def crop_and_flip(images: Tensor, crops: Tensor) -> Tensor:
    """Each image's crop, brought back to the image's size (bilinear) and mirrored where its crop says so."""
    values = images if images.is_floating_point() else images.float()
    x, y, width, height, mirror = crops.to(values.dtype).unbind(dim=1)
    nothing = torch.zeros_like(x)
    affine = torch.stack(
        [torch.stack([width * mirror, nothing, x], dim=1), torch.stack([nothing, height, y], dim=1)], dim=1
    )
    grid = functional.affine_grid(affine, list(values.shape), align_corners=False)
    cropped = functional.grid_sample(values, grid, mode="bilinear", padding_mode="border", align_corners=False)
    # Pixels stay 8-bit pixels: what follows normalises those and takes floats for normalised already.
    return cropped if images.is_floating_point() else cropped.round().clamp(0, 255).to(images.dtype)
