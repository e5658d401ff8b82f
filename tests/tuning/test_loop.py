from __future__ import annotations

import json
import resource
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from tuning_networks import assert_same, convolutional, make_task, perceptron, weights_of

from hubscout.errors import (
    CheckpointError,
    DivergedError,
    InputError,
    InterruptedRunError,
    TaskError,
    TuningError,
    UnknownMethodError,
    UnknownNameError,
)
from hubscout.runs.events import Validated
from hubscout.tasks import Split, Task
from hubscout.tuning import TuningArguments, tune
from hubscout.tuning.checkpoints import Checkpoints
from hubscout.tuning.processes import warn_if_alone

OPTIONS = {"epochs": 4, "batch_size": 16, "method": "fine-tune"}


class Killed(BaseException):
    pass


def killer(at_step):
    def observer(event):
        if isinstance(event, Validated) and event.step >= at_step:
            raise Killed

    return observer


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_killed_run_resumes_to_the_same_result(task, tmp_path, optimizer):
    options = dict(OPTIONS, optimizer=optimizer, learning_rate=1e-3, checkpoint_every_steps=4)
    target = perceptron(0, dropout=0.3)
    whole = tune(task, target, out=tmp_path / "whole", **options)
    with pytest.raises(Killed):
        tune(task, target, out=tmp_path / "cut", observer=killer(12), **options)
    resumed = tune(task, target, out=tmp_path / "cut", resume=True, **options)
    assert any("Resumed" in note for note in resumed.notes)
    assert_same(whole, resumed)
    lines = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "cut")]
    assert lines[0] == lines[1]
    assert [json.loads(line)["step"] for line in lines[0].splitlines()][:6] == [1, 2, 3, 4, 5, 6]


def test_resuming_a_finished_run_changes_nothing(task, tmp_path):
    first = tune(task, perceptron(0), out=tmp_path, **OPTIONS)
    again = tune(task, perceptron(0), out=tmp_path, resume=True, **OPTIONS)
    assert_same(first, again)


def test_ctrl_c_says_where_the_checkpoint_is_and_how_to_go_on(task, tmp_path):
    def interrupt(event):
        if isinstance(event, Validated) and event.step == 12:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError, match=r"after step 12.*step-00000006-\w{16}\.pt\. Make the same call"):
        tune(task, perceptron(0), out=tmp_path, observer=interrupt, **OPTIONS)
    with pytest.raises(InterruptedRunError, match=r"No checkpoint was written\.$"):
        tune(task, perceptron(0), observer=interrupt, **OPTIONS)


def test_equal_seeds_equal_runs_other_seeds_other_runs(task):
    target = perceptron(0, dropout=0.3)
    first, second, third = (tune(task, target, seed=seed, keep_best=False, **OPTIONS) for seed in (1, 1, 2))
    assert_same(first, second)
    assert not torch.equal(first.head.weight, third.head.weight)


def test_the_callers_backbone_stays_as_it_is(task):
    target = perceptron(0)
    before = weights_of(target)
    tune(task, target, **OPTIONS)
    assert all(torch.equal(value, before[name]) for name, value in weights_of(target).items())


def test_nan_stops_at_its_step_and_the_last_good_checkpoint_stays(task, tmp_path):
    target = perceptron(0)
    with pytest.raises(DivergedError, match=r"At step \d+ .*last good checkpoint is .*learning_rate") as caught:
        tune(
            make_task("regression"),
            target,
            method="fine-tune",
            epochs=60,
            batch_size=16,
            learning_rate=0.9,
            schedule="constant",
            out=tmp_path,
            checkpoint_every_steps=2,
            keep_best=False,
            optimizer="sgd",
            restarts=0,
        )
    files = sorted((tmp_path / "checkpoints").glob("*.pt"))
    assert files
    state = torch.load(files[-1], weights_only=True)
    assert all(torch.isfinite(value).all() for value in state["network"].values() if value.is_floating_point())
    step = int(str(caught.value).split("At step ")[1].split()[0])
    assert state["step"] < step + 1


def test_a_checkpoint_of_another_run_is_refused(task, tmp_path):
    tune(task, perceptron(0), out=tmp_path, **OPTIONS)
    with pytest.raises(CheckpointError, match=r"another run: head_learning_rate was left to hubscout and is 0\.01"):
        tune(task, perceptron(0), out=tmp_path, resume=True, learning_rate=0.5, head_learning_rate=0.01, **OPTIONS)
    with pytest.raises(CheckpointError, match="another run: the data are others"):
        tune(make_task(seed=1), perceptron(0), out=tmp_path, resume=True, **OPTIONS)


def test_a_run_goes_on_by_itself_and_starts_anew_only_when_that_is_asked_for(task, tmp_path):
    with pytest.raises(InputError, match="holds no run to resume"):
        tune(task, perceptron(0), out=tmp_path, resume=True, **OPTIONS)
    first = tune(task, perceptron(0), out=tmp_path, **OPTIONS)
    again = tune(task, perceptron(0), out=tmp_path, **OPTIONS)
    assert any(note.startswith("Resumed after step") for note in again.notes)
    assert again.metrics == first.metrics
    anew = tune(task, perceptron(0), out=tmp_path, overwrite=True, learning_rate=0.01, **OPTIONS)
    assert not any(note.startswith("Resumed") for note in anew.notes)
    assert anew.arguments.learning_rate == 0.01


def test_a_full_disk_is_a_clear_error_and_keeps_the_last_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path, {"run": 1})
    good = checkpoints.write(1, {"network": {"w": torch.zeros(4)}})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        with pytest.raises(TuningError, match=r"no room on the disk.*last good checkpoint is .*step-00000001"):
            checkpoints.write(2, {"network": {"w": torch.zeros(1_000_000)}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert checkpoints.latest() == good
    assert [path.name for path in tmp_path.iterdir()] == [good.name]


def test_early_stopping_and_the_best_weights(task, tmp_path):
    options = {"epochs": 50, "batch_size": 16, "patience": 2, "learning_rate": 0.003}
    tuned = tune(task, perceptron(0), method="fine-tune", out=tmp_path, **options)
    checks = [line for line in tuned.curves if line["event"] == "validation"]
    assert len(checks) < 50
    accuracies = [line["metrics"]["accuracy"] for line in checks]
    assert max(accuracies) == accuracies[-3]
    assert tuned.metric("validation").value == pytest.approx(max(accuracies))
    assert tuned.best_step in [line["step"] for line in checks if line["metrics"]["accuracy"] == max(accuracies)]


def test_of_equal_validation_metrics_the_surer_weights_are_kept(task):
    """Five samples are soon all right; what is learnt after that is not thrown away."""
    few = replace(task, splits={**task.splits, "validation": task.validation.take(range(5))})
    tuned = tune(few, perceptron(0), method="fine-tune", epochs=12, batch_size=16, learning_rate=0.03)
    checks = [line for line in tuned.curves if line["event"] == "validation"]
    best = [line["step"] for line in checks if line["metrics"]["accuracy"] == 1.0]
    assert len(best) > 3
    assert tuned.best_step > best[2]
    stopped = tune(few, perceptron(0), method="fine-tune", epochs=12, batch_size=16, learning_rate=0.03, patience=2)
    assert stopped.steps == best[2], "patience waits for a better metric, not for surer predictions"


@pytest.mark.parametrize("n", [17, 33, 49])
def test_no_last_batch_of_one_sample_reaches_a_batch_norm(n):
    task = make_task(shape=(3, 8, 8), n=n)
    tuned = tune(task, convolutional(0), method="fine-tune", epochs=1, batch_size=16)
    assert np.isfinite([line["loss"] for line in tuned.curves if line["event"] == "step"]).all()


def test_batches_of_one_class_with_batch_norm():
    task = make_task(n=48)
    order = np.argsort(task.train.targets, kind="stable")
    kept = order[np.r_[0:8, 40:48]]
    train = Split(task.train.inputs[kept], np.r_[np.zeros(8, np.int64), np.ones(8, np.int64)])
    rest = Split(task.test.inputs[:4], np.array([0, 1, 0, 1]))
    small = Task(
        "one", "classification", "array", ("a", "b"), {"train": train, "validation": rest, "test": rest}, "one"
    )
    tuned = tune(small, perceptron(0, norm=True), method="fine-tune", epochs=3, batch_size=2, bss=1e-3)
    assert np.isfinite([line["loss"] for line in tuned.curves if line["event"] == "step"]).all()
    with pytest.raises(InputError, match="batch norm needs two"):
        tune(small, perceptron(0, norm=True), method="fine-tune", batch_size=1)


def test_labels_missing_from_train_are_named(task):
    train = task.train
    keep = train.targets != 1
    splits = {**task.splits, "train": Split(train.inputs[keep], train.targets[keep])}
    with pytest.raises(TaskError, match=r"no sample of 1 of 3 labels.*: b\."):
        tune(Task("x", "classification", "array", task.target_names, splits, "x"), perceptron(0))


def test_bad_arguments(task):
    with pytest.raises(UnknownNameError, match="Did you mean 'epochs'"):
        tune(task, perceptron(0), arguments=TuningArguments(), epoch=1)
    with pytest.raises(UnknownNameError, match="Did you mean 'teachers'"):
        tune(task, perceptron(0), teacher=perceptron(1))
    with pytest.raises(UnknownMethodError, match="Did you mean 'b-tuning'"):
        tune(task, perceptron(0), method="b-tunning")
    with pytest.raises(InputError, match="at least one, or method='fine-tune', or for classes method='b-tuning'"):
        tune(task, perceptron(0), method="kd")
    with pytest.raises(InputError, match="epochs=0"):
        tune(task, perceptron(0), method="fine-tune", epochs=0)
    with pytest.raises(InputError, match="Did you mean 'learning_rate'"):
        tune(task, perceptron(0), method="fine-tune", learning_rat=1)
    images = Task("pictures", "classification", "image", task.target_names, task.splits, "x")
    with pytest.raises(InputError, match="perceptron-0-16' takes arrays, but the task's inputs are images"):
        tune(images, perceptron(0), method="fine-tune")
    teacher = perceptron(1)
    object.__setattr__(teacher.card, "modalities", ("text",))
    with pytest.raises(
        InputError, match="teacher 'small/perceptron-1-16' takes text, but the task's inputs are arrays"
    ):
        tune(task, perceptron(0), [teacher])


def test_a_run_alone_where_several_were_asked_for_warns(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.warns(UserWarning, match="processes=2, but 1 run"):
        warn_if_alone(2)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.warns(UserWarning, match="runs alone"):
        warn_if_alone(None)
    monkeypatch.delenv("MASTER_ADDR")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_alone(None)
