from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tuning_networks import assert_same, convolutional, make_task, perceptron, weights_of

from hubscout.errors import InputError
from hubscout.evidence import logme
from hubscout.runs.events import Validated
from hubscout.tasks import Task
from hubscout.tuning import tune
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.frozen_features import FrozenFeatures
from hubscout.tuning.methods import METHODS, Preparation
from hubscout.tuning.methods.b_tuning import b_tuning_loss, default_trade_off
from hubscout.tuning.teacher_answers import TeacherPanel, mixing_weights, precision_weights


def frozen_features(backbone, inputs):
    with torch.no_grad():
        return backbone.forward({"inputs": torch.as_tensor(np.asarray(inputs))}).features.double().numpy()


def test_loss_equals_the_formula_by_hand_in_float64():
    generator = np.random.default_rng(0)
    features = generator.normal(size=(5, 4))
    own = generator.normal(size=(3, 4))
    teachers = [(generator.normal(size=(5, d)), generator.normal(size=(3, d))) for d in (6, 2)]
    scores = np.array([0.7, 0.5])
    shares = np.exp(scores / 0.1) / np.exp(scores / 0.1).sum()
    by_hand = np.zeros(5)
    for i in range(5):
        for c in range(3):
            mixed = sum(shares[k] * teachers[k][0][i] @ teachers[k][1][c] for k in range(2))
            by_hand[i] += (mixed - features[i] @ own[c]) ** 2 / 3
    mixed = sum(share * f @ m.T for share, (f, m) in zip(shares, teachers, strict=True))
    found = b_tuning_loss(*(torch.as_tensor(a) for a in (features, own[None], mixed, np.zeros(5, dtype=int))))
    np.testing.assert_allclose(found.numpy(), by_hand, rtol=1e-13)


@pytest.mark.parametrize(("kind", "strength"), [("classification", 18.0), ("multilabel", 3.0), ("regression", 1.0)])
def test_the_default_strength_is_six_per_class_one_per_label_and_one_for_numbers(kind, strength):
    task, method = make_task(kind), METHODS["b-tuning"]()
    given = TuningArguments(), torch.device("cpu"), FrozenFeatures(task, "cpu")
    method.prepare(Preparation(task, perceptron(0), [perceptron(1)], *given))
    assert len(task.target_names) > 1
    assert method.trade_off == strength


def test_the_default_strength_for_tags_is_one_however_many_there_are():
    task = Task.from_arrays([["Ann", "sings"], ["she", "reads"]] * 5, [["N", "V"], ["P", "V"]] * 5, kind="tagging")
    assert len(task.target_names) == 3
    assert default_trade_off(task) == 1.0


def test_gradient_of_the_loss_checks_out():
    torch.manual_seed(0)
    features = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    own, mixed = torch.randn(2, 2, 3, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    fold = torch.tensor([0, 1, 1, 0])
    assert torch.autograd.gradcheck(lambda f: b_tuning_loss(f, own, mixed, fold), (features,))


def test_beyond_the_bound_the_loss_goes_on_as_its_tangent():
    heads, nowhere = torch.ones(1, 1, 1, dtype=torch.float64), torch.tensor([0])
    values = torch.tensor([0.2, 0.5, 0.5 + 1e-9, 40.0], dtype=torch.float64, requires_grad=True)
    found = [b_tuning_loss(v.view(1, 1), heads, torch.zeros(1, 1), nowhere, bound=0.5)[0] for v in values]
    np.testing.assert_allclose([one.item() for one in found], [0.04, 0.25, 0.25, 0.5 * (80 - 0.5)], rtol=1e-8)
    sum(found).backward()
    np.testing.assert_allclose(values.grad, [0.4, 1.0, 1.0, 1.0], rtol=1e-8)


def test_without_teachers_a_model_follows_the_labels_through_heads_that_have_not_seen_the_sample(task):
    target, method, frozen = perceptron(0), METHODS["b-tuning"](), FrozenFeatures(task, "cpu")
    given = TuningArguments(trade_off=2.0), torch.device("cpu"), frozen
    method.prepare(Preparation(task, target, [], *given))
    heads, features = frozen.crossed_heads(target, 5), frozen.features(target)
    own = np.stack([heads.weights[k] @ f + heads.intercept[k] for k, f in zip(heads.fold, features, strict=True)])
    apart = torch.as_tensor(np.eye(3)[task.train.targets] - own)
    expected = 2.0 * (2 * torch.nn.functional.huber_loss(apart, 0 * apart, reduction="none", delta=0.25)).mean(dim=1)
    rows = torch.arange(len(features))
    shown = torch.as_tensor(features, dtype=torch.float32)
    found = method.terms(torch.nn.Module(), shown, torch.empty(0), method.references(rows, {}))["labels"]
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-3, atol=1e-5)


def test_without_teachers_there_is_no_table_of_samples_and_classes(monkeypatch):
    task = make_task()
    plain = tune(task, perceptron(0), method="b-tuning", epochs=1, batch_size=16, linear_probe=False, progress=False)
    monkeypatch.setattr(FrozenFeatures, "labels", lambda frozen: pytest.fail("gigabytes, for many of both"))
    again = tune(task, perceptron(0), method="b-tuning", epochs=1, batch_size=16, linear_probe=False, progress=False)
    assert_same(plain, again)
    method, frozen = METHODS["b-tuning"](), FrozenFeatures(task, "cpu")
    method.prepare(Preparation(task, perceptron(0), [], TuningArguments(), torch.device("cpu"), frozen))
    kept = [value for value in vars(method).values() if isinstance(value, torch.Tensor)]
    assert not [one for one in kept if one.ndim > 1 and len(one) == len(task.train)]
    assert not method.live_teachers()


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_what_is_followed_lies_between_the_teachers_and_the_labels(kind):
    task, rows = make_task(kind), torch.tensor([3, 0, 95])

    def followed(share):
        method, frozen = METHODS["b-tuning"](), FrozenFeatures(task, "cpu")
        given = TuningArguments(label_share=share), torch.device("cpu"), frozen
        method.prepare(Preparation(task, perceptron(0), [perceptron(1)], *given))
        heads = frozen.crossed_heads(perceptron(0), len(method.heads))
        answers = method.references(rows, {})["teachers"] + method.intercepts[heads.fold[rows]]
        return answers, torch.as_tensor(frozen.labels()[rows]) * method.scale

    (taught, labels), (between, _) = followed(0.0), followed(0.25)
    assert (taught - labels).abs().max() > 0.01
    np.testing.assert_allclose(between, 0.75 * taught + 0.25 * labels, rtol=1e-4, atol=1e-5)


def test_without_teachers_it_follows_the_labels():
    task = make_task(shape=(3, 8, 8), n=40)
    options = {"epochs": 2, "batch_size": 16, "seed": 3, "keep_best": False}
    plain = tune(task, convolutional(0), method="fine-tune", **options)
    tuned = tune(task, convolutional(0), method="b-tuning", **options)
    assert tuned.method == "b-tuning"
    assert tuned.teachers == ()
    assert any(note.startswith("No teachers: the model follows the labels") for note in tuned.notes)
    before, after = weights_of(plain.backbone), weights_of(tuned.backbone)
    assert any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("kind", "options"), [("regression", {}), ("classification", {"posterior_folds": 1})])
def test_without_teachers_there_must_be_classes_and_crossed_heads(kind, options):
    with pytest.raises(InputError, match=r"is for classification with posterior_folds of 2 or more: give teachers"):
        tune(make_task(kind), perceptron(0), method="b-tuning", epochs=1, **options)


def test_without_teachers_there_must_be_samples_for_two_folds():
    whole = make_task(n=90)
    kept = np.r_[np.flatnonzero(whole.train.targets == 0)[:9], np.flatnonzero(whole.train.targets == 1)[:1]]
    train = replace(whole.train, inputs=np.asarray(whole.train.inputs)[kept], targets=whole.train.targets[kept])
    few = replace(whole, splits={"train": train}, target_names=whole.target_names[:2])
    given = TuningArguments(), torch.device("cpu"), FrozenFeatures(few, "cpu")
    with pytest.raises(InputError, match="for which two classes need two samples or more"):
        METHODS["b-tuning"]().prepare(Preparation(few, perceptron(0), [], *given))
    method = METHODS["b-tuning"]()
    method.prepare(Preparation(few, perceptron(0), [perceptron(1)], *given))
    assert method.bound is None  # one head for all is the paper's form
    seen = "through heads that have seen the samples, as by posterior_folds=1: the train samples cannot be cut into"
    assert [note for note in method.notes if seen in note]
    asked = METHODS["b-tuning"]()
    asked.prepare(Preparation(few, perceptron(0), [perceptron(1)], TuningArguments(posterior_folds=1), *given[1:]))
    assert not [note for note in asked.notes if "have seen" in note]


@pytest.mark.parametrize(("name", "value"), [("BOUND", None), ("LABEL_SHARE", 0.0)])
def test_a_run_that_is_resumed_keeps_what_was_its_default(tmp_path, monkeypatch, name, value):
    options = {"epochs": 4, "batch_size": 16, "learning_rate": 0.01, "keep_best": False, "method": "b-tuning"}
    task, given = make_task(n=96), (perceptron(0), [perceptron(1)])
    monkeypatch.setattr(f"hubscout.tuning.methods.b_tuning.{name}", value)
    whole = tune(task, *given, **options)

    class Stop(BaseException):
        pass

    def stop_later(event):
        if isinstance(event, Validated) and event.epoch >= 2:
            raise Stop

    with pytest.raises(Stop):
        tune(task, *given, out=tmp_path, observer=stop_later, **options)
    monkeypatch.undo()
    resumed = tune(task, *given, out=tmp_path, **options)
    assert any("Resumed" in note for note in resumed.notes)
    for name, value in weights_of(whole.backbone).items():
        assert torch.equal(value, weights_of(resumed.backbone)[name]), name


def test_whole_loss_of_a_prepared_method_is_the_papers(task):
    target, teachers = perceptron(0), [perceptron(1), perceptron(2, width=24)]
    method = METHODS["b-tuning"]()
    arguments = TuningArguments(trade_off=2.5, posterior_folds=1)
    method.prepare(Preparation(task, target, teachers, arguments, torch.device("cpu"), FrozenFeatures(task, "cpu")))
    y = task.train.targets
    evidences = [
        logme(frozen_features(t, task.train.inputs), y, kind="classification", classes=range(3)) for t in teachers
    ]
    shares = np.exp(np.array([e.score for e in evidences]) / 0.1)
    shares /= shares.sum()
    mixed = sum(
        share * frozen_features(t, task.train.inputs) @ e.weights.T
        for share, t, e in zip(shares, teachers, evidences, strict=True)
    )
    f = frozen_features(target, task.train.inputs)
    own = logme(f, y, kind="classification", classes=range(3))
    expected = 2.5 * ((mixed - f @ own.weights.T) ** 2).mean(axis=1)
    references = method.references(torch.arange(len(y)), {})
    features = torch.as_tensor(f, dtype=torch.float32)
    found = method.terms(torch.nn.Module(), features, torch.empty(0), references)["teachers"]
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_a_sample_is_compared_through_a_head_that_has_not_seen_it(kind):
    task, model = make_task(kind), perceptron(0)
    frozen = FrozenFeatures(task, "cpu")
    heads = frozen.crossed_heads(model, 4)
    features, targets = frozen.features(model).astype(np.float64), np.asarray(task.train.targets)
    assert set(heads.fold) == {0, 1, 2, 3}
    for k in range(4):
        seen = heads.fold != k
        names = {"classes": range(len(task.target_names))} if kind == "classification" else {}
        by_hand = logme(features[seen], targets[seen], kind=kind, center=True, **names)
        np.testing.assert_allclose(heads.weights[k], by_hand.weights, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(heads.intercept[k], by_hand.intercept, rtol=1e-4, atol=1e-6)


def test_classification_has_five_heads_and_each_row_goes_through_its_own(task):
    target, method = perceptron(0), METHODS["b-tuning"]()
    frozen, arguments = FrozenFeatures(task, "cpu"), TuningArguments(trade_off=2.0)
    method.prepare(Preparation(task, target, [perceptron(1)], arguments, torch.device("cpu"), frozen))
    heads = frozen.crossed_heads(target, 5)
    f, rows = frozen.features(target), torch.tensor([3, 0, 11, 40])
    own = np.stack([heads.weights[heads.fold[r]] @ f[r] + heads.intercept[heads.fold[r]] for r in rows.numpy()])
    followed = (method.panel.cached_predictions() + frozen.labels()) / 2
    apart = np.abs(followed[rows.numpy()] - own)
    expected = 2.0 * np.where(apart <= 0.25, apart**2, 0.25 * (2 * apart - 0.25)).mean(axis=1)
    assert (apart > 0.25).any()
    assert (apart < 0.25).any()
    given = torch.as_tensor(f[rows.numpy()], dtype=torch.float32)
    found = method.terms(torch.nn.Module(), given, torch.empty(0), method.references(rows, {}))["teachers"]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("counts", [(30, 1, 1), (30, 3, 1), (30, 1), (1, 1)])
def test_classes_of_few_samples_have_fewer_folds_and_no_error(counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    whole = make_task(n=3 * len(labels))
    inputs = np.asarray(whole.train.inputs)[: len(labels)]
    names = whole.target_names[: len(counts)]
    split = replace(whole.train, inputs=inputs, targets=labels)
    frozen = FrozenFeatures(replace(whole, splits={"train": split}, target_names=names), "cpu")
    heads = frozen.crossed_heads(perceptron(0), 5)
    assert len(heads.weights) == max(1, min(5, sorted(counts)[-2]))
    assert np.isfinite(heads.weights).all()
    assert np.isfinite(heads.intercept).all()


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_there_are_no_more_folds_than_samples(kind):
    whole = make_task(kind)
    split = replace(whole.train, inputs=np.asarray(whole.train.inputs)[:3], targets=whole.train.targets[:3])
    heads = FrozenFeatures(replace(whole, splits={"train": split}), "cpu").crossed_heads(perceptron(0), 5)
    assert sorted(heads.fold) == [0, 1, 2]
    assert np.isfinite(heads.weights).all()


@pytest.mark.parametrize("method", ["b-tuning", "kd"])
@pytest.mark.parametrize("teacher_targets", ["cached", "left-out", "live"])
def test_without_trade_off_it_is_fine_tuning_bit_for_bit(method, teacher_targets):
    task = make_task(shape=(3, 8, 8), n=40)
    options = {"epochs": 2, "batch_size": 16, "seed": 3, "keep_best": False}
    plain = tune(task, convolutional(0), method="fine-tune", **options)
    other = tune(
        task,
        convolutional(0),
        [convolutional(1)],
        method=method,
        trade_off=0.0,
        teacher_targets=teacher_targets,
        **options,
    )
    for name, value in weights_of(plain.backbone).items():
        assert torch.equal(value, weights_of(other.backbone)[name]), name
    assert torch.equal(plain.head.weight, other.head.weight)


def test_dropout_draws_alike_beside_teachers(task):
    options = {"epochs": 1, "batch_size": 16, "keep_best": False}
    plain = tune(task, perceptron(0, dropout=0.5), method="fine-tune", **options)
    other = tune(task, perceptron(0, dropout=0.5), [perceptron(1)], method="b-tuning", trade_off=0.0, **options)
    assert torch.equal(plain.head.weight, other.head.weight)


@pytest.mark.parametrize("weights", ["softmax", "bayes-factor", "precision"])
@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_cached_and_live_agree_without_augmentation(kind, weights):
    task = make_task(kind)
    options = {
        "teachers": [perceptron(1), perceptron(2, width=24)],
        "epochs": 1,
        "batch_size": 16,
        "trade_off": 0.5,
        "augment": "none",
        "teacher_weights": weights,
        "learning_rate": 1e-3,
        "keep_best": False,
    }
    cached = tune(task, perceptron(0), teacher_targets="cached", **options)
    live = tune(task, perceptron(0), teacher_targets="live", **options)
    torch.testing.assert_close(cached.head.weight, live.head.weight, rtol=1e-4, atol=1e-6)
    losses = [[line["loss"] for line in tuned.curves if line["event"] == "step"] for tuned in (cached, live)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_left_out_teachers_never_saw_the_row(kind):
    task = make_task(kind)
    teacher = perceptron(1)
    frozen_features = FrozenFeatures(task, "cpu")
    arguments = TuningArguments(teacher_targets="left-out", trade_off=1.0)
    preparation = Preparation(task, perceptron(0), [teacher], arguments, torch.device("cpu"), frozen_features)
    panel = TeacherPanel(preparation)
    panel.study()
    found = panel.cached_predictions(left_out=True)
    fitted = panel.posteriors[0]
    features, labels = frozen_features.features(teacher).astype(np.float64), frozen_features.labels()
    for row in (0, 7):
        keep = np.arange(len(features)) != row
        centre, level = (features[keep].mean(0), labels[keep].mean(0)) if kind == "regression" else (0.0, 0.0)
        rest, known = features[keep] - centre, labels[keep] - level
        for c in range(labels.shape[1]):  # ridge regression on the other rows, with the ratio of the whole
            gram = rest.T @ rest + fitted.ratio[c] * np.eye(rest.shape[1])
            weights = np.linalg.solve(gram, rest.T @ known[:, c])
            expected = (features[row] - centre) @ weights + (level[c] if kind == "regression" else 0.0)
            assert found[row, c] == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_teachers_change_what_comes_out(task):
    options = {"epochs": 1, "batch_size": 16, "keep_best": False}
    plain = tune(task, perceptron(0), method="fine-tune", **options)
    other = tune(task, perceptron(0), [perceptron(1)], method="b-tuning", trade_off=1.0, **options)
    assert not torch.equal(plain.head.weight, other.head.weight)


def test_mixing_weights_by_evidence(task):
    evidences = [
        logme(frozen_features(perceptron(seed, width=width), task.train.inputs), task.train.targets, classes=range(3))
        for seed, width in ((1, 16), (2, 64))
    ]
    scores = np.array([e.score for e in evidences])
    soft = mixing_weights(evidences, "softmax", 0.1)
    np.testing.assert_allclose(soft[:, 0], np.exp(scores / 0.1) / np.exp(scores / 0.1).sum())
    np.testing.assert_allclose(soft.sum(axis=0), 1.0)
    factors = mixing_weights(evidences, "bayes-factor")
    gap = evidences[0].n * (evidences[0].per_target - evidences[1].per_target)
    np.testing.assert_allclose(np.log(factors[0] / factors[1]), gap, rtol=1e-6)
    np.testing.assert_allclose(precision_weights(np.array([[[1.0]], [[4.0]]])).ravel(), [0.8, 0.2])


def test_the_target_among_its_teachers_is_said_aloud(task):
    tuned = tune(task, perceptron(0), [perceptron(0), perceptron(1)], epochs=1, trade_off=1.0)
    assert any("among its own teachers" in note for note in tuned.notes)
