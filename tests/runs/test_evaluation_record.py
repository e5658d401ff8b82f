"""What a tuned model makes of a split, written and read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubscout.errors import RunError
from hubscout.runs.data_check import Sample
from hubscout.runs.evaluation_record import (
    Confusion,
    EvaluationRecord,
    NumberPair,
    TargetOutcome,
    conclusion,
    read_evaluation,
    write_evaluation,
)
from hubscout.runs.run_folder import EVALUATION
from hubscout.runs.tuning_record import Probe, TuningRun

RECORD = EvaluationRecord(
    split="test",
    kind="classification",
    modality="image",
    target_names=("cat", "dog"),
    samples=3,
    targets=(TargetOutcome(name="cat", seen=2, said=1, right=1), TargetOutcome(name="dog", seen=1, said=2, right=1)),
    confusions=(Confusion(true=0, predicted=1, count=1),),
    pairs=(NumberPair(target=1, true=0.5, predicted=0.25),),
    worst=(Sample(split="test", row=1, name="cat/1.jpg", label="cat", note="predicted dog"),),
    suspected=4,
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_evaluation(tmp_path) is None
    write_evaluation(tmp_path, RECORD)
    assert read_evaluation(tmp_path) == RECORD
    write_evaluation(tmp_path, None)
    assert not (tmp_path / EVALUATION).exists()


def test_a_file_of_the_first_version_is_read_whichever_name_its_notes_have(tmp_path: Path) -> None:
    write_evaluation(tmp_path, RECORD)
    path = tmp_path / EVALUATION
    old = json.loads(path.read_text()) | {"version": 1}
    path.write_text(json.dumps(old))
    assert read_evaluation(tmp_path) == RECORD
    (sample,) = old["worst"]
    sample["remark"] = sample.pop("note")
    path.write_text(json.dumps(old | {"suspects": [sample]}))
    found = read_evaluation(tmp_path)
    assert found is not None
    assert found.worst == found.suspects == RECORD.worst


def test_shares_are_those_of_the_counts() -> None:
    cat = RECORD.targets[0]
    assert (cat.recall, cat.precision) == (0.5, 1.0)
    assert cat.f1 == pytest.approx(2 / 3)
    nothing = TargetOutcome(name="bird")
    assert (nothing.recall, nothing.precision, nothing.f1) == (None, None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"format": "another"},
        {"confusions": [{"true": 7, "predicted": 0, "count": 1}]},
        {"confusions": [{"true": -1, "predicted": 0, "count": 1}]},
        {"confusions": 3},
        {"worst": [3]},
        {"targets": [{"name": "cat", "seen": "many"}]},
        {"target_names": [1, 2]},
        {"target_names": 3},
        {"samples": None},
        {"samples": -1},
        {"confusions": [{"true": 0, "predicted": 0, "count": -1}]},
    ],
)
def test_a_damaged_record_is_one_error_that_names_the_file(tmp_path: Path, change: dict[str, Any]) -> None:
    write_evaluation(tmp_path, RECORD)
    path = tmp_path / EVALUATION
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=EVALUATION):
        read_evaluation(tmp_path)


def test_the_words_go_as_far_as_what_was_measured() -> None:
    assert conclusion(TuningRun(name="run")) == ""
    run = TuningRun(
        name="run",
        metrics={"validation": {"accuracy": (0.7, 0.6, 0.8)}},
        guess={"validation": 0.5, "test": 0.1},
        probes={"teacher": Probe(model="timm/large", metrics={"validation": {"accuracy": 0.75}})},
    )
    assert conclusion(run, lambda model: model.removeprefix("timm/")) == (
        "Validation accuracy 70.0% [60.0, 80.0], 5.0 points below that of the best teacher, large (75.0%). "
        "Guessing gives 50.0%."
    )


def test_a_result_that_is_the_probe_is_the_same_and_not_a_difference_of_nothing() -> None:
    run = TuningRun(
        name="run",
        metrics={"test": {"accuracy": (0.7, 0.6, 0.8)}},
        probes={"model": Probe(model="timm/small", metrics={"test": {"accuracy": 0.7}})},
    )
    assert conclusion(run) == ("Test accuracy 70.0% [60.0, 80.0], the same as the linear probe of the frozen features.")


def test_a_run_without_a_step_is_called_a_linear_probe() -> None:
    run = TuningRun(name="run", metrics={"test": {"accuracy": (0.7, 0.6, 0.8)}}, guess={"test": 0.1}, best_step=0)
    told = (
        "Test accuracy 70.0% [60.0, 80.0]. The model is the linear probe of its frozen features: there was no time for "
        "training. Guessing gives 10.0%."
    )
    assert conclusion(run) == told
    assert conclusion(replace(run, probes={"model": Probe(model="a", metrics={"test": {"accuracy": 0.7}})})) == told
    teacher = {"teacher": Probe(model="large", metrics={"test": {"accuracy": 0.7}})}
    assert "80.0], the same as that of the best teacher, large. The model is" in conclusion(
        replace(run, probes=teacher)
    )
    trained = conclusion(replace(run, steps=9))
    assert trained == told.replace("there was no time for training", "no step of training was better on validation")
    assert "linear probe" not in conclusion(replace(run, steps=3, best_step=3))


def test_a_model_that_is_its_own_best_teacher_is_not_compared_with_itself() -> None:
    probe = Probe(model="timm/small", metrics={"test": {"accuracy": 0.7}})
    run = TuningRun(
        name="run",
        metrics={"test": {"accuracy": (0.7, 0.6, 0.8)}},
        probes={"model": probe, "teacher": probe},
    )
    assert "teacher" not in conclusion(run)
    assert "the best teacher, large" in conclusion(
        replace(run, probes={"model": probe, "teacher": replace(probe, model="large")})
    )


def test_where_tuning_did_harm_it_is_said_with_what_to_try() -> None:
    harm = "Tuning made the model worse than its frozen features: try a lower learning rate or more epochs."
    for probe, told in ((0.79, False), (0.81, True)):
        run = TuningRun(
            name="run",
            metrics={"test": {"accuracy": (0.7, 0.6, 0.8)}},
            probes={"model": Probe(model="timm/small", metrics={"test": {"accuracy": probe}})},
        )
        assert conclusion(run).endswith(harm) is told
