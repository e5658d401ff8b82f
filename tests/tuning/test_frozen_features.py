"""Tuning reads the features that ranking left in the cache."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tuning_networks import make_task, perceptron

from hubscout.evidence import Statistics, maximize_evidence
from hubscout.features import FeatureCache, extract, extractor
from hubscout.features.precision import Precision, pick_precision
from hubscout.runs.events import Message
from hubscout.tasks import Task
from hubscout.tasks.kinds import kind_of
from hubscout.tuning import tune
from hubscout.tuning.frozen_features import FrozenFeatures


def reduced_by_default(precision: str, device: str) -> Precision:
    """As on a GPU: "auto" is a reduced format that is checked on the first batch."""
    if precision == "auto":
        return Precision("float16", device, checked=True)
    return pick_precision(precision, device)


def test_teachers_are_read_in_the_precision_that_they_were_ranked_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extractor, "pick_precision", reduced_by_default)
    task, teacher, cache = make_task(), perceptron(), FeatureCache(tmp_path)
    ranked = extract(teacher, task, device="cpu", cache=cache, batch_size=32)
    exact = extract(teacher, task, device="cpu", precision="float32").features()
    assert not np.array_equal(ranked.features(), exact)
    frozen_features = FrozenFeatures(task, "cpu", cache)
    np.testing.assert_array_equal(frozen_features.features(teacher), ranked.features())
    assert len(cache.entries()) == 1


def test_a_reduced_format_that_was_not_checked_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A format that somebody asked for may be far from float32."""
    monkeypatch.setattr(extractor, "pick_precision", reduced_by_default)
    task, teacher, cache = make_task(), perceptron(), FeatureCache(tmp_path)
    extract(teacher, task, device="cpu", cache=cache, precision="float16")
    FrozenFeatures(task, "cpu", cache).features(teacher)
    assert len(cache.entries()) == 2


def test_each_teacher_is_named_before_it_is_fitted() -> None:
    """Fitting them takes minutes, in which nothing else is heard."""
    task, heard = make_task(), []
    teachers = [perceptron(1), perceptron(2)]
    tune(task, perceptron(0), teachers, observer=heard.append, steps=2, batch_size=16, bootstrap_resamples=10)
    told = [event.text if isinstance(event, Message) else type(event).__name__ for event in heard]
    for name in [teacher.card.identifier for teacher in teachers]:
        said = told.index(f"Computing the features of {name} for the {len(task.train)} training samples.")
        assert told[said + 1] == "Started"
        assert "Finished" in told[said + 1 : told.index("Progress")]


def patients(labels: np.ndarray, **options) -> Task:
    """Each of 40 patients has ten samples that are nearly the same, and a label of his own."""
    generator = np.random.default_rng(0)
    inputs = np.repeat(generator.normal(size=(40, 8)), 10, axis=0) + 0.01 * generator.normal(size=(400, 8))
    groups = np.repeat(np.arange(40), 10)
    return Task.from_arrays(inputs.astype(np.float32), labels, groups=groups, test_size=0, validation_size=0, **options)


def test_folds_and_predictions_from_others_do_not_divide_a_group() -> None:
    task = patients(np.repeat(np.random.default_rng(1).integers(0, 2, 40), 10))
    frozen, model = FrozenFeatures(task, "cpu"), perceptron()
    heads = frozen.crossed_heads(model, 5)
    assert task.train.groups is not None
    folds = [set(task.train.groups[heads.fold == k]) for k in range(5)]
    assert sum(map(len, folds)) == len(set.union(*folds)) == 40
    left_out = frozen.left_out(model)
    for k in range(5):
        rows = heads.fold == k
        others = Statistics("classification", task.target_names)
        others.update(frozen.features(model)[~rows], np.asarray(task.train.targets)[~rows])
        expected = maximize_evidence(others, center=True).predict(frozen.features(model)[rows])
        np.testing.assert_allclose(left_out[rows], expected, atol=1e-8)


@pytest.mark.parametrize("positive", [1, 2])
def test_where_one_group_has_all_samples_of_a_class_the_heads_are_fitted_to_all(positive: int) -> None:
    task = patients(np.repeat(np.arange(40) < positive, 10).astype(int))
    heads = FrozenFeatures(task, "cpu").crossed_heads(perceptron(), 5)
    assert len(heads.weights) == positive


def test_a_posterior_has_no_error_bar_that_nobody_reads() -> None:
    assert FrozenFeatures(make_task(), "cpu").posterior(perceptron()).standard_error is None


def test_a_perfect_fit_is_no_warning_in_the_middle_of_a_run() -> None:
    """What it warns of is the score; the file and the line that would be printed say nothing to whoever tunes."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(60, 8)).astype(np.float32)
    model = perceptron()
    frozen = FrozenFeatures(Task.from_arrays(inputs, np.arange(60.0), kind="regression"), "cpu")
    exact = frozen.features(model)[:, :1].astype(np.float64)
    frozen.task = replace(frozen.task, splits={"train": replace(frozen.task.train, targets=exact)})
    frozen.forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert frozen.posterior(model).unbounded


def test_where_time_is_short_networks_are_not_exported_but_what_an_export_has_left_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("hubscout.features.options._is_expected_to_pay", lambda job, module: True)
    task, teacher, other, cache = make_task(), perceptron(1), perceptron(2), FeatureCache(tmp_path)
    ranked = extract(teacher, task, device="cpu", cache=cache)
    assert ranked.backend == "onnxruntime"
    frozen = FrozenFeatures(task, "cpu", cache, hurried=True)
    assert (frozen.knows(teacher), frozen.knows(other)) == (True, False)
    np.testing.assert_array_equal(frozen.features(teacher), ranked.features())
    frozen.features(other)
    assert {path.name for path in tmp_path.glob("*graph*")} == {
        path.name for path in tmp_path.glob("*perceptron-1*graph*")
    }
    assert FrozenFeatures(task, "cpu", cache, hurried=True).knows(other)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_posteriors_of_few_rows_are_those_of_their_sums(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """n × n in place of D × D, for the whole and for each fold."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((24, 100)).astype(np.float32)
    labels = {
        "classification": generator.integers(3, size=24),
        "multilabel": generator.integers(2, size=(24, 3)),
        "regression": generator.standard_normal((24, 2)),
    }[kind]
    task, model = Task.from_arrays(inputs, labels, kind=kind), perceptron(0, inputs=100, width=100)
    asked = []

    def counted(*arguments: object, **options: object) -> object:
        asked.append(arguments)
        return maximize_evidence(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("hubscout.tuning.frozen_features.maximize_evidence", counted)
    found = FrozenFeatures(task, "cpu")
    few, crossed = found.posterior(model), found.crossed_heads(model, 3)
    assert not asked
    sums = found._extraction(model).statistics[""]
    np.testing.assert_allclose(few.weights, maximize_evidence(sums, jackknife="none").weights, atol=1e-9)
    first = crossed.fold == 0
    values = kind_of(kind).rows_of(task.train.targets)
    rest = Statistics(kind, task.target_names).update(found.features(model)[~first], values[~first])
    np.testing.assert_allclose(crossed.weights[0], maximize_evidence(rest, center=True).weights, atol=1e-9)
