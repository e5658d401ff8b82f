"""The cache behind a URL, on stores that need no network."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from hubscout.errors import CacheError, InputError
from hubscout.features import extract
from hubscout.features.feature_cache import FeatureCache
from hubscout.features.feature_keys import Probe
from hubscout.features.shards import ShardData
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
    cache = FeatureCache(url)
    first = extract(backbone, task, cache=cache)
    again = extract(backbone, task, cache=pickle.loads(pickle.dumps(cache)))
    assert (first.from_cache, again.from_cache) == (False, True)
    assert again.samples_per_second == first.samples_per_second
    np.testing.assert_array_equal(again.features(), plain.features())
    np.testing.assert_array_equal(again.statistics[""].total().gram, plain.statistics[""].total().gram)
    assert len(shards_at(url)) == 3


def test_shards_of_different_workers_meet(task: Task, backbone: Backbone, url: str) -> None:
    extract(backbone, task, cache=FeatureCache(url), shards=[2])
    extract(backbone, task, cache=FeatureCache(url), shards=[0])
    events: list[Event] = []
    whole = extract(backbone, task, cache=FeatureCache(url), observer=events.append)
    assert not whole.from_cache
    np.testing.assert_array_equal(whole.features(), extract(backbone, task).features())
    assert extract(backbone, task, cache=FeatureCache(url)).from_cache


@pytest.mark.parametrize("layers", [(), ("0",)])
def test_requests_grow_with_the_shards_alone(
    task: Task, backbone: Backbone, monkeypatch: pytest.MonkeyPatch, layers: tuple[str, ...]
) -> None:
    """Not with their square: 200 shards must not list and fetch 200 records each."""
    from fsspec.implementations.memory import MemoryFileSystem

    calls: Counter[str] = Counter()
    for name in ("ls", "cat_file", "pipe_file", "rm_file", "info", "exists", "makedirs"):
        whole = getattr(MemoryFileSystem, name)

        def counted(*arguments: Any, name: str = name, whole: Any = whole, **options: Any) -> Any:
            calls[name] += 1
            return whole(*arguments, **options)

        monkeypatch.setattr(MemoryFileSystem, name, counted)
    cache = FeatureCache("memory://counted")
    options: dict[str, Any] = {"cache": cache, "shard_rows": 10, "layers": layers}
    shards, folders = len(task.train) // 10, 1 + len(layers)
    extract(backbone, task, **options)
    assert 2 * shards * folders <= calls["pipe_file"] <= (2 * shards + 3) * folders
    assert calls.total() <= (2 * shards + 10) * folders
    calls.clear()
    found = extract(backbone, task, **options)
    found.features()
    assert found.from_cache
    assert calls["ls"] == folders
    assert calls.total() <= (2 * shards + 10) * folders


def shard(index: int, value: float) -> ShardData:
    return ShardData(index, 4 * index + np.arange(4), {"": np.full((4, 3), value, dtype=np.float32)})


def probe_of(value: float) -> Probe:
    return Probe(np.array([0, 4]), {"": np.full((2, 3), value, dtype=np.float32)})


@pytest.mark.parametrize("place", ["folder", "memory"])
@pytest.mark.parametrize("difference", ["rounding", "another model"])
def test_workers_without_a_lock_do_not_mix(tmp_path: Path, place: str, difference: str) -> None:
    """Both opened the entry before either wrote, and both make the first shard: what counts is of one of them."""
    cache = FeatureCache(tmp_path if place == "folder" else f"memory://{tmp_path.name}")
    values = (1.0, 1.0 + 1e-6) if difference == "rounding" else (1.0, 2.0)
    parts = {0: np.arange(4), 1: np.arange(4, 8)}

    def opened() -> Any:
        return cache.open({"model": "m"}, (), print, shard_rows=(4, 4), exclusive=False)

    with opened() as first, opened() as second:
        for worker, value in zip((first, second), values, strict=True):
            worker.check(probe_of(value))
            worker.finished(parts)
        first.put(shard(0, values[0]))
        second.put(shard(0, values[1]))
        first.put(shard(1, values[0]))
        np.testing.assert_array_equal(first.read(0, ""), shard(0, values[0]).arrays[""])
        np.testing.assert_array_equal(second.read(0, ""), shard(0, values[1]).arrays[""])
    said: list[str] = []
    for value, expected in zip(values, ([1], [0]) if difference == "another model" else ([0, 1], [0, 1]), strict=True):
        with cache.open({"model": "m"}, (), said.append, shard_rows=(4, 4)) as entry:
            entry.check(probe_of(value))
            assert list(entry.finished(parts)) == expected
            for index in expected:
                np.testing.assert_allclose(entry.read(index, ""), shard(index, value).arrays[""], rtol=1e-5)
    assert not [text for text in said if "altered" in text]


@pytest.mark.parametrize("damage", ["cut", "record", "gone", "unfinished"])
def test_what_is_broken_is_made_again(task: Task, backbone: Backbone, url: str, damage: str) -> None:
    extract(backbone, task, cache=FeatureCache(url))
    system, _ = fsspec.core.url_to_fs(url)
    shard = shards_at(url)[1]
    record = shard.rpartition("-")[0] + ".json"
    if damage == "cut":
        system.pipe_file(shard, system.cat_file(shard)[:-40])
    elif damage == "gone":
        system.rm_file(shard)
    elif damage == "unfinished":
        system.rm_file(record)
    else:
        system.pipe_file(record, b'{"file": "../../etc/passwd"}')
    events: list[Event] = []
    found = extract(backbone, task, cache=FeatureCache(url), observer=events.append)
    np.testing.assert_array_equal(found.features(), extract(backbone, task).features())
    assert not found.from_cache
    assert any("made again" in event.text for event in events if isinstance(event, Message)) == (
        damage in ("cut", "gone")
    )
    assert json.loads(system.cat_file(record))["file"] == shard.rpartition("/")[2]
    assert extract(backbone, task, cache=FeatureCache(url)).from_cache


def test_a_store_that_fails_does_not_end_the_run(
    task: Task, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError("403 Forbidden")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    events: list[Event] = []
    found = extract(backbone, task, cache=FeatureCache("memory://locked"), observer=events.append)
    np.testing.assert_array_equal(found.features(), extract(backbone, task).features())
    assert any("403" in event.text for event in events if isinstance(event, Message))


def test_the_password_of_a_store_is_told_to_nobody(
    task: Task, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(system: object, path: str, *arguments: object, **options: object) -> None:
        raise PermissionError(f"403 Forbidden: {path}")

    cache = FeatureCache("memory://me:s3cret@locked")
    assert "s3cret" not in f"{cache!r} {cache}"
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    events: list[Event] = []
    extract(backbone, task, cache=cache, observer=events.append)
    told = [event.text for event in events if isinstance(event, Message)]
    assert any("403" in text for text in told)
    assert not any("s3cret" in text for text in told), told


def test_names(tmp_path: Path) -> None:
    assert FeatureCache(f"file://{tmp_path}").root == FeatureCache(tmp_path).root == tmp_path
    with pytest.raises(InputError, match="not a folder of this machine"):
        _ = FeatureCache("memory://a").root
    with pytest.raises(CacheError, match="nothing"):
        FeatureCache("nothing://a").entries()
