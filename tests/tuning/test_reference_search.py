from __future__ import annotations

import csv

import pytest
from tuning_networks import image_task

from hubscout.errors import InputError, RunError, TuningError
from hubscout.tasks import Task
from hubscout.tuning import reference_search as reference_module
from hubscout.tuning.reference_search import Grid, reference

MODELS = ["python:tuning_networks:images?seed=1", "python:tuning_networks:images?seed=2&width=12"]
QUICK = {"epochs": 1, "batch_size": 8}
SMALL = Grid((0.1, 0.01), (1e-4,))


def test_the_papers_grid():
    grid = Grid()
    assert grid.learning_rates == (0.1, 0.0316228, 0.01, 0.00316228, 0.001, 0.000316228, 0.0001)
    assert grid.weight_decays == (1e-6, 3.16228e-6, 1e-5, 3.16228e-5, 1e-4, 3.16228e-4, 1e-3)


def test_the_grid_suits_inputs_kind_and_optimiser():
    images, texts = image_task(), Task.from_arrays(["good", "bad"] * 12, ["a", "b"] * 12, modality="text")
    assert Grid.of(images) == Grid()
    assert Grid.of(texts).learning_rates == (1e-5, 3e-5, 1e-4)
    assert max(Grid.of(texts).beyond) <= 1e-3
    assert Grid.of(texts, "sgd") == Grid()
    assert Grid.of(images, "adamw").learning_rates == (1e-4, 3e-4, 1e-3)


@pytest.mark.parametrize(
    ("tried", "beyond", "expected"),
    [
        ((0.1, 0.01), (1e-3, 1.0), [0.1, 0.01, 1.0]),  # the best is the highest: up, and not down
        ((0.1, 1.0), (0.01, 1e-3), [0.1, 1.0, 0.01]),  # the best is the lowest: down, until it has a neighbour
        ((0.1, 1.0, 0.01), (1e-3, 10.0), [0.1, 1.0, 0.01]),
    ],
)
def test_rates_past_an_end_are_tried_where_the_best_is_there(tmp_path, tried, beyond, expected):
    options = {"out": tmp_path, "grid": Grid(tried, (1e-4,), beyond), "epochs": 2, "batch_size": 8}
    found = reference(image_task(), MODELS[:1], **options)
    assert found.best(MODELS[0]).learning_rate == 0.1
    assert [trial.learning_rate for trial in found.trials] == expected
    assert reference(image_task(), MODELS[:1], **options).trials == found.trials


def test_the_best_by_validation_and_its_test_metric(tmp_path):
    found = reference(image_task(), MODELS, out=tmp_path, grid=SMALL, **QUICK)
    assert set(found.models) == set(MODELS)
    assert len(found.trials) == 4
    for model in MODELS:
        own = [trial for trial in found.trials if trial.model == model]
        assert found.best(model).validation == max(trial.validation for trial in own)
    rows = list(csv.DictReader((tmp_path / "reference.csv").open()))
    assert {row["model"]: float(row["accuracy"]) for row in rows} == found.to_mapping()


def test_a_killed_search_goes_on_after_its_last_finished_trial(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    ran = []
    real = reference_module._trial

    def counted(*arguments):
        if len(ran) == 3:
            raise Killed
        ran.append(arguments[:3])
        return real(*arguments)

    monkeypatch.setattr(reference_module, "_trial", counted)
    with pytest.raises(Killed):
        reference(image_task(), MODELS, out=tmp_path, grid=SMALL, **QUICK)
    lines = (tmp_path / "trials.jsonl").read_text().splitlines()
    assert len(lines) == 3
    # As a kill in the middle of a write leaves it.
    (tmp_path / "trials.jsonl").write_text("\n".join(lines)[:-20])
    ran.clear()
    found = reference(image_task(), MODELS, out=tmp_path, grid=SMALL, **QUICK)
    assert len(ran) == 2
    assert len(found.trials) == 4
    monkeypatch.undo()
    whole = reference(image_task(), MODELS, out=tmp_path / "whole", grid=SMALL, **QUICK)
    assert whole.to_mapping() == found.to_mapping()


@pytest.mark.parametrize("missing", [1, 20])
def test_a_journal_that_was_cut_loses_no_other_trial(tmp_path, missing):
    journal = tmp_path / "trials.jsonl"
    first = reference(image_task(), MODELS[:1], out=tmp_path, grid=SMALL, **QUICK)
    journal.write_bytes(journal.read_bytes()[:-missing])
    more = reference(image_task(), MODELS[:1], out=tmp_path, grid=Grid((0.1, 0.01, 0.001), (1e-4,)), **QUICK)
    again = reference(image_task(), MODELS[:1], out=tmp_path, grid=Grid((0.1, 0.01, 0.001), (1e-4,)), **QUICK)
    assert again.trials == more.trials  # seconds too: nothing ran again
    assert len(more.trials) == 3
    kept = 2 if missing == 1 else 1
    assert more.trials[:kept] == first.trials[:kept]


def test_another_search_in_the_folder_is_refused(tmp_path):
    reference(image_task(), MODELS[:1], out=tmp_path, grid=Grid((0.01,), (1e-4,)), **QUICK)
    with pytest.raises(RunError, match="another search"):
        reference(image_task(), MODELS[:1], out=tmp_path, grid=Grid((0.01,), (1e-4,)), epochs=2, batch_size=8)
    anew = reference(
        image_task(), MODELS[:1], out=tmp_path, grid=Grid((0.1,), (1e-4,)), epochs=2, batch_size=8, overwrite=True
    )
    assert [trial.learning_rate for trial in anew.trials] == [0.1]
    with pytest.raises(InputError, match="holds no run to resume"):
        reference(image_task(), MODELS[:1], out=tmp_path / "new", resume=True, **QUICK)
    (tmp_path / "trials.jsonl").write_text("nonsense\nmore\n")
    with pytest.raises(RunError, match="line 1, is no JSON object"):
        reference(image_task(), MODELS[:1], out=tmp_path, **QUICK)


def test_divergence_is_a_result_and_a_broken_model_a_failure(tmp_path):
    models = [MODELS[0], "python:tuning_networks:nothing"]
    found = reference(image_task(), models, out=tmp_path, grid=Grid((1e30, 0.01), (1e-4,)), **QUICK)
    assert found.models == (MODELS[0],)
    assert "has no function 'nothing'" in found.failures[models[1]]
    diverged = next(trial for trial in found.trials if trial.learning_rate == 1e30)
    assert diverged.test is None
    assert "At step" in diverged.failure
    with pytest.raises(TuningError, match="No trial of"):
        found.best(models[1])


def test_bad_arguments(tmp_path):
    with pytest.raises(InputError, match="learning_rate is what the search is over"):
        reference(image_task(), MODELS, out=tmp_path, learning_rate=0.1)


def test_what_fine_tuning_does_not_heed_is_refused_before_data_are_read(tmp_path):
    with pytest.raises(InputError, match=r"label_share=0\.2 is for method 'b-tuning': leave it out"):
        reference(None, MODELS, out=tmp_path, label_share=0.2)
