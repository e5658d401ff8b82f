"""The samples that arms are judged on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hubscout.errors import TaskError
from hubscout.racing.held_out_samples import for_race, other_fold
from hubscout.tasks import Task


def test_folds_hold_out_each_sample_at_most_once(task: Task) -> None:
    first = for_race(task)
    folds = [first, *(other_fold(first, number) for number in (1, 2, 3))]
    held = [{tuple(row) for row in np.asarray(list(fold.validation.inputs))} for fold in folds]
    assert all(not (a & b) for place, a in enumerate(held) for b in held[:place])
    everything = {tuple(row) for part in ("train", "validation") for row in np.asarray(list(task.splits[part].inputs))}
    for fold, out in zip(folds, held, strict=True):
        trained = {tuple(row) for row in np.asarray(list(fold.train.inputs))}
        assert trained | out == everything
        assert not trained & out
    assert len({fold.fingerprint for fold in folds}) == 4


def test_groups_are_not_divided_by_a_race(task: Task) -> None:
    groups = np.arange(len(task.train)) // 5
    train = replace(task.train, groups=groups)
    grouped = replace(task, splits={**task.splits, "train": train, "validation": train.take([])})
    first = for_race(grouped)
    for fold in (first, other_fold(first, 1), other_fold(first, 2)):
        assert fold.train.groups is not None
        assert fold.validation.groups is not None
        assert not set(fold.train.groups) & set(fold.validation.groups)
        assert 0.1 < len(fold.validation) / len(groups) < 0.3


@pytest.mark.parametrize(
    ("labels", "groups", "why"),
    [([0, 1] * 30, [0] * 60, "groups are too large or too few"), (range(60), None, "every class has a single sample")],
)
def test_a_race_of_which_nothing_can_be_held_out_is_refused(labels: list[int], groups: list[int], why: str) -> None:
    task = Task.from_arrays(np.random.default_rng(0).normal(size=(60, 3)), list(map(str, labels)), groups=groups)
    with pytest.raises(TaskError, match=why):
        for_race(task)
