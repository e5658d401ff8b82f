from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hubscout.features import feature_keys
from hubscout.hubs import Backbone, load
from hubscout.ranking import load_ahead as module
from hubscout.ranking import rank
from hubscout.ranking.candidates import Candidate
from hubscout.ranking.load_ahead import LoadAhead, PlaceAhead
from hubscout.runs.events import Event, Message
from hubscout.tasks import Task


class Slow(Candidate):
    """Says when it is opened, and by which thread."""

    opened: dict[str, threading.Event]
    threads: dict[str, str]

    def open(self, observer: Any = None) -> Backbone:
        if observer is not None:
            observer(Message("whatever the hub calls it", "here it comes"))
        self.threads[self.identifier] = threading.current_thread().name
        self.opened.setdefault(self.identifier, threading.Event()).set()
        if "broken" in self.identifier:
            raise RuntimeError("these weights are cursed")
        return load(self.identifier)


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda: 64 << 30)
    monkeypatch.setattr(module, "_AHEAD", 6)


@pytest.fixture
def names(zoo: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names = [f"python:{zoo}:look?first={first}&last=8" for first in range(3)]
    names.insert(1, f"python:{zoo}:broken")
    monkeypatch.setattr(Slow, "opened", {name: threading.Event() for name in names}, raising=False)
    monkeypatch.setattr(Slow, "threads", {}, raising=False)
    return names


def test_the_next_ones_are_opened_while_this_one_runs(names: list[str], zoo: str) -> None:
    names += [f"python:{zoo}:look?first={first}&last=9" for first in range(3)]
    last = f"python:{zoo}:look?first=3&last=8"
    candidates = [Slow(name) for name in (*names, last)]
    heard: list[Event] = []
    with LoadAhead(candidates, heard.append) as ahead:
        assert ahead.open(candidates[0]).card.params
        assert Slow.opened.setdefault(names[6], threading.Event()).wait(60)  # nobody has asked for it yet
        assert last not in Slow.opened
        with pytest.raises(RuntimeError, match="cursed"):
            ahead.open(candidates[1])
        for candidate in candidates[2:]:
            ahead.open(candidate)
    assert {Slow.threads[name] for name in (*names[1:], last)} == {"hubscout-load-ahead_0"}
    assert [event.model for event in heard] == [*names[1:], last]


def test_what_is_to_be_done_at_last_is_done_beside_the_last_models(names: list[str]) -> None:
    done: list[str] = []
    candidates = [Candidate(names[0]), *(Candidate(f"{names[0]}&seed={seed}") for seed in range(7))]
    with LoadAhead(candidates, at_last=lambda: done.append(threading.current_thread().name)) as ahead:
        ahead.open(candidates[0])
        ahead._thread.submit(int).result()
        assert not done  # the eighth is not opened yet
        for candidate in candidates[1:]:
            ahead.open(candidate)
    assert done == ["hubscout-load-ahead_0"]


SAVING = """
import sys, threading
from hubscout.ranking import rank
from hubscout.runs import ranking_storage as storage
work = storage._save_table
def save(*given):
    print("pyarrow.parquet" in sys.modules, threading.active_count())
    work(*given)
storage._save_table = save
data = [[float(row % 2)] * 20 for row in range(40)], ["a", "b"] * 20
rank(data, sys.argv[2:], device="cpu", load_ahead=sys.argv[1] == "ahead", progress=False, measure_latency=False,
     cache=False, out="run")
"""


@pytest.mark.parametrize("ahead", ["ahead", ""])
def test_saving_a_ranking_finds_its_libraries_where_models_are_opened_ahead(
    names: list[str], tmp_path: Path, ahead: str
) -> None:
    pytest.importorskip("pyarrow")
    given = [sys.executable, "-c", SAVING, ahead, names[0], names[2]]
    done = subprocess.run(given, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.stdout.split() == [str(bool(ahead)), "1"], done.stderr
    assert (tmp_path / "run" / "scores.parquet").exists()


class OnProcessor:
    """Streams of a GPU that is the processor."""

    device = torch.device("cpu")

    def __init__(self, device: str = "") -> None: ...
    def synchronize(self) -> None: ...


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> PlaceAhead:
    for name in ("Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, OnProcessor)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8 << 30, 8 << 30))
    return PlaceAhead("cuda")


def test_a_network_is_brought_to_the_gpu_with_its_digest(
    names: list[str], place: PlaceAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = load(names[0])
    assert place(backbone)
    expected = feature_keys.identity(load(names[0]))
    monkeypatch.setattr(feature_keys, "network_digest", lambda *_: pytest.fail("it is known"))
    assert feature_keys.identity(backbone) == expected


def test_one_that_takes_much_of_its_memory_waits(
    names: list[str], place: PlaceAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = load(names[0])
    monkeypatch.setattr(backbone, "to", lambda device: pytest.fail("there is no room"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 8 << 30))
    assert not place(backbone)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8 << 30, 8 << 30))
    backbone.card = replace(backbone.card, bytes=1 << 29)
    assert not place(backbone)


@pytest.mark.parametrize("where", ["to", "digest"])
def test_memory_that_does_not_suffice_is_no_failure_of_the_model(
    names: list[str], place: PlaceAhead, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    backbone = load(names[0])
    moved: list[str] = []

    def to(device: str) -> Backbone:
        moved.append(device)
        if where == "to" and len(moved) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return backbone

    def digest(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(backbone, "to", to)
    if where == "digest":
        monkeypatch.setattr(module, "digest_ahead", digest)
    assert not place(backbone)
    assert len(moved) == 2
    assert moved[-1] == "cpu"
    monkeypatch.setattr(backbone, "to", lambda device: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        place(backbone)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_its_networks_there(names: list[str], array_task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [names[0], *(f"{names[0]}&seed={seed}" for seed in range(4))]
    placed: list[str] = []
    work = PlaceAhead.__call__

    def call(self: PlaceAhead, backbone: Backbone) -> bool:
        done = work(self, backbone)
        placed.extend({str(tensor.device) for tensor in backbone.module.parameters()})  # type: ignore[union-attr]
        return done

    monkeypatch.setattr(PlaceAhead, "__call__", call)
    ahead = rank(array_task, names, device="cuda", cache=False, measure_latency=False, progress=False)
    assert placed == ["cuda:0"] * 4
    alone = rank(array_task, names, device="cuda", cache=False, measure_latency=False, progress=False, load_ahead=False)
    assert [row.score for row in ahead] == [row.score for row in alone]


def test_the_digest_of_a_network_is_worked_out_ahead_once(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = [Candidate(names[0]), Candidate(names[2])]
    with LoadAhead(candidates) as ahead:
        ahead.open(candidates[0])
        backbone = ahead.open(candidates[1])
    with monkeypatch.context() as patched:
        patched.setattr(feature_keys, "network_digest", lambda *_: pytest.fail("it is known"))
        found = feature_keys.identity(backbone)
    assert found == feature_keys.identity(load(names[2])) == feature_keys.identity(backbone)
    with torch.no_grad():
        next(backbone.module.parameters()).add_(1)  # type: ignore[union-attr]
    assert feature_keys.identity(backbone) != found


def test_where_memory_may_not_hold_two_it_waits(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda: 1 << 30)
    candidates = [Slow(names[0]), Slow(names[2])]
    with LoadAhead(candidates) as ahead:
        ahead.open(candidates[0])
        assert not Slow.opened[names[2]].is_set()
        ahead.open(candidates[1])
    assert set(Slow.threads.values()) == {threading.current_thread().name}


def test_a_model_in_memory_is_not_opened_ahead(names: list[str]) -> None:
    ready = Candidate("ready", load(names[0]))
    with LoadAhead([Slow(names[2]), ready]) as ahead:
        ahead.open(Slow(names[2]))
        assert ahead.open(ready) is ready.backbone


def test_the_ranking_is_the_same_to_the_last_bit(
    array_task: Task, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    work = LoadAhead._open_ahead
    monkeypatch.setattr(
        LoadAhead, "_open_ahead", lambda self, model: (begun.append(model.identifier), work(self, model))[1]
    )
    one_by_one = rank(array_task, names, cache=tmp_path / "a", measure_latency=False, device="cpu")
    assert not begun  # on a CPU
    ahead = rank(array_task, names, cache=tmp_path / "b", measure_latency=False, load_ahead=True, device="cpu")
    assert begun == names[1:]
    assert [(row.identifier, row.score, row.block_scores) for row in ahead] == [
        (row.identifier, row.score, row.block_scores) for row in one_by_one
    ]
    assert [failure.identifier for failure in ahead.failures] == [names[1]]
    assert ahead.failures == one_by_one.failures
