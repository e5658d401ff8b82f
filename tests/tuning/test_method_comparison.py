from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from tuning_networks import convolutional, make_task, perceptron

from hubscout.errors import InputError, RunError
from hubscout.report import open_run
from hubscout.report.page import sections
from hubscout.tasks import Task
from hubscout.tuning.method_comparison import compare

PLAIN = {"epochs": 1, "batch_size": 16}
QUICK = {**PLAIN, "trade_off": 0.1}


def test_all_methods_over_seeds_on_equal_terms(tmp_path):
    task = make_task(shape=(3, 8, 8), n=32)
    found = compare(task, convolutional(0), [convolutional(1)], seeds=(0, 1), out=tmp_path, **QUICK)
    assert {(trial.method, trial.seed) for trial in found.trials} == {
        (method, seed) for method in ("fine-tune", "kd", "zoo", "b-tuning") for seed in (0, 1)
    }
    values = found.values("kd")
    summary = found.record()["summary"]["kd"]
    assert summary["test_mean"] == pytest.approx(values.mean())
    assert summary["test_deviation"] == pytest.approx(np.std(values, ddof=1))
    console = Console(width=120)
    with console.capture() as captured:
        console.print(found.table())
    assert "±" in captured.get()
    again = compare(task, convolutional(0), [convolutional(1)], seeds=(0, 1), out=tmp_path, **QUICK)
    assert again.trials == found.trials  # seconds too: nothing ran again
    with pytest.raises(RunError, match="another comparison"):
        compare(task, convolutional(0), [convolutional(2)], seeds=(0,), out=tmp_path, **QUICK)
    other = {"methods": ("fine-tune",), "seeds": (0,), "out": tmp_path, **PLAIN}
    assert len(compare(task, convolutional(0), [convolutional(2)], overwrite=True, **other).trials) == 1
    assert len(compare(task, convolutional(0), [convolutional(2)], resume=True, **other).trials) == 1


@pytest.mark.parametrize("missing", [1, 20])
def test_a_journal_that_was_cut_loses_no_other_trial(task, tmp_path, missing):
    options = {"methods": ("fine-tune",), "out": tmp_path, **PLAIN}
    journal = tmp_path / "trials.jsonl"
    first = compare(task, perceptron(0), [], seeds=(0, 1), **options)
    journal.write_bytes(journal.read_bytes()[:-missing])
    more = compare(task, perceptron(0), [], seeds=(0, 1, 2), **options)
    again = compare(task, perceptron(0), [], seeds=(0, 1, 2), **options)
    assert again.trials == more.trials  # seconds too: nothing ran again
    kept = 2 if missing == 1 else 1
    assert more.trials[:kept] == first.trials[:kept]


def test_a_method_that_cannot_run_is_named_with_its_reason(task, tmp_path):
    options = {"seeds": (0,), "out": tmp_path, **PLAIN}
    models = perceptron(0), [perceptron(1, width=24)]
    found = compare(task, *models, methods=("fine-tune", "zoo"), **options)
    assert found.methods == ("fine-tune",)
    assert "one architecture" in found.failures["zoo"]
    run = open_run(tmp_path)
    assert run.failed_methods == found.failures
    (answer,) = (str(one) for one in sections(run) if one.anchor == "answer")
    assert "zoo could not be run: " in answer
    assert "one architecture" in answer
    compare(task, *models, methods=("fine-tune",), **options)
    assert not open_run(tmp_path).failed_methods


def test_an_option_that_none_of_the_methods_heeds_is_refused_before_anything_runs(task, tmp_path):
    with pytest.raises(InputError, match=r"kd_temperature=4\.0 is for method 'distill-weighted' or 'logit-kd'"):
        compare(task, perceptron(0), [perceptron(1)], out=tmp_path / "run", kd_temperature=4.0, **QUICK)
    with pytest.raises(InputError, match=r"trade_off=0\.1 is for method"):
        compare(task, perceptron(0), [perceptron(1)], methods=("fine-tune", "zoo"), out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_runs_in_other_processes_give_the_same(tmp_path):
    for label, colour in enumerate(("blue", "green", "red")):
        for part, count in (("train", 6), ("validation", 3), ("test", 3)):
            place = tmp_path / "colours" / part / colour
            place.mkdir(parents=True)
            for number in range(count):
                pixels = np.random.default_rng([label, number]).integers(0, 120, size=(16, 16, 3))
                pixels[:, :, 2 - label] += 100
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.png")
    task = Task.from_image_folder(tmp_path / "colours")
    # The file, not the module: another process has another search path.
    network = f"python:{Path(__file__).parent / 'tuning_networks.py'}:images"
    options = {"methods": ("fine-tune", "kd"), "seeds": (0,), "epochs": 1, "batch_size": 6}
    here = compare(task, f"{network}?seed=1", [f"{network}?seed=2"], **options)
    there = compare(task, f"{network}?seed=1", [f"{network}?seed=2"], engine_options={"workers": 2}, **options)
    assert not there.failures
    for method in ("fine-tune", "kd"):
        assert here.values(method) == there.values(method)


def test_data_in_memory_is_sent_along():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 255, size=(36, 16, 16, 3)).astype(np.uint8)
    task = Task.from_arrays(list(images), np.arange(36) % 3, modality="image")
    network = f"python:{Path(__file__).parent / 'tuning_networks.py'}:images"
    options = {"methods": ("fine-tune",), "seeds": (0,), "epochs": 1, "batch_size": 6}
    here = compare(task, f"{network}?seed=1", [f"{network}?seed=2"], **options)
    there = compare(task, f"{network}?seed=1", [f"{network}?seed=2"], engine_options={"workers": 2}, **options)
    assert not there.failures
    assert here.values("fine-tune") == there.values("fine-tune")
