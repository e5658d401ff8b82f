"""What runs of one case have in common, made once for all processes: decoded images, features, posteriors.

Sixteen processes that share a machine spent most of their time on decoding the same images and on fitting the same
posteriors. Here the first one that needs something makes it, the others wait for it and read it from the cache. What
comes out of a run is the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hubscout.features import FeatureCache
from hubscout.features.feature_keys import identity
from hubscout.hubs import Backbone, load
from hubscout.tuning import decoded_batches, readable
from hubscout.tuning.frozen_features import FrozenFeatures

THREADS = min(8, (os.cpu_count() or 1) - 2)
"""Of the one process that makes something, while the others wait for it."""
_names: dict[int, str] = {}
"""By the id of the inputs of a split: what its decoded images are called."""


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """One process at a time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def once(file: Path, make: Callable[[], Any]) -> Any:
    """What `make` gives, from the file where it lies there already."""
    if not file.exists():
        with alone(file):
            if not file.exists():
                made, half = make(), file.with_suffix(f".{os.getpid()}")
                half.write_bytes(pickle.dumps(made, protocol=5))
                half.rename(file)
                return made
    return pickle.loads(file.read_bytes())


def _place(folder: Path, *parts: Any) -> Path:
    return folder / (hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:24] + ".pickle")


@cache
def share(folder: Path) -> None:
    """From now on this process shares what it decodes and fits with others that have the same folder."""

    class KeptView(decoded_batches._View):
        def __init__(self, inputs: Any, preprocessing: Any, *, workers: int, device: torch.device) -> None:
            if id(inputs) not in _names:
                super().__init__(inputs, preprocessing, workers=workers, device=device)
                return

            def decoded() -> tuple[np.ndarray | None, list[Any], str]:
                view(self, inputs, preprocessing, workers=THREADS, device=torch.device("cpu"))
                return None if self.images is None else self.images.numpy(), self.samples, self.name

            found = once(_place(folder / "decoded", _names[id(inputs)], preprocessing.key), decoded)
            images, self.samples, self.name = found
            self.preprocessing, self.device = preprocessing, device
            self.images = None if images is None else torch.from_numpy(images).to(device)

    view = decoded_batches._View.__init__
    fitted, crossed, extracted = FrozenFeatures.posterior, FrozenFeatures._cross, FrozenFeatures._extraction

    def about(frozen: FrozenFeatures, backbone: Backbone) -> tuple[Any, ...]:
        # As it is now: the card of a teacher that was tuned is that of the model it was made from.
        return (frozen.task.fingerprint, frozen.device, identity(backbone), backbone.preprocessing.key)

    def posterior(self: FrozenFeatures, backbone: Backbone) -> Any:
        if id(backbone) not in self._posteriors:
            place = _place(folder / "posteriors", *about(self, backbone))
            self._posteriors[id(backbone)] = once(place, lambda: fitted(self, backbone))
        return fitted(self, backbone)

    def cross(self: FrozenFeatures, backbone: Backbone, folds: int) -> Any:
        return once(_place(folder / "heads", *about(self, backbone), folds), lambda: crossed(self, backbone, folds))

    def extraction(self: FrozenFeatures, backbone: Backbone, split: str = "train") -> Any:
        if (id(backbone), split) in self._extractions:
            return extracted(self, backbone, split)
        with alone(_place(folder / "extractions", *about(self, backbone), split)):
            self.workers = THREADS
            return extracted(self, backbone, split)

    decoded_batches._View = KeptView  # type: ignore[misc]
    FrozenFeatures.posterior, FrozenFeatures._cross = posterior, cross  # type: ignore[method-assign]
    FrozenFeatures._extraction = extraction  # type: ignore[method-assign]


def known(task: Any, name: str) -> Any:
    """A task of which all samples are known to be readable, with names for its splits."""
    readable._known_readable.add(task)
    for part, split in task.splits.items():
        _names[id(split.inputs)] = f"{name}-{part}-{len(split)}-{task.splits[part].fingerprint or task.fingerprint}"
    return task


@cache
def opened_once(identifier: str) -> Backbone:
    """A model that every run of this process copies."""
    return load(identifier)


@cache
def features(folder: Path) -> FeatureCache:
    """The cache of features of all runs."""
    return FeatureCache(folder)
