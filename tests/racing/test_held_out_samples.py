"""The samples that arms are judged on."""

from __future__ import annotations

import numpy as np

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
