from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tuning_networks import make_task, perceptron, weights_of

from hubscout.errors import InterruptedRunError
from hubscout.file_identifiers import IdentifierFromFile
from hubscout.metric_texts import interval_text
from hubscout.runs.evaluation_record import conclusion
from hubscout.runs.events import Validated
from hubscout.tasks import Split, Task, open_task
from hubscout.tasks.task_metrics import MetricValue, Outcome
from hubscout.tuning import tune
from hubscout.tuning.baselines import guess_metric, guessing_notes, not_told_from_guessing, worse_than_guessing

SLOW = {"epochs": 3, "batch_size": 32, "optimizer": "sgd", "learning_rate": 1e-6, "linear_probe": True}
GOOD = {"epochs": 40, "batch_size": 16, "optimizer": "adamw", "learning_rate": 3e-3, "linear_probe": True}


def said(tuned) -> list[str]:
    return [note for note in tuned.notes if "linear probe" in note]


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_the_probe_is_kept_where_validation_never_reaches_it(kind, tmp_path):
    task, model = make_task(kind), perceptron(0)
    tuned = tune(task, model, out=tmp_path, **SLOW)
    assert len(said(tuned)) == 1
    assert tuned.best_step == 0
    assert str(tuned).startswith(f"{tuned.model} on {task.name}, as a linear probe: training did not come up to it\n")
    card = (tmp_path / "README.md").read_text()
    assert "tuned with hubscout" not in card
    assert "- method: linear probe of the frozen features\n" in card
    assert f"{tuned.steps} steps by {tuned.method}: none came up to the probe." in card
    before = weights_of(model)
    assert all(torch.equal(value, before[name]) for name, value in weights_of(tuned.backbone).items())
    probes = tuned.tuning_run().probes
    own, teacher = probes.get("model"), probes.get("teacher")
    assert teacher is None
    for split in ("validation", "test"):  # the network that is kept is the probe that was measured
        assert tuned.metric(split).value == pytest.approx(own.metric(split), abs=1e-5)
    plain = tune(task, model, **{**SLOW, "linear_probe": False})
    assert plain.metric("validation").value < tuned.metric("validation").value


def test_the_probe_that_is_kept_is_as_sure_as_it_is_right():
    """A posterior that fits its own samples well is no reason to be sure of others."""
    task = make_task(n=200, shape=(64,))
    tuned = tune(task, perceptron(0, inputs=64, width=1024), **SLOW)
    assert tuned.best_step == 0
    confidence = tuned.predict(task.test.inputs).probabilities.max(axis=1).mean()
    assert abs(confidence - tuned.metric("test").value) < 0.1


def test_the_probe_is_the_best_linear_fit_of_the_frozen_features():
    task, model = make_task("regression", n=600), perceptron(0)
    own = tune(task, model, **SLOW).tuning_run().probes["model"]

    def features(split):
        with torch.no_grad():
            found = model.module.body(torch.as_tensor(split.inputs)).double().numpy()
        return np.hstack([found, np.ones((len(found), 1))])

    weights = np.linalg.lstsq(features(task.train), task.train.targets, rcond=None)[0]
    missed = task.test.targets - features(task.test) @ weights
    spread = task.test.targets - task.test.targets.mean(axis=0)
    expected = (1 - (missed**2).sum(axis=0) / (spread**2).sum(axis=0)).mean()
    assert own.metrics["test"]["r2"] == pytest.approx(expected, abs=0.01)


def test_a_run_that_reaches_the_probe_is_what_it_is_without_it():
    task, model = make_task(), perceptron(0, width=4)
    tuned, plain = tune(task, model, **GOOD), tune(task, model, **{**GOOD, "linear_probe": False})
    assert not said(tuned)
    assert tuned.best_step == plain.best_step > 0
    mine, theirs = weights_of(tuned.backbone), weights_of(plain.backbone)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("seed", range(4))
def test_on_a_tiny_validation_split_an_untrained_network_does_not_tie_with_the_probe(seed):
    """Of one sample many networks are right: as often as the probe, and not as sure of it."""
    whole = make_task(n=200, seed=3)
    one = replace(whole, splits={**whole.splits, "validation": whole.validation.take([2])})
    tuned = tune(one, perceptron(0), **SLOW, seed=seed)
    assert tuned.tuning_run().probes["model"].metric("validation") == 1.0
    assert tuned.best_step == 0
    assert len(said(tuned)) == 1


def test_a_killed_run_still_keeps_the_probe(tmp_path):
    class Killed(BaseException):
        pass

    def killer(event):
        if isinstance(event, Validated) and event.step >= 6:
            raise Killed

    task, model = make_task(), perceptron(0)
    whole = tune(task, model, **SLOW)
    with pytest.raises(Killed):
        tune(task, model, out=tmp_path, observer=killer, **SLOW)
    resumed = tune(task, model, out=tmp_path, resume=True, **SLOW)
    assert said(resumed) == said(whole) != []
    assert torch.equal(resumed.head.weight, whole.head.weight)
    assert conclusion(resumed.tuning_run()) == conclusion(whole.tuning_run())


def test_a_stopped_run_of_a_model_that_a_file_names_is_resumed(word_encoder, tmp_path):
    """What a checkpoint holds is data alone: a name with its origin is none."""

    def stop(event):
        if isinstance(event, Validated) and event.step >= 3:
            raise KeyboardInterrupt

    (tmp_path / "texts.csv").write_text("text,label\n" + "Ann runs,runs\nBob reads,reads\nEve runs,runs\n" * 20)
    task, name = open_task(tmp_path / "texts.csv"), IdentifierFromFile(word_encoder, "models.txt")
    short = {"steps": 4, "batch_size": 8, "linear_probe": True, "bootstrap_resamples": 10, "device": "cpu"}
    with pytest.raises(InterruptedRunError):
        tune(task, name, [name], out=tmp_path / "run", observer=stop, validate_every_epochs=0.2, **short)
    assert list((tmp_path / "run").rglob("*.pt"))
    assert tune(task, name, [name], out=tmp_path / "run", validate_every_epochs=0.2, **short).steps == 4


def test_patience_counts_from_the_run_and_not_from_the_probe():
    options = {**SLOW, "epochs": 60, "learning_rate": 3e-3, "patience": 8}
    task, model = make_task(), perceptron(0)
    plain = tune(task, model, **{**options, "linear_probe": False})
    assert tune(task, model, **options).steps == plain.steps < 180


def test_without_keep_best_the_last_weights_are_the_result():
    tuned = tune(make_task(), perceptron(0), **SLOW, keep_best=False)
    assert not said(tuned)
    assert tuned.best_step == tuned.steps


def test_by_default_the_probe_is_the_floor_where_the_rate_is_left_to_us_and_training_takes_longer():
    task = make_task()
    assert "model" in tune(task, perceptron(0), steps=200).tuning_run().probes
    assert not tune(task, perceptron(0), steps=200, learning_rate=0.01).tuning_run().probes
    short = tune(task, perceptron(0), steps=20)  # as good as what a ranking says of the frozen features
    assert short.metric("validation").value >= short.tuning_run().probes["model"].metric("validation")
    assert not tune(task, perceptron(0), steps=1, batch_size=2).tuning_run().probes


def test_low_rank_adapters_of_a_kept_probe_change_nothing():
    model = perceptron(0)
    tuned = tune(make_task(), model, **SLOW, lora_rank=2)
    assert said(tuned)
    before = weights_of(model)
    for name, value in weights_of(tuned.backbone).items():
        torch.testing.assert_close(value, before[name])


def test_the_conclusion_names_the_probe_and_the_best_teacher():
    task = make_task()
    good, poor = perceptron(1, width=64), perceptron(2, width=2)
    tuned = tune(task, perceptron(0, width=4), [poor, good], **GOOD)
    probes = tuned.tuning_run().probes
    own, teacher = probes.get("model"), probes.get("teacher")
    assert teacher.model == good.card.identifier
    value = tuned.metric("test")
    beside = [value.value - probe.metric("test") for probe in (own, teacher)]
    over_own, over_teacher = [f"{100 * abs(one):.1f} points {'above' if one > 0 else 'below'}" for one in beside]
    assert conclusion(tuned.tuning_run()) == (
        f"Test accuracy {interval_text('accuracy', *value)}, {over_own} the linear probe of the frozen "
        f"features ({own.metric('test'):.1%}), {over_teacher} that of the best "
        f"teacher, {good.card.identifier} ({teacher.metric('test'):.1%}). Guessing gives {tuned.guess['test']:.1%}."
    )


def test_the_conclusion_of_a_run_without_probes_is_its_metric():
    tuned = tune(make_task(), perceptron(0), **{**SLOW, "linear_probe": False})
    told = interval_text("accuracy", *tuned.metric("test"))
    assert conclusion(tuned.tuning_run()) == f"Test accuracy {told}. Guessing gives {tuned.guess['test']:.1%}."


def two_classes(validation, test):
    splits = {
        name: Split(np.zeros((count, 2), np.float32), np.arange(count) % 4 // 3)
        for name, count in {"train": 40, "validation": validation, "test": test}.items()
    }
    return Task("two", "classification", "array", ("bad", "good"), splits, "two")


def measured(task, shares):
    """A model that is right about so large a share of each split."""
    found = {}
    for split, share in shares.items():
        targets = task.splits[split].targets
        said = np.where(np.arange(len(targets)) < round(share * len(targets)), targets, 1 - targets)
        found[split] = Outcome.of(task, task.splits[split], np.eye(2)[said]).with_intervals(resamples=20)
    return found, {split: guess_metric(task, split) for split in shares}


def test_few_samples_do_not_make_a_model_worse_than_guessing():
    task = two_classes(validation=20, test=400)
    both = task, *measured(task, {"validation": 0.6, "test": 0.6})
    assert worse_than_guessing(*both).startswith(
        "This model is worse than guessing: test accuracy 60.0%, and 75.0% by always saying 'bad'. Do not use it."
    )
    assert not_told_from_guessing(*both) == (
        "This model is not told apart from guessing: validation accuracy 60.0% [38.7, 78.1] on 20 samples, and "
        "75.0% by always saying 'bad'. Measure it on more labelled samples."
    )
    few = task, *measured(task, {"validation": 0.6})
    assert (worse_than_guessing(*few), bool(not_told_from_guessing(*few))) == ("", True)
    good = task, *measured(task, {"validation": 0.8, "test": 0.9})
    assert (worse_than_guessing(*good), not_told_from_guessing(*good)) == ("", "")


def test_a_model_that_is_as_good_as_guessing_is_no_better_and_that_is_said():
    task = two_classes(validation=20, test=400)
    equal = task, *measured(task, {"validation": 0.8, "test": 0.75})
    assert (worse_than_guessing(*equal), not_told_from_guessing(*equal)) == ("", "")
    assert guessing_notes(*equal) == [
        "This model is no better than guessing: test accuracy 75.0%, the same as by always saying 'bad'."
    ]
    assert guessing_notes(task, *measured(task, {"validation": 0.8, "test": 0.7525})) == []


def test_samples_of_one_class_alone_say_nothing_of_the_others():
    whole = two_classes(validation=20, test=40)
    bad = whole.test.take(np.flatnonzero(whole.test.targets == 0))
    task = replace(whole, splits={**whole.splits, "test": bad})
    told = "The test samples are all of the class 'bad': they do not say how well others are told from it."
    assert guessing_notes(task, *measured(task, {"validation": 0.8, "test": 1.0})) == [told]
    assert told in tune(task, perceptron(0, inputs=2), epochs=1, bootstrap_resamples=10).notes


def test_what_is_not_a_number_is_worse_than_guessing():
    task = two_classes(validation=20, test=20)
    broken = {"validation": {"accuracy": MetricValue(float("nan"), float("nan"), float("nan"))}}
    assert "worse than guessing" in worse_than_guessing(task, broken, {"validation": 0.75})
    assert not_told_from_guessing(task, broken, {"validation": 0.75}) == ""
