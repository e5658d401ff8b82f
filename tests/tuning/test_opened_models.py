"""Teachers, as they are opened."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hubscout.errors import CodeNotAllowedError
from hubscout.tasks import Task
from hubscout.tuning import tune
from hubscout.tuning.opened_models import open_teacher
from hubscout.tuning.tuned_folder import is_bare, load

NETWORK = """
from torch import nn


def make():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    net.num_features = 8
    net.pretrained_cfg = {"input_size": (6,)}
    return net
"""


def test_a_tuned_model_whose_folder_is_bare_weights_teaches_with_its_own_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets.py").write_text(NETWORK)
    inputs = np.random.default_rng(0).normal(size=(120, 6)).astype(np.float32)
    task = Task.from_arrays(inputs, (inputs[:, 0] > 0).astype(int), kind="classification")
    model, folder = f"python:{tmp_path / 'nets.py'}:make", tmp_path / "tuned"
    tuned = tune(task, model, out=folder, steps=3, learning_rate=0.01, device="cpu", bootstrap_resamples=0)
    assert is_bare(folder)
    with pytest.raises(CodeNotAllowedError):
        open_teacher(f"file:{folder}", task)  # the folder names code, and nobody has allowed it
    monkeypatch.setattr("hubscout.tuning.opened_models.load_tuned", partial(load, allow_code=True))
    backbone, head = open_teacher(f"file:{folder}", task)
    assert head is not None
    assert backbone.card.identifier == f"file:{folder}"
    assert backbone.module is not None
    for mine, theirs in zip(backbone.module.parameters(), tuned.backbone.module.parameters(), strict=True):  # type: ignore[union-attr]
        assert mine.equal(theirs.to(mine.device))
