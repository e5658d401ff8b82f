"""The samples that all arms are judged on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hubscout.errors import TaskError
from hubscout.tasks import Split, Task
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.sequences import Chained, derived_fingerprint
from hubscout.tasks.splitting import split_off

SHARE = 0.2
"""Of train and validation together: what is held out, at least."""


def for_race(task: Task, seed: int = 0) -> Task:
    """The task with at least a fifth of train and validation held out, in a random order.

    What is validation stays validation; where that is less than a fifth, rows of train join it. The order is random so
    that the first rows, which early rungs are judged on, are a fair sample.
    """
    pool = len(task.train) + len(task.validation)
    missing = max(0, round(SHARE * pool) - len(task.validation))
    train, validation, notes = task.train, task.validation, []
    if missing:
        stay, taken = split_off(kind_of(task.kind).strata(task.train.targets), missing, seed, task.train.groups)
        if not len(task.validation) and not len(taken):
            why = "every class has a single sample" if task.train.groups is None else "groups are too large or too few"
            raise TaskError(f"{task.name}: {why}, so none is held out to judge a race by. Give a validation split.")
        train, validation = task.train.take(stay), joined_splits(task.validation, task.train.take(taken))
        notes = [f"race: {len(validation):,} samples are held out to judge by, {len(taken):,} of them taken from train"]
    order = np.random.default_rng(seed).permutation(len(validation))
    return _divided(task, train, validation.take(order), notes, race=seed)


def _divided(task: Task, train: Split, validation: Split, notes: Sequence[str] = (), **change: Any) -> Task:
    """The task with other samples to train on and to judge by."""
    splits = {**task.splits, "train": train, "validation": validation}
    fingerprint = derived_fingerprint(task.fingerprint, **change)
    return replace(task, splits=splits, fingerprint=fingerprint, notes=(*task.notes, *notes), source=None)


def other_fold(task: Task, number: int, seed: int = 0) -> Task:
    """The task of a race with another part held out, as large as that of the first fold; `number` counts from 1.

    Held-out parts of different folds have no sample in common, as far as there are samples.
    """
    rest, count = np.arange(len(task.train)), len(task.validation)
    strata = kind_of(task.kind).strata(task.train.targets)
    part = rest
    for _ in range(number):
        kept = None if task.train.groups is None else task.train.groups[rest]
        stay, taken = split_off(strata[rest], min(count, len(rest) // 2), seed, kept)
        rest, part = rest[stay], rest[taken]
    others = np.setdiff1d(np.arange(len(task.train)), part)
    train = joined_splits(task.train.take(others), task.validation)
    return _divided(task, train, task.train.take(np.random.default_rng(seed).permutation(part)), fold=number)


def joined_splits(*splits: Split) -> Split:
    """Several splits as one."""
    there = [split for split in splits if len(split)]
    if len(there) == 1:
        return there[0]
    targets = (
        [words for split in there for words in split.targets]
        if isinstance(there[0].targets, list)
        else np.concatenate([np.asarray(split.targets) for split in there])
    )
    groups = [split.groups for split in there if split.groups is not None]
    return Split(
        Chained([split.inputs for split in there]),
        targets,
        groups=np.concatenate(groups) if len(groups) == len(there) else None,
    )


def with_validation(task: Task) -> Task:
    """The task with train and validation together to train on, for a winner whose setting is known."""
    return _divided(task, joined_splits(task.train, task.validation), task.train.take([]), refit=True)
