"""The real data sets beside the repository, as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubscout.tasks import Task, open_task

pytestmark = pytest.mark.shared

BOX = "box_x,box_y,box_w,box_h"
# path, options, kind, modality, targets, rows of (train + validation), rows of test
SETS: list[tuple[str, dict[str, Any], str, str, int, int, int]] = [
    ("pets", {"label": "breed"}, "classification", "image", 37, 3680, 3669),
    ("pets/pets-train.parquet", {"label": BOX, "split": "box_split"}, "regression", "image", 4, 2753, 918),
    ("sign-digits.parquet", {}, "classification", "image", 10, 1544, 518),
    ("omniglot-small.parquet", {"label": "alphabet"}, "classification", "image", 5, 2040, 680),
    ("cifar10-5k.parquet", {}, "classification", "image", 10, 5000, 2000),
    ("fashion-mnist-5k.parquet", {}, "classification", "image", 10, 5000, 2000),
    ("sprites-6k.parquet", {"label": "scale,orientation,x,y"}, "regression", "image", 4, 5000, 1000),
    ("text/sst2", {}, "classification", "text", 2, 6920 + 872, 1821),
    ("text/trec", {}, "classification", "text", 6, 5452, 500),
    ("text/agnews.csv.gz", {}, "classification", "text", 4, 5700, 1900),
    ("text/cr.csv", {}, "classification", "text", 2, 2828, 943),
    ("text/sick", {"label": "relatedness"}, "regression", "text-pair", 1, 7447, 2480),
    ("text/sick", {"label": "entailment"}, "classification", "text-pair", 3, 7447, 2480),
    ("text/conll2003", {}, "tagging", "tokens", 9, 14041 + 3250, 3453),
]


@pytest.mark.parametrize(("path", "options", "kind", "modality", "targets", "train", "test"), SETS)
def test_real_data(
    shared_data: Path, path: str, options: dict[str, Any], kind: str, modality: str, targets: int, train: int, test: int
) -> None:
    task = open_task(shared_data / path, **options)
    assert (task.kind, task.modality, len(task.target_names)) == (kind, modality, targets)
    assert (len(task.train) + len(task.validation), len(task.test)) == (train, test)
    assert len(task.train) > 4 * len(task.validation) > 0
    if modality == "image":
        for row in (0, len(task.train) - 1):
            assert task.train.inputs[row].mode == "RGB"
    if kind == "classification":
        shares = [np.bincount(part.targets, minlength=targets) / len(part) for part in task.splits.values()]
        np.testing.assert_allclose(shares[0], shares[1], atol=0.02)


def test_reopening_real_data(shared_data: Path) -> None:
    task = open_task(shared_data / "text" / "conll2003", scheme="types").subset(100)
    assert Task.reopen(task.source) == task
    assert task.target_names == ("LOC", "MISC", "O", "ORG", "PER")
    assert sum(map(len, task.train.targets)) == sum(map(len, task.train.inputs))
