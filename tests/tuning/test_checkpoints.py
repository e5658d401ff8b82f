from __future__ import annotations

import signal

import pytest
import torch
from tuning_networks import perceptron, weights_of

from hubscout.errors import CheckpointError
from hubscout.runs.events import silent
from hubscout.tuning import TuningArguments, tune
from hubscout.tuning.checkpoints import Checkpoints, differences
from hubscout.tuning.single_run import SingleRun

OPTIONS = {"epochs": 3, "batch_size": 16, "method": "fine-tune", "keep_checkpoints": 3}


def flipped(data):
    """One bit of a weight in the middle of the file."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


DAMAGES = {
    "flipped": flipped,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 3],
    "lengthened": lambda data: data + b"\0",
}


def resumed_after(task, folder, damage, count):
    """The run in one go; the same with its last `count` checkpoints damaged, and resumed."""
    whole = tune(task, perceptron(0), out=folder / "whole", **OPTIONS)
    tune(task, perceptron(0), out=folder / "cut", **OPTIONS)
    files = Checkpoints(folder / "cut" / "checkpoints", {}).files()
    assert len(files) == 3
    for path in files[-count:]:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    resumed = tune(task, perceptron(0), out=folder / "cut", resume=True, **OPTIONS)
    for name, value in weights_of(whole.backbone).items():
        assert torch.equal(value, weights_of(resumed.backbone)[name]), name
    assert torch.equal(whole.head.weight, resumed.head.weight)
    return [note for note in resumed.notes if " is damaged: " in note], files


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_said_and_the_one_before_it_taken(task, tmp_path, damage):
    (note,), files = resumed_after(task, tmp_path, damage, 1)
    assert files[-1].stem in note
    assert f"goes on from {files[-2]}" in note
    assert files[-1].with_suffix(".damaged").is_file()


def test_without_a_whole_checkpoint_a_run_starts_from_the_beginning(task, tmp_path):
    notes, _ = resumed_after(task, tmp_path, "flipped", 3)
    assert len(notes) == 3
    assert all("goes on from the beginning" in note for note in notes)


def test_every_flipped_byte_is_found(tmp_path):
    checkpoints = Checkpoints(tmp_path, {"run": 1})
    path = checkpoints.write(1, {"network": {"w": torch.arange(8.0)}})
    whole = path.read_bytes()
    assert checkpoints.last_whole() == (path, [])
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert checkpoints.last_whole() == (None, [path.with_suffix(".damaged")]), place
    path.write_bytes(whole)
    assert torch.equal(checkpoints.read(path)["network"]["w"], torch.arange(8.0))


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    path = tmp_path / "step-00000001-0123456789abcdef.pt"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Checkpoints(tmp_path, {}).read(path)


def test_a_ctrl_c_while_a_checkpoint_is_written_is_no_error_of_the_file(tmp_path, monkeypatch):
    save, pressed = torch.save, []

    class Writer:
        """Ctrl-C is pressed while torch writes."""

        def __init__(self, file):
            self.file = file

        def write(self, data):
            if not pressed:
                pressed.append(True)
                signal.raise_signal(signal.SIGINT)
            return self.file.write(data)

        def flush(self):
            self.file.flush()

    monkeypatch.setattr(torch, "save", lambda state, file: save(state, Writer(file)))
    checkpoints = Checkpoints(tmp_path, {})
    with pytest.raises(KeyboardInterrupt):
        checkpoints.write(3, {"network": {"weight": torch.ones(1000)}})
    assert pressed
    path, damaged = checkpoints.last_whole()
    assert path is not None
    assert not damaged
    assert torch.equal(checkpoints.read(path)["network"]["weight"], torch.ones(1000))


def test_a_process_that_finds_the_folder_empty_hears_of_checkpoints_from_the_main_one(task, tmp_path):
    """Which may have set the last one aside by then: who does not ask waits for the others at another place."""
    arguments = TuningArguments.of(epochs=1, batch_size=16).settled(task.modality, task.kind)
    run = SingleRun(task, perceptron(0), (), "fine-tune", arguments, tmp_path, None, silent)
    run.shared = lambda function: (None, [tmp_path / "step-00000006.damaged"])
    run.begin(resume=True)
    assert not run.resumed
    assert any("step-00000006.damaged is damaged" in note for note in run.notes)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({}, {"learning_rate": 0.002}, ["learning_rate was left to hubscout and is 0.002"]),
        ({"learning_rate": 0.002}, {}, ["learning_rate was 0.002 and is left to hubscout"]),
        ({"learning_rate": 0.002}, {"learning_rate": 0.004}, ["learning_rate was 0.002 and is 0.004"]),
        (
            {"learning_rate": 0.002},
            {"learning_rate": 0.002, "head_learning_rate": 0.1},
            ["head_learning_rate was 0.02 and is 0.1"],
        ),
        ({"optimizer": "sgd"}, {"optimizer": "adamw"}, ["optimizer was 'sgd' and is 'adamw'"]),
        ({"epochs": 2}, {"steps": 30}, ["epochs was 2 and is not given", "steps was not given and is 30"]),
        ({"seed": 1}, {"seed": 1}, []),
    ],
)
def test_how_two_runs_differ_is_said_of_what_was_given(before, now, told):
    found, wanted = (TuningArguments(**given).settled("image", "classification").decisive() for given in (before, now))
    assert differences(found, wanted) == told


def test_of_data_and_models_no_digits_are_told():
    found = {"task": "80e2", "model": "a/b", "teachers": ["c/d"]}
    told = "; ".join(differences(found, {"task": "61a6", "model": "e/f", "teachers": []}))
    assert told == (
        "the model is another one, or has other weights; the data are others, in train or validation; "
        "the teachers are others, or have other weights"
    )
