"""The cache behind a URL, on stores that need no network."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

from hubscout.errors import CacheError, InputError
from hubscout.features import extract
from hubscout.features.cache import FeatureCache
from hubscout.features.remote_cache import RemoteFeatureCache, open_cache
from hubscout.hubs import Backbone, load
from hubscout.runs.events import Event, Message
from hubscout.tasks import Task

NETWORK = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(12, 6), nn.ReLU())
    network.num_features = 6
    return network
"""


@pytest.fixture
def task() -> Task:
    generator = np.random.default_rng(0)
    return Task.from_arrays(generator.standard_normal((900, 12)).astype(np.float32), ["a", "b", "c"] * 300)


@pytest.fixture
def backbone(tmp_path: Path) -> Backbone:
    (tmp_path / "network.py").write_text(NETWORK)
    return load(f"python:{tmp_path}/network.py:make")


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield f"memory://features-{tmp_path.name}" if request.param == "memory" else f"file://{tmp_path}/features"
    fsspec.filesystem("memory").store.clear()


def shards_at(url: str) -> list[str]:
    system, path = fsspec.core.url_to_fs(url)
    return sorted(name for name in system.find(path) if name.endswith(".safetensors"))


def test_features_come_back_as_they_went(task: Task, backbone: Backbone, url: str) -> None:
    plain = extract(backbone, task)
    cache = open_cache(url)
    assert isinstance(cache, RemoteFeatureCache)
    first = extract(backbone, task, cache=cache)
    again = extract(backbone, task, cache=pickle.loads(pickle.dumps(cache)))
    assert (first.from_cache, again.from_cache) == (False, True)
    assert again.samples_per_second == first.samples_per_second
    np.testing.assert_array_equal(again.features(), plain.features())
    np.testing.assert_array_equal(again.statistics[""].total().gram, plain.statistics[""].total().gram)
    assert len(shards_at(url)) == 3


def test_shards_of_different_workers_meet(task: Task, backbone: Backbone, url: str) -> None:
    extract(backbone, task, cache=open_cache(url), shards=[2])
    extract(backbone, task, cache=open_cache(url), shards=[0])
    events: list[Event] = []
    whole = extract(backbone, task, cache=open_cache(url), observer=events.append)
    assert not whole.from_cache
    np.testing.assert_array_equal(whole.features(), extract(backbone, task).features())
    assert extract(backbone, task, cache=open_cache(url)).from_cache


@pytest.mark.parametrize("damage", ["cut", "record", "gone", "unfinished"])
def test_what_is_broken_is_made_again(task: Task, backbone: Backbone, url: str, damage: str) -> None:
    extract(backbone, task, cache=open_cache(url))
    system, _ = fsspec.core.url_to_fs(url)
    shard = shards_at(url)[1]
    record = shard.replace(".safetensors", ".json")
    if damage == "cut":
        system.pipe_file(shard, system.cat_file(shard)[:-40])
    elif damage == "gone":
        system.rm_file(shard)
    elif damage == "unfinished":
        system.rm_file(record)
    else:
        system.pipe_file(record, b'{"file": "../../etc/passwd"}')
    events: list[Event] = []
    found = extract(backbone, task, cache=open_cache(url), observer=events.append)
    np.testing.assert_array_equal(found.features(), extract(backbone, task).features())
    assert not found.from_cache
    assert any("made again" in event.text for event in events if isinstance(event, Message)) == (
        damage in ("cut", "gone")
    )
    assert json.loads(system.cat_file(record))["file"] == shard.rpartition("/")[2]
    assert extract(backbone, task, cache=open_cache(url)).from_cache


def test_a_store_that_fails_does_not_end_the_run(
    task: Task, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError("403 Forbidden")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    events: list[Event] = []
    found = extract(backbone, task, cache=open_cache("memory://locked"), observer=events.append)
    np.testing.assert_array_equal(found.features(), extract(backbone, task).features())
    assert any("403" in event.text for event in events if isinstance(event, Message))


def test_the_password_of_a_store_is_told_to_nobody(
    task: Task, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(system: object, path: str, *arguments: object, **options: object) -> None:
        raise PermissionError(f"403 Forbidden: {path}")

    cache = open_cache("memory://me:s3cret@locked")
    assert "s3cret" not in f"{cache!r} {cache.root}"
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    events: list[Event] = []
    extract(backbone, task, cache=cache, observer=events.append)
    told = [event.text for event in events if isinstance(event, Message)]
    assert any("403" in text for text in told)
    assert not any("s3cret" in text for text in told), told


def test_names(tmp_path: Path) -> None:
    assert type(open_cache(tmp_path)) is FeatureCache
    with pytest.raises(InputError, match="s3://"):
        RemoteFeatureCache("/folder")
    with pytest.raises(InputError, match="tools of the store"):
        RemoteFeatureCache("memory://a").entries()
    with pytest.raises(CacheError, match="nothing"), RemoteFeatureCache("nothing://a").open(
        {"model": "m"}, (), print, shards_expected=1
    ):  # fmt: skip
        pass
