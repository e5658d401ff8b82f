"""What a run keeps of its predictions for the test samples."""

from __future__ import annotations

import dataclasses
import gc
import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from tuning_networks import image_task, images, make_task, perceptron

from hubscout.runs.evaluation_record import Confusion, read_evaluation
from hubscout.runs.run_folder import EVALUATION
from hubscout.tasks import Split, Task
from hubscout.tasks.task_metrics import Outcome
from hubscout.tuning import tune
from hubscout.tuning.evaluator import MOST_MISTAKES, MOST_PAIRS, details

QUICK = {"epochs": 2, "batch_size": 16, "bootstrap_resamples": 5, "learning_rate": 1e-2}


def outcome(task, predicted, targets, groups=None):
    return Outcome(task.kind, predicted, targets, groups, task.target_names)


def test_log_likelihoods_by_kind():
    def told(task, predicted, targets, groups=None, scale=None):
        return outcome(task, np.array(predicted), np.array(targets), groups).log_likelihoods(scale)

    classes = told(make_task(), [[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]], [1, 2])
    assert classes == pytest.approx([np.log(0.25), -6.0])  # one that it is surely wrong about does not decide
    words = told(make_task(), [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], [0, 0, 1], np.array([0, 0, 1]))
    assert words == pytest.approx([np.log(0.5) / 2, np.log(0.5)])
    some = told(make_task(), [[0.5, 0.5, 0.0], [0.25, 0.75, 0.0]], [0, 0], np.array([0, 2]))  # the second has no words
    assert some == pytest.approx([np.log(0.5), np.log(0.25)])
    numbers = told(make_task("regression"), [[3.0, 1.0]], [[1.0, 1.0]], scale=np.array([2.0, 1.0]))
    assert numbers == pytest.approx([-0.25])


def test_a_run_keeps_what_its_report_shows(tmp_path):
    tuned = tune(make_task(), perceptron(0), out=tmp_path, **QUICK)
    found = read_evaluation(tmp_path)
    assert found is not None
    assert found == tuned.evaluation
    assert (found.split, found.samples, found.kind) == ("test", 32, "classification")
    right = sum(one.right for one in found.targets)
    assert right / sum(one.seen for one in found.targets) == pytest.approx(tuned.metric("test").value)
    assert sum(one.count for one in found.confusions) == 32
    assert sum(one.count for one in found.confusions if one.true == one.predicted) == right
    assert len(found.worst) + found.suspected == 32 - right
    assert all("predicted" in sample.note for sample in found.worst)


def test_the_record_says_when_on_what_and_against_which_guess(tmp_path):
    task = make_task()
    tuned = tune(task, perceptron(0), out=tmp_path, device="cpu", **QUICK)
    record = tuned.tuning_record()
    assert record.environment["processor"]
    assert record.environment["device"] == "cpu"
    assert record.seconds is not None
    most = np.bincount(task.train.targets).argmax()
    assert record.guess["test"] == pytest.approx((task.test.targets == most).mean())


def test_numbers_have_pairs_and_errors_and_their_own_metrics():
    tuned = tune(make_task("regression"), perceptron(0), **QUICK)
    found = tuned.evaluation
    assert np.mean([one.r2 for one in found.targets]) == pytest.approx(tuned.metric("test").value)
    assert len(found.pairs) == 3 * 32
    assert not found.confusions
    assert "true" in found.worst[0].note


def test_labels_have_f1():
    task = make_task("multilabel")
    predicted = np.linspace(0, 1, 32 * 3).reshape(32, 3)
    found = details(task, "test", outcome(task, predicted, task.test.targets), 4)
    said, true = predicted >= 0.5, task.test.targets > 0
    for place, one in enumerate(found.targets):
        right = (said[:, place] & true[:, place]).sum()
        assert one.f1 == pytest.approx(2 * right / (said[:, place].sum() + true[:, place].sum()))
    assert len(found.worst) == 4


def test_a_label_that_is_predicted_rightly_is_not_suspected():
    task = make_task("multilabel")
    weak = 0.05 + 0.2 * task.test.targets  # a model that has learnt little, and never says yes
    weak[:, 0] = np.where(np.arange(32) % 2, weak[:, 0], 0.3 - weak[:, 0])
    found = details(task, "test", outcome(task, weak, task.test.targets), 32)
    assert all("not" in sample.note for sample in found.suspects)
    strong = 0.05 + 0.9 * task.test.targets
    strong[3, 1] = 1 - strong[3, 1]
    found = details(task, "test", outcome(task, strong, task.test.targets), 32)
    assert [sample.row for sample in found.suspects] == [3]


def test_entities_are_counted_by_their_type():
    names = ("B-LOC", "B-PER", "I-PER", "O")
    words = [["Anna", "Lee", "in", "Rome"], ["Rome"]]
    targets = [np.array([1, 2, 3, 0]), np.array([0])]
    splits = {"train": Split(words, targets), "validation": Split([], []), "test": Split(words, targets)}
    task = Task("names", "tagging", "tokens", names, splits, "names")
    said = np.array([1, 3, 3, 0, 1])
    rows, groups = np.concatenate(targets), np.array([0, 0, 0, 0, 1])
    found = details(task, "test", outcome(task, np.eye(4)[said], rows, groups), 5)
    told = {one.name: (one.right, one.said, one.seen) for one in found.targets}
    assert told == {"LOC": (1, 1, 2), "PER": (0, 2, 1)}
    total = np.sum(list(told.values()), axis=0)
    whole = outcome(task, np.eye(4)[said], rows, groups).values()
    assert 2 * total[0] / (total[1] + total[2]) == pytest.approx(whole["entity_f1"])
    assert [sample.note for sample in found.worst] == ["Lee: O, not I-PER", "Rome: B-PER, not B-LOC"]
    assert found.worst[0].name == "Anna Lee in Rome"


def test_a_label_that_contradicts_a_sure_prediction_is_suspected():
    task = make_task()
    truth = task.test.targets
    predicted = np.full((32, 3), 0.05)
    predicted[np.arange(32), truth] = 0.9
    wrong = truth.copy()
    wrong[7] = (truth[7] + 1) % 3
    found = details(task, "test", outcome(task, predicted, wrong), 8)
    assert [sample.row for sample in found.suspects] == [7]
    assert found.suspects[0].note == f"predicted {task.target_names[truth[7]]}"
    assert found.suspected == 1
    assert not found.worst  # no sample is shown twice


def test_pictures_come_as_thumbnails_and_can_be_left_out(tmp_path):
    options = {**QUICK, "learning_rate": 1e-6}
    tuned = tune(image_task(), images(), out=tmp_path, **options)
    shown = [*tuned.evaluation.worst, *tuned.evaluation.suspects]
    assert shown
    assert all(sample.thumbnail.startswith("data:image/jpeg;base64,") for sample in shown)
    again = tune(image_task(), images(), out=tmp_path, **options, shown_samples=0)  # the same run, told differently
    assert not again.evaluation.worst
    assert not again.evaluation.suspects
    assert '"thumbnail"' not in (tmp_path / EVALUATION).read_text()


def test_very_many_classes_and_samples_stay_small():
    generator = np.random.default_rng(0)
    targets = generator.integers(0, 500, size=5000)
    names = tuple(f"class {place}" for place in range(500))
    part = Split(generator.normal(size=(5000, 1)), targets)
    task = Task("many", "classification", "array", names, {"train": part, "test": part}, "many")
    found = details(task, "test", outcome(task, generator.dirichlet(np.ones(500), size=5000), targets), 3)
    assert len(found.confusions) == MOST_MISTAKES
    assert all(one.true != one.predicted for one in found.confusions)
    assert sum(one.seen for one in found.targets) == 5000
    numbers = dataclasses.replace(
        task, kind="regression", target_names=("y",), splits={"test": Split(part.inputs, part.inputs)}
    )
    assert len(details(numbers, "test", outcome(numbers, part.inputs, part.inputs), 3).pairs) == MOST_PAIRS


def test_confusions_are_true_then_predicted():
    task = make_task()
    targets = np.array([0, 0, 1, 2])
    task = dataclasses.replace(task, splits={**task.splits, "test": Split(task.test.inputs[:4], targets)})
    found = details(task, "test", outcome(task, np.eye(3)[[1, 1, 1, 2]], targets), 0)
    assert found.confusions[0] == Confusion(true=0, predicted=1, count=2)
    assert {(one.true, one.predicted): one.count for one in found.confusions[1:]} == {(1, 1): 1, (2, 2): 1}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an allocator of another kind")
def test_the_memory_of_training_steps_is_given_back_before_the_passes_of_a_validation():
    def resident_bytes():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    backbone, kept, in_training, given_back = perceptron(0), [], [0], []

    def watch(module, *_):
        if module.training:
            blocks = [bytearray(b"x" * (1 << 16)) for _ in range(512)]
            kept.extend(blocks[::2])
            del blocks
            in_training[0] = resident_bytes()
        elif kept and not given_back:
            given_back.append(in_training[0] - resident_bytes())

    backbone.module.body.register_forward_hook(watch)
    tune(make_task(), backbone, **QUICK)
    assert given_back[0] > 8 << 20  # of 16 MiB in holes that the last step left


def test_a_model_is_saved_and_measured_without_gradients_and_the_memory_of_the_optimizer(tmp_path):
    backbone, left = perceptron(0), []

    def remembered():
        gc.collect()
        optimizers = [one for one in gc.get_objects() if isinstance(one, torch.optim.Optimizer)]
        parameters = [p for one in optimizers for group in one.param_groups for p in group["params"]]
        return sum(len(one.state) for one in optimizers), sum(p.grad is not None for p in parameters)

    before = remembered()
    backbone.save = lambda folder, **_: left.append(remembered())
    tune(make_task(), backbone, out=tmp_path, optimizer="adamw", **QUICK)
    assert left == [before]
