from __future__ import annotations

import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from hub_models import Attack
from safetensors.torch import save_file
from torch import nn

from hubscout.errors import CheckpointError, ModelNotFoundError, UnsafeCheckpointError
from hubscout.hubs.weight_files import (
    find_weights,
    fit_state,
    read_pickled_arrays,
    read_script_tensors,
    read_state,
)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name in found:
        assert torch.equal(found[name], expected[name])


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model", "state_dict_ema"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_torch_files_as_training_scripts_leave_them(tmp_path, wrapper, prefix):
    state = network().state_dict()
    content = {prefix + name: value for name, value in state.items()}
    torch.save({wrapper: content, "epoch": 3, "loss": 0.5} if wrapper else content, tmp_path / "w.pth")
    assert_same(read_state(tmp_path / "w.pth"), state)


def test_averaged_weights_come_before_raw_ones(tmp_path):
    raw, averaged = {"w": torch.zeros(2)}, {"w": torch.ones(2)}
    torch.save({"state_dict": raw, "state_dict_ema": averaged}, tmp_path / "w.pth")
    assert_same(read_state(tmp_path / "w.pth"), averaged)


def test_sharded_safetensors(tmp_path):
    state = network().state_dict()
    names = sorted(state)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: state[name] for name in part}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: file for file, part in shards.items() for name in part}}))
    assert find_weights(tmp_path) == index
    assert_same(read_state(index), state)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"b\.safetensors.*missing"):
        read_state(index)
    index.write_text(json.dumps({"weight_map": {"x": "../elsewhere.safetensors"}}))
    with pytest.raises(UnsafeCheckpointError, match="outside its own folder"):
        read_state(index)


@pytest.mark.parametrize("save", ["pickle", "torch", "old-torch"])
def test_code_in_a_checkpoint_is_refused_and_never_run(tmp_path, save):
    path, executed = tmp_path / "w.pth", tmp_path / "executed"
    content = {"weight": torch.zeros(3), "extra": Attack(executed)}
    if save == "pickle":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=save == "torch")
    with pytest.raises(UnsafeCheckpointError, match="nothing in it was run"):
        read_state(path)
    assert not executed.exists()
    # The same file does run its code when it is opened carelessly: the test would notice.
    pickle.loads(path.read_bytes()) if save == "pickle" else torch.load(path, weights_only=False)
    assert executed.exists()


def test_a_whole_module_is_refused(tmp_path):
    torch.save(network(), tmp_path / "w.pth")
    with pytest.raises(UnsafeCheckpointError, match="state_dict"):
        read_state(tmp_path / "w.pth")


def test_torchscript_is_refused_as_a_checkpoint_but_its_tensors_can_be_read(tmp_path):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Sequential(nn.Linear(4, 2)))
    torch.jit.script(module).save(str(tmp_path / "w.pt"))
    with pytest.raises(UnsafeCheckpointError, match="TorchScript"):
        read_state(tmp_path / "w.pt")
    assert_same(read_script_tensors(tmp_path / "w.pt"), module.state_dict())


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.bin"])
@pytest.mark.parametrize("content", [b"", b"no checkpoint at all", b"PK\x03\x04 cut"])
def test_files_that_are_no_checkpoints(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        read_state(tmp_path / name)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth"])
def test_a_file_cut_short(tmp_path, name):
    state = {"w": torch.randn(100, 100)}
    save_file(state, tmp_path / name) if name.endswith("safetensors") else torch.save(state, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=name):
        read_state(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ModelNotFoundError, match="No checkpoint at"):
        read_state(tmp_path / "w.pth")
    with pytest.raises(ModelNotFoundError, match="No weights"):
        find_weights(tmp_path)


def test_every_fault_of_a_checkpoint_is_listed():
    state = network().state_dict()
    state["2.weight"] = torch.zeros(5, 4)
    del state["0.bias"]
    state["head.bias"] = torch.zeros(1)
    with pytest.raises(CheckpointError) as caught:
        fit_state(network(), state, source="w.pth")
    message = str(caught.value)
    assert "2.weight is (5, 4) in the file and (2, 4) in the model" in message
    assert "1 parameters are missing: 0.bias" in message
    assert "1 do not belong: head.bias" in message


def test_weights_are_loaded_in_float32_whatever_the_file_holds():
    module = network()
    half = {name: value.half() if value.is_floating_point() else value for name, value in module.state_dict().items()}
    other = network()
    fit_state(other, half, source="w.pth")
    assert all(parameter.dtype == torch.float32 for parameter in other.parameters())


class Shell:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("form", ["torch", "old-torch", *range(6)])
def test_a_refused_pickle_says_what_it_would_have_called(tmp_path, form):
    path, executed = tmp_path / "w.pth", tmp_path / "executed"
    content = {"weight": torch.zeros(3), "extra": Shell(f"touch {executed}")}
    if isinstance(form, int):
        path.write_bytes(pickle.dumps({"extra": content["extra"]}, protocol=form))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "torch")
    with pytest.raises(UnsafeCheckpointError, match=r"would call os\.system") as told:
        read_state(path)
    assert "not a checkpoint" not in str(told.value)
    with pytest.raises(UnsafeCheckpointError, match=r"would call os\.system"):
        read_pickled_arrays(path) if isinstance(form, int) else read_state(path)
    assert not executed.exists()
    pickle.loads(path.read_bytes()) if isinstance(form, int) else torch.load(path, weights_only=False)
    assert executed.exists(), "the attack must work, or this test proves nothing"


def test_a_pickle_that_hides_its_names_in_the_memo(tmp_path):
    # The strings come long before the call, as a careful attacker would have it.
    hidden = b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x9400h\x00h\x01\x93\x8c\x04true\x85R."
    (tmp_path / "w.pth").write_bytes(hidden)
    with pytest.raises(UnsafeCheckpointError, match=r"would call os\.system"):
        read_state(tmp_path / "w.pth")


def test_pickled_arrays_and_nothing_else(tmp_path):
    arrays = {"Conv_0": {"kernel": np.arange(6.0).reshape(2, 3)}}
    (tmp_path / "ok.ckpt").write_bytes(pickle.dumps(arrays))
    np.testing.assert_array_equal(read_pickled_arrays(tmp_path / "ok.ckpt")["Conv_0"]["kernel"], [[0, 1, 2], [3, 4, 5]])
    (tmp_path / "bad.ckpt").write_bytes(pickle.dumps({"Conv_0": Attack(tmp_path / "executed")}))
    with pytest.raises(UnsafeCheckpointError, match="only NumPy arrays"):
        read_pickled_arrays(tmp_path / "bad.ckpt")
    assert not (tmp_path / "executed").exists()


def test_script_archives_with_other_types_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps(Attack(tmp_path / "executed"), protocol=2))
    with pytest.raises(UnsafeCheckpointError, match="only tensors"):
        read_script_tensors(tmp_path / "w.pt")
    assert not (tmp_path / "executed").exists()
