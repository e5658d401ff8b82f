from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hubscout.errors import InputError
from hubscout.runs import run_folder
from hubscout.runs.run_folder import check_folder, describe_environment, package_versions


def test_without_a_wish_every_folder_will_do(tmp_path: Path) -> None:
    for out in (None, tmp_path, tmp_path / "new"):
        check_folder(out, "ranking.json", resume=False, overwrite=False)
        check_folder(out, "ranking.json", resume=False, overwrite=True)


def test_what_is_resumed_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run to resume"):
        check_folder(tmp_path, "ranking.json", "steps/*.pt", resume=True, overwrite=False)
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "1.pt").touch()
    check_folder(tmp_path, "ranking.json", "steps/*.pt", resume=True, overwrite=False)
    with pytest.raises(InputError, match="needs the folder"):
        check_folder(None, "ranking.json", resume=True, overwrite=False)


def test_one_cannot_have_both(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exclude each other"):
        check_folder(tmp_path, "ranking.json", resume=True, overwrite=True)


def test_it_says_what_a_run_was_made_with() -> None:
    record = json.loads(json.dumps(describe_environment(device="cpu")))
    assert record["device"] == "cpu"
    assert record["cores"] >= 1
    assert record["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record["packages"]["numpy"]
    assert package_versions(("numpy", "no-such-package")).keys() == {"numpy"}


def test_versions_are_read_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    before = package_versions()

    def read(name: str) -> str:
        raise AssertionError(f"the files of {name} were read again")

    monkeypatch.setattr(run_folder, "version", read)
    assert package_versions() == before


def test_looking_does_not_load_torch() -> None:
    code = (
        "import sys; from hubscout.runs.run_folder import describe_environment; describe_environment();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_gpu_that_cannot_be_started_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch counts those that the system knows of, also where their driver is too old for it."""
    import torch

    def fail(device: int) -> str:
        raise RuntimeError("The NVIDIA driver on your system is too old")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", fail)
    assert "accelerators" not in describe_environment()


@pytest.mark.parametrize(
    ("by_driver", "by_torch", "named"),
    [
        (["H200", "H200"], ["?", "?"], ["H200", "H200"]),
        (["A6000", "H200"], ["H200", "A6000"], ["H200", "A6000"]),
        (["H200", "H200"], ["H200"], ["H200"]),
        ([], ["MI300"], ["MI300"]),
    ],
    ids=["all the same", "an order of torch's own", "torch sees one of them", "another maker's"],
)
def test_gpus_are_named_as_torch_numbers_them(
    monkeypatch: pytest.MonkeyPatch, by_driver: list[str], by_torch: list[str], named: list[str]
) -> None:
    """It is only asked where the driver cannot tell: it waits for a GPU that starts."""
    import torch

    monkeypatch.setattr(run_folder, "_gpus_by_driver", lambda: by_driver)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(by_torch))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda place: by_torch[place])
    assert describe_environment()["accelerators"] == named


def test_without_torch_the_driver_names_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where models run in workers."""
    for place, name in (("0000:4e:00.0", "NVIDIA H200"), ("0000:19:00.0", "NVIDIA RTX A6000")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 45\nVideo BIOS: \t ??\n")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert run_folder._gpus_by_driver(tmp_path) == ["NVIDIA RTX A6000", "NVIDIA H200"]
    assert run_folder._gpus_by_driver(tmp_path / "none") == []
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(run_folder, "_gpus_by_driver", lambda: ["NVIDIA H200"])
    assert describe_environment()["accelerators"] == ["NVIDIA H200"]
    monkeypatch.undo()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert run_folder._gpus_by_driver(tmp_path) == []
