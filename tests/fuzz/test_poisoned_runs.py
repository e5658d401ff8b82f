"""Whatever is in one run folder: it says so itself, every other run stands, and a report is a report or one error.

HUBSCOUT_POISONS=5000 tries more than a test run has time for; HUBSCOUT_POISONS_FROM is the first seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import random
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_poison import FILES, poison

from hubscout.errors import HubscoutError
from hubscout.report import open_run, render
from hubscout.tasks import Task

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from hubscout.serve.application import create_app
from hubscout.serve.security import Guard
from hubscout.serve.server import Site, open_site
from hubscout.serve.streams import lines_stream, panel_stream

MANY = int(os.environ.get("HUBSCOUT_POISONS", "30"))
FIRST = int(os.environ.get("HUBSCOUT_POISONS_FROM", "0"))
LONG_AGO = 1_700_000_000
PAGES = (
    "/",
    "/rows",
    "/api/runs",
    "/run/poisoned",
    "/report/poisoned",
    "/api/runs/poisoned",
    "/compare?run=poisoned&run=sound",
    "/run/sound",
)

ZOO = """
from torch import nn


class Part(nn.Module):
    def __init__(self, first, last):
        super().__init__()
        self.num_features = last - first
        self.first, self.last = first, last
        self.layer = nn.Linear(last - first, last - first)

    def forward(self, inputs):
        return self.layer(inputs[:, self.first : self.last])


def part(first, last):
    return Part(first, last)
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real ranking with all its parts and a real comparison of tunings, in one folder."""
    from hubscout.ranking import rank
    from hubscout.tuning.method_comparison import compare

    home = tmp_path_factory.mktemp("sound")
    (home / "zoo.py").write_text(ZOO)
    zoo = f"python:{home / 'zoo.py'}"
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((120, 12)).astype(np.float32)
    labels = np.array(["a", "b", "c"])[inputs[:, :3].argmax(axis=1)]
    task = Task.from_arrays(inputs, labels, name="columns")
    models = [f"{zoo}:part?first={first}&last={first + 4}" for first in (0, 2, 8)]
    folder = home / "run"
    options: dict[str, Any] = {"metrics": ("logme", "etran"), "layers": "all", "progressive": True}
    ranking = rank(task, [*models, f"{zoo}:nothing"], cache=home / "cache", out=folder, **options)
    compare(
        task, models[0], models[1:2], methods=("fine-tune", "b-tuning"), seeds=(0,), out=folder, epochs=2, device="cpu"
    )
    (folder / "reference.csv").write_text("model,accuracy\n" + "".join(f"{row.identifier},0.5\n" for row in ranking))
    request = {"name": "poisoned", "data": "colours", "models": models, "metrics": "logme"}
    note = {"format": "hubscout-serve", "version": 1, "pid": 999_999, "created": 1.0, "host": platform.node()}
    (folder / "serve.json").write_text(json.dumps({**note, "request": request}))
    (folder / "serve.log").write_bytes(b"it said \xff\n")
    return folder


@pytest.fixture
def site(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr("hubscout.serve.streams.POLL_SECONDS", 0.01)
    runs = tmp_path / "runs"
    shutil.copytree(sound, runs / "sound")
    (tmp_path / "data").mkdir()
    return open_site(runs, guard=Guard.make("127.0.0.1", 8765, None), data=tmp_path / "data", models=["timm/x"])


async def whole(stream: AsyncIterator[str]) -> str:
    """A stream to its end, or what came in two seconds of one that waits for a process."""
    found: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            async for message in stream:
                found.append(message)
    return "".join(found)


def old(folder: Path) -> None:
    """Make the files look old: a run that wrote just now counts as running, and its streams wait for more."""
    for path in [folder, *folder.rglob("*")]:
        with contextlib.suppress(OSError):
            os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)


def wrong(site: Site, client: TestClient, said: str) -> list[str]:
    """What is not as it should be while one run is damaged."""
    folder = site.library.folder.path / "poisoned"
    old(folder)
    found = []
    for page in PAGES:
        answer = client.get(page)
        if answer.status_code >= 500:
            found.append(f"{said}: {page} is {answer.status_code}")
        if page in ("/", "/rows", "/api/runs") and not ("poisoned" in answer.text and "sound" in answer.text):
            found.append(f"{said}: {page} does not list both runs")
    for stream in (lines_stream, panel_stream):
        try:
            with ThreadPoolExecutor(1) as pool:  # the browser of other tests may have left its loop in this thread
                pool.submit(asyncio.run, whole(stream(site, "poisoned"))).result().encode("utf-8")
        except Exception as error:
            found.append(f"{said}: {stream.__name__}: {error!r}")
    try:
        render(open_run(folder)).encode("utf-8")
    except HubscoutError as error:
        if "\n" in str(error).strip():
            found.append(f"{said}: an error of several lines: {error}")
    except Exception as error:
        found.append(f"{said}: report: {error!r}")
    return found


@pytest.fixture
def client(site: Site) -> TestClient:
    return TestClient(create_app(site), base_url="http://127.0.0.1:8765", raise_server_exceptions=False)


def test_a_sound_run_is_whole(site: Site, client: TestClient, sound: Path) -> None:
    shutil.copytree(sound, site.library.folder.path / "poisoned")
    assert wrong(site, client, "nothing") == []
    assert [summary.problem for summary in site.library.summaries()] == ["", ""]
    assert {client.get(page).status_code for page in PAGES} == {200}


def test_damaged_fields(site: Site, client: TestClient, sound: Path) -> None:
    found = []
    for seed in range(FIRST, FIRST + MANY):
        said = poison(sound, site.library.folder.path / "poisoned", seed)
        found += wrong(site, client, f"{seed} {said}")
    assert not found, "\n".join(found)


OTHERS = ("events.jsonl", "serve.json", "trials.jsonl", "reference.csv", "fine-tune-0/tuning.json")


@pytest.mark.parametrize("way", sorted(FILES))
def test_damaged_files(site: Site, client: TestClient, sound: Path, way: str) -> None:
    folder = site.library.folder.path / "poisoned"
    for file in ("ranking.json", OTHERS[sorted(FILES).index(way) % len(OTHERS)]):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(sound, folder)
        FILES[way](folder / file, random.Random(0))
        assert wrong(site, client, f"{file}: {way}") == []
        if file == "ranking.json" and way != "gone":
            assert site.library.summary("poisoned").problem
            assert 'class="problem"' in client.get("/rows").text
            assert client.get("/run/poisoned").status_code == 200


@pytest.mark.parametrize(
    ("file", "key", "value", "words"),
    [
        ("ranking.json", "seconds", "long", "seconds must be float"),
        ("ranking.json", "task", 3, "ranking.json"),
        ("fine-tune-0/tuning.json", "arguments", 3, "fine-tune-0: tuning.json"),
        ("fine-tune-0/tuning.json", "best_step", "late", "best_step must be int"),
    ],
)
def test_the_row_of_a_damaged_run_says_what_is_wrong_with_it(
    site: Site, client: TestClient, sound: Path, file: str, key: str, value: object, words: str
) -> None:
    folder = site.library.folder.path / "poisoned"
    shutil.copytree(sound, folder)
    record = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**record, key: value}))
    found = {summary.name: summary.problem for summary in site.library.summaries()}
    assert words in found["poisoned"]
    assert found["sound"] == ""
    assert words in client.get("/rows").text
