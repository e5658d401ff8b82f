"""Pages of weights that are a file: they leave the process, and their numbers do not change."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from hubscout.features.feature_keys import tensors_digest
from hubscout.hubs.cost import fingerprint
from hubscout.hubs.mapped_weights import MappedFiles, let_go_of_pages, unchanged_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mappings are looked up in /proc")


@pytest.fixture
def mapped(tmp_path: Path) -> nn.Module:
    """A network whose weights are the file that was opened."""
    save_file({"weight": torch.arange(1 << 20).float().reshape(1024, 1024)}, tmp_path / "model.safetensors")
    network = nn.Linear(1024, 1024, bias=False)
    network.weight = nn.Parameter(load_file(tmp_path / "model.safetensors")["weight"], requires_grad=False)
    return network


def resident_kilobytes(folder: Path) -> int:
    """Of files of a folder in this process."""
    report = Path("/proc/self/smaps").read_text()
    return sum(map(int, re.findall(rf"{re.escape(str(folder))}/.*\n(?:.*\n)*?Rss: +(\d+) kB", report)))


def test_pages_leave_the_process_and_come_back(mapped: nn.Module, tmp_path: Path) -> None:
    total = mapped.weight.sum()
    assert resident_kilobytes(tmp_path) >= 4096
    let_go_of_pages(mapped)
    assert resident_kilobytes(tmp_path) < 1024
    assert mapped.weight.sum() == total


@pytest.mark.parametrize("digest", [fingerprint, tensors_digest])
def test_a_digest_leaves_no_pages_behind(
    mapped: nn.Module, tmp_path: Path, digest: Callable[[dict[str, torch.Tensor]], object]
) -> None:
    own = {"weight": mapped.weight.clone()}
    assert resident_kilobytes(tmp_path) >= 4096
    assert digest({"weight": mapped.weight}) == digest(own)
    assert resident_kilobytes(tmp_path) < 1024
    assert torch.equal(mapped.weight, own["weight"])


@pytest.mark.parametrize("digest", [fingerprint, tensors_digest])
def test_a_digest_has_a_small_part_of_a_large_weight_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: Callable[[dict[str, torch.Tensor]], object]
) -> None:
    save_file({"weight": torch.zeros(6 << 20)}, tmp_path / "model.safetensors")
    weights, let_go, most = load_file(tmp_path / "model.safetensors"), MappedFiles.let_go, []

    def watched(files: MappedFiles, tensor: torch.Tensor) -> None:
        most.append(resident_kilobytes(tmp_path))
        let_go(files, tensor)

    MappedFiles(weights.values()).let_go(weights["weight"])
    monkeypatch.setattr(MappedFiles, "let_go", watched)
    digest(weights)
    assert 0 < max(most) < 10 * 1024


def test_weights_that_were_changed_stay(mapped: nn.Module, tmp_path: Path) -> None:
    mapped.weight[0, 0] = -1.0
    before = mapped.weight.clone()
    let_go_of_pages(mapped)
    assert resident_kilobytes(tmp_path) >= 4096
    assert torch.equal(mapped.weight, before)


def test_weights_in_memory_of_their_own_stay() -> None:
    network = nn.Linear(1024, 1024)
    before = network.weight.clone()
    let_go_of_pages(network)
    let_go_of_pages(None)
    assert torch.equal(network.weight, before)


def test_pages_are_counted_only_where_weights_are_a_file(mapped: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes long to count them: it looks at all pages of the process."""
    read, files = Path.read_text, []
    monkeypatch.setattr(Path, "read_text", lambda file, **how: files.append(file.name) or read(file, **how))
    let_go_of_pages(nn.Linear(1024, 1024))
    assert files == ["maps"]
    let_go_of_pages(mapped)
    assert files == ["maps", "maps", "smaps"]


@pytest.mark.parametrize("own", ["Anonymous", "Private_Hugetlb", "Swap"])
def test_pages_that_were_written_to_are_found_wherever_they_are(own: str) -> None:
    facts = {"Rss": 4, "Anonymous": 0, "Private_Hugetlb": 0, "Swap": 0}

    def report(**facts: int) -> str:
        lines = "".join(f"{name}: {count:>8} kB\n" for name, count in facts.items())
        return f"7f00-7f10 rw-p 00000000 fe:00 12 /model.safetensors\n{lines}VmFlags: rd wr\n"

    assert list(unchanged_files(report(**facts))) == [(0x7F00, 0x7F10)]
    assert list(unchanged_files(report(**{**facts, own: 4}))) == []
