"""LogME of features that saw an image more than once: at three sizes, and beside its mirror image.

Everything goes through `extract`: another size is an option of the model's identifier, and the mirror images are a task
of their own. The kernel of features side by side is the sum of their kernels; "scaled" gives both the same trace first.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache

import numpy as np
import shared_hub
from data_sets import open_set
from PIL import ImageOps

from hubscout.evidence import logme
from hubscout.features import extract
from hubscout.tasks import Split, Task

IMAGES = 400
SIDES = (64, 96, 128)
"""A smaller, the usual and a larger size, in pixels."""
SMALL_SIDES = (24, 32, 48)
"""Of the networks for CIFAR-10."""
OTHER_SIDES = {"inception_v3_fid_in1k": (80, 96, 128)}
"""Where nothing is left of 64 pixels before the last layer."""


@cache
def images(set_name: str) -> Task:
    """So many train images, as `rank(limit=400)` takes them."""
    return open_set(set_name).subset(IMAGES, seed=0)


@cache
def mirrored(set_name: str) -> Task:
    """The same images, left and right exchanged."""
    task = images(set_name)
    turned = Split([ImageOps.mirror(image) for image in task.train.inputs], task.train.targets)
    return replace(task, splits={"train": turned}, fingerprint=f"{task.fingerprint}-mirrored", source=None)


def sides(model: str) -> tuple[int, int, int]:
    return SMALL_SIDES if model.startswith("cifar10_") else OTHER_SIDES.get(model, SIDES)


def features(model: str, side: int, task: Task) -> np.ndarray:
    found = extract(
        shared_hub.identifier(model, side), task, statistics=False, device="cpu", precision="float32", workers=1
    )
    return found.features().astype(np.float64)


def scaled(F: np.ndarray) -> np.ndarray:
    """With rows of mean squared length one: a kernel whose mean diagonal is one."""
    return F / np.sqrt((F**2).sum() / len(F))


def measure(set_name: str, model: str) -> tuple[dict[str, float], dict[str, float]]:
    """Scores by name, and seconds."""
    task, labels = images(set_name), np.asarray(images(set_name).train.targets)
    seen: dict[str, np.ndarray] = {}
    seconds: dict[str, float] = {}
    small, usual, large = sides(model)
    for name, side, data in (
        ("smaller", small, task),
        ("usual", usual, task),
        ("larger", large, task),
        ("mirror", usual, mirrored(set_name)),
    ):
        start = time.perf_counter()
        seen[name] = features(model, side, data)
        seconds[name] = time.perf_counter() - start
    seen["with mirror image, average"] = (seen["usual"] + seen["mirror"]) / 2
    seen["with mirror image, side by side"] = np.hstack([seen["usual"], seen.pop("mirror")])
    for other in ("smaller", "larger"):
        pair = seen["usual"], seen[other]
        seen[f"usual and {other}, average"] = (pair[0] + pair[1]) / 2
        seen[f"usual and {other}, side by side"] = np.hstack(pair)
        seen[f"usual and {other}, scaled"] = np.hstack([scaled(F) for F in pair])
    return {name: logme(F, labels, jackknife="none").score for name, F in seen.items()}, seconds
