"""Trackers: what is written for TensorBoard, and what is said of one that cannot work, before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from tuning_networks import make_task, perceptron

from hubscout.errors import InputError, UnknownNameError
from hubscout.tuning import tune
from hubscout.tuning.processes import check_trackers

QUICK = {"epochs": 2, "batch_size": 24, "bootstrap_resamples": 10, "log_every_steps": 1, "method": "fine-tune"}


@pytest.mark.filterwarnings("ignore:This model is worse")
def test_tensorboard_gets_losses_rates_and_validation(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tune(make_task(), perceptron(), trackers=("tensorboard",), out=tmp_path, **QUICK)
    found = EventAccumulator(str(tmp_path / "hubscout-small")).Reload().Tags()["scalars"]
    assert {"loss/task", "rate", "validation/accuracy"} <= set(found)
    settings = next((tmp_path / "hubscout-small").rglob("hparams.yml")).read_text()
    assert "method: fine-tune" in settings
    assert "model: small/perceptron-0-16" in settings


def test_a_tracker_that_does_not_start_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "hubscout-small").write_text("a file where TensorBoard wants a folder")
    with pytest.raises(InputError, match=r"The trackers could not be started: FileExistsError: .*hubscout-small"):
        tune(make_task(), perceptron(), trackers=("tensorboard",), out=tmp_path, **QUICK)


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (("tensorbord",), UnknownNameError, "Did you mean 'tensorboard'"),
        (("comet_ml",), InputError, "not installed: pip install comet-ml"),
        (("tensorboard",), InputError, "writes files into the folder of the run"),
    ],
)
def test_a_tracker_that_cannot_work_is_said_before_training(names, error, message) -> None:
    with pytest.raises(error, match=message):
        check_trackers(names, None)
    with pytest.raises(error, match=message):
        tune(make_task(), perceptron(), trackers=names, **QUICK)
