from __future__ import annotations

import gc
import weakref

import pytest
import torch
from tuning_networks import weights_of, write_images

from hubscout.errors import TaskError
from hubscout.runs.events import Message, Progress
from hubscout.tasks import Split, Task
from hubscout.tasks.images import Images
from hubscout.tuning import tune
from hubscout.tuning.method_comparison import compare
from hubscout.tuning.readable import decoded_once, read_through
from hubscout.tuning.reference_search import Grid, reference

MODEL = "python:tuning_networks:images?seed=1"
OPTIONS = {"method": "fine-tune", "epochs": 2, "batch_size": 8, "augment": "none", "bootstrap_resamples": 5}


@pytest.fixture
def folder(tmp_path):
    """Images of three colours in three splits."""
    return write_images(tmp_path / "colours")


def spoil(folder, part):
    path = sorted((folder / part / "red").iterdir())[0]
    path.write_bytes(path.read_bytes()[:60])
    return path


@pytest.mark.parametrize("part", ["train", "validation", "test"])
@pytest.mark.parametrize("in_memory", [False, True])
def test_an_unreadable_file_of_any_split_is_named_before_the_first_step(folder, part, in_memory):
    bad, heard = spoil(folder, part), []
    with pytest.raises(
        TaskError, match=rf"^1 of \d+ {part} samples of 'colours' cannot be read\. .*--skip-bad"
    ) as caught:
        tune(
            Task.from_image_folder(folder),
            MODEL,
            observer=heard.append,
            data_in_memory=in_memory,
            log_every_steps=1,
            **OPTIONS,
        )
    assert str(bad) in str(caught.value)
    assert not any(isinstance(event, Progress) for event in heard)


@pytest.mark.parametrize("part", ["train", "test"])
def test_skipping_bad_samples_is_as_if_they_were_not_there(folder, part):
    bad = spoil(folder, part)
    task = Task.from_image_folder(folder)
    heard = []
    skipped = tune(task, MODEL, skip_bad=True, observer=heard.append, **OPTIONS)
    (note,) = [note for note in skipped.notes if "cannot be read" in note]
    assert str(bad) in note
    assert note in {event.text for event in heard if isinstance(event, Message)}
    assert skipped.sizes[part] == len(task.splits[part]) - 1
    bad.unlink()
    removed = tune(Task.from_image_folder(folder), MODEL, **OPTIONS)
    assert skipped.task_fingerprint == removed.task_fingerprint
    assert skipped.metrics_record() == removed.metrics_record()
    assert all(torch.equal(a, weights_of(removed.backbone)[name]) for name, a in weights_of(skipped.backbone).items())


def test_a_run_goes_on_when_bad_files_are_removed(folder, tmp_path):
    bad = spoil(folder, "train")
    first = tune(Task.from_image_folder(folder), MODEL, skip_bad=True, out=tmp_path / "run", **OPTIONS)
    bad.unlink()
    again = tune(Task.from_image_folder(folder), MODEL, resume=True, out=tmp_path / "run", **OPTIONS)
    assert again.metrics_record() == first.metrics_record()


def test_a_run_goes_on_when_a_file_of_test_went_bad_meanwhile(folder, tmp_path):
    first = tune(Task.from_image_folder(folder), MODEL, out=tmp_path / "run", **OPTIONS)
    spoil(folder, "test")
    again = tune(Task.from_image_folder(folder), MODEL, resume=True, skip_bad=True, out=tmp_path / "run", **OPTIONS)
    assert any("Resumed after step" in note for note in again.notes)
    assert again.metrics_record()["validation"] == first.metrics_record()["validation"]
    assert again.sizes["test"] == first.sizes["test"] - 1


def test_searches_and_comparisons_check_first_and_skip_alike(folder, tmp_path):
    bad = spoil(folder, "test")
    task, shared = Task.from_image_folder(folder), {"epochs": 1, "batch_size": 8}
    with pytest.raises(TaskError, match=bad.name):
        reference(task, [MODEL], out=tmp_path / "ref", grid=Grid((0.01,), (1e-4,)), **shared)
    found = reference(task, [MODEL], out=tmp_path / "ref", grid=Grid((0.01,), (1e-4,)), skip_bad=True, **shared)
    assert found.models == (MODEL,)
    with pytest.raises(TaskError, match=bad.name):
        compare(task, MODEL, [], methods=("fine-tune",), seeds=(0,), **shared)
    assert not compare(task, MODEL, [], methods=("fine-tune",), seeds=(0,), skip_bad=True, **shared).failures


def test_samples_of_the_users_own_sequence_are_checked_as_well(task):
    class Inputs(list):
        def __getitem__(self, row):
            if row == 3:
                raise KeyError("gone")
            return super().__getitem__(row)

    splits = {**task.splits, "test": Split(Inputs(task.test.inputs), task.test.targets)}
    broken = Task("own", "classification", "array", task.target_names, splits, "own")
    with pytest.raises(TaskError, match=r"sample 3 \(KeyError: 'gone'\)"):
        read_through(broken)
    assert len(read_through(broken, skip_bad=True).test) == len(task.test) - 1


@pytest.fixture
def decoded(monkeypatch):
    """The images that were decoded, by row."""
    found, read = [], Images.read
    monkeypatch.setattr(Images, "read", lambda images, row: (found.append((id(images), row)), read(images, row))[1])
    return found


def test_a_run_decodes_every_image_once(folder, decoded):
    """For the look at every sample, the linear probe, the epochs, the validations and the test."""
    options = {**OPTIONS, "augment": "standard", "linear_probe": True, "validate_every_epochs": 0.5, "epochs": 3}
    task = Task.from_image_folder(folder)
    decoded.clear()
    tune(task, MODEL, **options)
    assert len(decoded) == len(set(decoded)) == sum(map(len, task.splits.values()))
    tune(task, MODEL, **options, seed=1)
    assert len(decoded) == len(set(decoded))
    tune(task, MODEL, **options, data_in_memory=False)
    assert len(decoded) > 5 * len(set(decoded))


@pytest.mark.parametrize("workers", [0, 2])
def test_kept_images_give_the_result_of_streamed_ones(folder, workers):
    options = {**OPTIONS, "augment": "standard", "workers": workers, "linear_probe": True}
    streamed, kept = (
        tune(Task.from_image_folder(folder), MODEL, **options, data_in_memory=in_memory) for in_memory in (False, None)
    )
    for name, value in weights_of(streamed.backbone).items():
        assert torch.equal(value, weights_of(kept.backbone)[name])
    assert streamed.metric("test") == kept.metric("test")
    assert streamed.tuning_run().probes == kept.tuning_run().probes


def test_a_comparison_decodes_every_image_once(folder, decoded):
    task = Task.from_image_folder(folder)
    decoded.clear()
    options = {name: value for name, value in OPTIONS.items() if name != "method"}
    compare(task, MODEL, (MODEL,), methods=("fine-tune", "kd"), seeds=(0, 1), **options)
    assert len(decoded) == len(set(decoded))


def test_what_was_decoded_goes_with_its_task(folder):
    task = Task.from_image_folder(folder)
    kept = weakref.ref(decoded_once(task).train.inputs)
    assert kept() is decoded_once(task).train.inputs
    del task
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("in_memory", [None, True])
def test_pixels_are_not_in_memory_twice_where_all_data_is(folder, in_memory):
    """What the network takes is held; the pixels that it was made of are needed where batches are made of them."""
    task = Task.from_image_folder(folder)
    tuned = tune(task, MODEL, data_in_memory=in_memory, **OPTIONS | {"augment": "standard"})
    kept = decoded_once(task, in_memory)
    sizes = {name: len(split.inputs.pixels) for name, split in kept.splits.items()}
    assert sizes == {name: 0 if in_memory else len(split) for name, split in task.splits.items()}
    again = tune(task, MODEL, data_in_memory=in_memory, **OPTIONS | {"augment": "standard"})
    for name, value in weights_of(tuned.backbone).items():
        assert torch.equal(weights_of(again.backbone)[name], value)
    assert sum(len(split.inputs.pixels) for split in decoded_once(task).splits.values()) == sum(sizes.values())
