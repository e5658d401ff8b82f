"""A model folder that is always whole: the best so far, whenever a race is stopped."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from hubscout.runs.race_record import Arm
from hubscout.runs.run_folder import RACE, RACE_LINES
from hubscout.runs.texts import short_names

BEST = "best"
"""In the folder of an arm: its cooled-down network, as it can be used."""


WORKING = ("arms", "folds", "lessons", "refit")
"""Folders of a race in which networks are tuned."""


def arm_folder(arm: Arm) -> str:
    """The name of an arm's folder: the same whoever else races.

    >>> arm_folder(Arm("timm/resnet18.a1_in1k", 0.002))
    'resnet18.a1_in1k-00a6f754-0.002'
    """
    name = re.sub(r"[^\w.]+", "-", short_names([arm.model])[0])[:40].strip("-.")
    return f"{name}-{hashlib.sha256(arm.model.encode()).hexdigest()[:8]}-{arm.learning_rate:g}"


def clear(folder: Path) -> None:
    """Remove what a race left, but for its models, which stay until there are others."""
    for name in (RACE, RACE_LINES):
        (folder / name).unlink(missing_ok=True)
    for name in WORKING:
        shutil.rmtree(folder / name, ignore_errors=True)


def put_in_place(source: Path, target: Path) -> None:
    """A copy of a folder under another name; a reader sees the old one or the new one."""
    restore(target)
    fresh, old = _beside(target)
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, fresh)
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def restore(target: Path) -> None:
    """Put back what a kill between the two renames left beside its place; the new one is whole by then."""
    for folder in _beside(target):
        if not target.exists() and folder.is_dir() and _beside(target)[1].is_dir():
            folder.rename(target)


def drop_checkpoints(folder: Path) -> None:
    """Remove what only a run that goes on needs; its curves stay."""
    for name in ("checkpoints", BEST):
        shutil.rmtree(folder / name, ignore_errors=True)


def _beside(target: Path) -> tuple[Path, Path]:
    return target.with_name(f".{target.name}.new"), target.with_name(f".{target.name}.old")
