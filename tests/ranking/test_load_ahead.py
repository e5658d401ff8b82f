"""The next model is opened while this one runs; errors and results stay with their model."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from hubscout.hubs import Backbone, load
from hubscout.ranking import load_ahead, rank
from hubscout.ranking.candidates import Candidate
from hubscout.ranking.load_ahead import LoadAhead
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
    monkeypatch.setattr(load_ahead, "free_bytes", lambda: 64 << 30)


@pytest.fixture
def names(zoo: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names = [f"python:{zoo}:look?first={first}&last=8" for first in range(3)]
    names.insert(1, f"python:{zoo}:broken")
    monkeypatch.setattr(Slow, "opened", {name: threading.Event() for name in names}, raising=False)
    monkeypatch.setattr(Slow, "threads", {}, raising=False)
    return names


def test_the_next_one_is_opened_while_this_one_runs(names: list[str]) -> None:
    candidates = [Slow(name) for name in names]
    heard: list[Event] = []
    with LoadAhead(candidates, heard.append) as ahead:
        assert ahead.open(candidates[0]).card.params
        assert Slow.opened[names[1]].wait(60)  # nobody has asked for it yet
        assert not Slow.opened[names[2]].is_set()
        with pytest.raises(RuntimeError, match="cursed"):
            ahead.open(candidates[1])
        ahead.open(candidates[2])
    assert Slow.threads[names[1]] == Slow.threads[names[3]] == "hubscout-load-ahead"
    assert Slow.threads[names[2]] == threading.current_thread().name  # the one before it could not be opened
    assert [event.model for event in heard] == [names[1], names[3]]


def test_where_memory_may_not_hold_two_it_waits(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_ahead, "free_bytes", lambda: 1 << 30)
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
    work = load_ahead._Opening._work
    monkeypatch.setattr(
        load_ahead._Opening, "_work", lambda self: (begun.append(self.candidate.identifier), work(self))[1]
    )
    one_by_one = rank(array_task, names, cache=tmp_path / "a", measure_latency=False, device="cpu")
    assert not begun  # on a CPU
    ahead = rank(array_task, names, cache=tmp_path / "b", measure_latency=False, load_ahead=True)
    assert begun == [names[1], names[3]]
    assert [(row.identifier, row.score, row.block_scores) for row in ahead] == [
        (row.identifier, row.score, row.block_scores) for row in one_by_one
    ]
    assert [failure.identifier for failure in ahead.failures] == [names[1]]
    assert ahead.failures == one_by_one.failures
