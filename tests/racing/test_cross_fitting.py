"""Finalists on several folds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from racing_networks import QUICK, names

from hubscout.racing import race
from hubscout.tasks import Task


def test_tied_finalists_are_judged_on_all_folds_and_the_race_goes_on_after_a_stop(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    models = names(networks, "width=32", "width=33&seed=1")  # hardly to be told apart
    found = race(task, models, out=tmp_path / "run", folds=3, learning_rate=0.05, **QUICK)
    lines = [json.loads(line) for line in (tmp_path / "run" / "race.jsonl").open()]
    on_folds = [line for line in lines if line["event"] == "fold"]
    pooled = [look for look in found.looks if look.rung == len(found.told.rungs)]
    assert {line["fold"] for line in on_folds} == {1, 2}
    assert len(pooled) >= 2
    first = next(look for look in found.looks if look.arm == pooled[0].arm and look.rung == pooled[0].rung - 1)
    others = [line for line in on_folds if line["arm"]["model"] == pooled[0].arm.model]
    assert pooled[0].metric == pytest.approx(np.mean([first.metric, *(line["metric"] for line in others)]))
    assert len(pooled[0].log_likelihoods) == 3 * len(first.log_likelihoods)
    assert sum(one.p_best or 0.0 for one in found.order) == pytest.approx(1.0)
    kept = [line for line in lines if line["event"] not in ("winner", "stage", "finished")][:-2]
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "race.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    again = race(task, models, out=tmp_path / "cut", folds=3, learning_rate=0.05, **QUICK)
    assert again.winner == found.winner
