from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hubscout.hubs import Backbone, Identifier, load
from hubscout.hubs.model_objects import wrap
from hubscout.ranking import latency as module
from hubscout.ranking import rank
from hubscout.ranking.latency import Latency, measure_latency
from hubscout.tasks import Task

SAMPLE = np.zeros(20, dtype=np.float32)


@pytest.fixture
def backbone(zoo: str) -> Backbone:
    return load(f"python:{zoo}:look?first=0&last=4")


@pytest.fixture
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_seconds_waited", lambda: 0.0)


def sleeping(backbone: Backbone, seconds: list[float]) -> None:
    """Make each forward pass take the next of these times; the last of them from then on."""

    def sleep(*_: object) -> None:
        time.sleep(seconds.pop(0) if len(seconds) > 1 else seconds[0])

    assert backbone.module is not None
    backbone.module.register_forward_pre_hook(sleep)


def test_a_slow_network_is_measured_as_slow(backbone: Backbone) -> None:
    quick = measure_latency(backbone, SAMPLE)
    sleeping(backbone, [0.05])
    slow = measure_latency(backbone, SAMPLE)
    assert 0 < quick.seconds < slow.seconds
    assert 0.05 <= slow.seconds < 0.5


def test_the_shortest_of_several_runs_counts(backbone: Backbone, nobody_waits: None) -> None:
    """Most runs meet other work on the machine; one of the five does not."""
    sleeping(backbone, [0.0, 0.2, 0.15, 0.2, 0.15, 0.02, 0.2, 0.15])
    found = measure_latency(backbone, SAMPLE)
    assert 0.02 <= found.seconds < 0.1
    assert found.busy


def test_even_runs_on_a_machine_that_is_free_are_not_marked(backbone: Backbone, nobody_waits: None) -> None:
    sleeping(backbone, [0.06])
    assert not measure_latency(backbone, SAMPLE).busy


def test_runs_that_agree_are_enough(backbone: Backbone, nobody_waits: None) -> None:
    assert module._wants_more([0.0100, 0.0101])
    assert not module._wants_more([0.0100, 0.0101, 0.0101])
    assert module._wants_more([0.0100, 0.0101, 0.0104])
    assert module._wants_more([0.0100, 0.0101, 0.0104, 0.02, 0.02, 0.02, 0.02])
    assert not module._wants_more([0.02, 0.0101, 0.02, 0.0101, 0.0100])


def test_other_threads_are_marked_and_not_waited_for(
    backbone: Backbone, nobody_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, a thread that opens the next model takes the interpreter from the one that launches kernels."""
    passes: list[None] = []
    assert backbone.module is not None
    backbone.module.register_forward_hook(lambda *_: passes.append(None))
    sleeping(backbone, [0.0] + [0.01 * factor for factor in range(20, 1, -1)])  # they never agree
    spent = iter(np.arange(0.0, 100.0, 0.1))
    monkeypatch.setattr(module, "_seconds_of_others", lambda device: next(spent))
    assert measure_latency(backbone, SAMPLE).busy
    assert len(passes) == 1 + 5


def test_a_device_that_other_processes_have_as_well_is_not_waited_for(backbone: Backbone, nobody_waits: None) -> None:
    passes: list[None] = []
    assert backbone.module is not None
    backbone.module.register_forward_hook(lambda *_: passes.append(None))
    sleeping(backbone, [0.0] + [0.01 * factor for factor in range(20, 1, -1)])  # they never agree
    measure_latency(backbone, SAMPLE, shared=True)
    assert len(passes) == 1 + 5


def test_the_work_of_other_threads_is_seen() -> None:
    def work() -> None:
        while time.thread_time() < 0.05:
            sum(range(1000))

    before = module._seconds_of_others("cuda")
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert 0.04 < module._seconds_of_others("cuda") - before < 1
    assert module._seconds_of_others("cpu") == 0


def test_waiting_for_a_processor_is_marked(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeping(backbone, [0.06])
    waited = iter([1.0, 1.2])
    monkeypatch.setattr(module, "_seconds_waited", lambda: next(waited))
    assert measure_latency(backbone, SAMPLE).busy


def test_a_very_slow_network_is_not_waited_for(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST", 0.1)
    sleeping(backbone, [0.08])
    assert backbone.module is not None
    passes: list[None] = []
    backbone.module.register_forward_hook(lambda *_: passes.append(None))
    measure_latency(backbone, SAMPLE)
    assert len(passes) < 6


def test_the_mode_of_the_network_is_left_as_it_was(backbone: Backbone) -> None:
    assert backbone.module is not None
    backbone.module.train()
    measure_latency(backbone, SAMPLE)
    assert backbone.module.training


def test_a_better_earlier_measurement_stays(
    array_task: Task, zoo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = f"python:{zoo}:look?first=0&last=4"
    found = iter([Latency(0.01), Latency(3.0, busy=True), Latency(0.005), Latency(0.002)])
    monkeypatch.setattr("hubscout.ranking.assess.measure_latency", lambda *_, **__: next(found))

    def again() -> tuple[float | None, bool]:
        row = rank(array_task, model, out=tmp_path / "run", cache=tmp_path / "cache", overwrite=True).best
        return row.latency_seconds, row.latency_busy

    assert again() == (0.01, False)
    assert again() == (0.01, False)
    assert again() == (0.005, False)
    record = json.loads((tmp_path / "run" / "ranking.json").read_text())
    record["environment"]["processor"] = "another one"
    record["rows"][0]["latency_seconds"] = 0.001
    (tmp_path / "run" / "ranking.json").write_text(json.dumps(record))
    assert again() == (0.002, False)


def test_growing_subsets_keep_the_best_measurement(
    array_task: Task, zoo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([Latency(0.01), Latency(0.03), Latency(0.02), Latency(0.04)])
    monkeypatch.setattr("hubscout.ranking.assess.measure_latency", lambda *_, **__: next(found))
    models = [f"python:{zoo}:look?first=0&last=4", f"python:{zoo}:look?first=0&last=4&seed=1"]
    ranking = rank(array_task, models, cache=tmp_path, progressive=True)
    assert len(ranking.stages) > 1
    assert sorted(row.latency_seconds or 0 for row in ranking) == [0.01, 0.03]


@pytest.mark.parametrize("channels_last", [False, True])
def test_an_image_comes_in_the_layout_of_the_weights(channels_last: bool) -> None:
    """Images are prepared with their colours side by side: a GPU would compile other kernels for them."""
    network: Any = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network.pretrained_cfg = {"input_size": (3, 8, 8)}
    opened = wrap(network, Identifier.parse("memory:small"))
    assert opened.module is not None
    if channels_last:
        opened.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    seen: list[bool] = []
    opened.module.register_forward_pre_hook(lambda _, given: seen.append(given[0].is_contiguous()))
    measure_latency(opened, np.zeros((8, 8, 3), dtype=np.uint8))
    assert seen
    assert set(seen) == {not channels_last}


def test_machines_are_alike_where_nobody_knows_the_threads() -> None:
    """Who waits for workers does not."""
    here = {"processor": "one", "cores": 2, "threads": 2}
    assert module.same_machine(here, {**here, "threads": None})
    assert module.same_machine({"processor": "one", "cores": 2}, here)
    assert not module.same_machine(here, {**here, "threads": 1})
    assert not module.same_machine(here, {**here, "accelerators": ["NVIDIA H200"], "threads": None})
