"""Pickles are read as data, and what they would have called is named."""

from __future__ import annotations

import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from hub_models import Attack

from hubscout.errors import UnsafeCheckpointError
from hubscout.hubs.inert_pickle import read_pickled_arrays, read_script_tensors
from hubscout.hubs.weight_files import read_state


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
