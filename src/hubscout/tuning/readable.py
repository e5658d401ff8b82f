"""Whether every sample of a task can be read: found out before the first step, not after the last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, finalize

import numpy as np

from hubscout.errors import TaskError
from hubscout.features.decoded import Room
from hubscout.runs.events import Message
from hubscout.tasks.kept_images import keep_decoded
from hubscout.tasks.sequences import task_fingerprint, unreadable_rows

if TYPE_CHECKING:
    from hubscout.tasks import Task

Unreadable = Mapping[str, Mapping[int, str]]
"""Split → row → why it cannot be read; the reason names the file."""
_NAMED = 5
_known_readable: WeakSet[Task] = WeakSet()
"""A search tunes on the same task many times, and reads it through once."""
_kept: dict[tuple[int, bool], Task] = {}
"""By the id of a task, and whether its pixels are let go of: the same with images kept. Gone when the task is."""


def decoded_once(task: Task, data_in_memory: bool | None = None) -> Task:
    """The task whose images are kept in memory once they were read, as many as there is room for.

    With `data_in_memory=False` the task as it is; with True its pixels are let go of once they are on the device.
    """
    if data_in_memory is False:
        return task
    place = id(task), bool(data_in_memory)
    if place not in _kept and (kept := keep_decoded(task, Room().take)) is not task:
        _kept[place] = kept
        finalize(task, _kept.pop, place, None)
        _known_readable.discard(task)  # it is read once more, and kept
    return _kept.get(place, task)


def read_through(
    task: Task,
    *,
    skip_bad: bool = False,
    observer: Callable[[Any], None] | None = None,
    data_in_memory: bool | None = None,
) -> Task:
    """The task, every sample of which can be read; it keeps what was decoded, unless `data_in_memory` is False.

    With `skip_bad` that is the task without those that cannot, and a note names them. Its fingerprint is the one that
    the same data without these files has: a run goes on when they are deleted.

    Raises:
        TaskError: samples that cannot be read, each by its file.

    """
    task = decoded_once(task, data_in_memory)
    return without(task, find_unreadable(task), skip_bad=skip_bad, observer=observer)


def find_unreadable(task: Task) -> dict[str, dict[int, str]]:
    """Read every sample of every split once."""
    if task in _known_readable:
        return {}
    found = {name: bad for name, split in task.splits.items() if (bad := unreadable_rows(split.inputs))}
    if not found:
        _known_readable.add(task)
    return found


def without(
    task: Task, bad: Unreadable, *, skip_bad: bool = False, observer: Callable[[Any], None] | None = None
) -> Task:
    """The task without its unreadable samples, or an error that names them."""
    if not bad:
        return task
    counts = " and ".join(
        f"{len(rows):,} of {len(task.splits[split]):,} {split} samples" for split, rows in bad.items()
    )
    reasons = [why for rows in bad.values() for why in rows.values()]
    if not skip_bad:
        raise TaskError(
            f"{counts} of {task.name!r} cannot be read. {_listed(reasons)} To go on without "
            f"{'it' if len(reasons) == 1 else 'them'}, skip what is bad (skip_bad=True, --skip-bad)."
        )
    splits = {
        name: split.take(np.setdiff1d(np.arange(len(split)), list(bad[name]))) if name in bad else split
        for name, split in task.splits.items()
    }
    note = f"{counts} cannot be read and {'is' if len(reasons) == 1 else 'are'} left out. {_listed(reasons)}"
    if observer is not None:
        observer(Message("", note))
    kept = replace(
        task,
        splits=splits,
        fingerprint=task_fingerprint(task.kind, task.modality, task.target_names, splits),
        notes=(*task.notes, note),
        source=None,
    )
    _known_readable.add(kept)
    return kept


def _listed(reasons: Sequence[str]) -> str:
    more = f" … and {len(reasons) - _NAMED:,} more." if len(reasons) > _NAMED else ""
    return " ".join(reasons[:_NAMED]) + more
