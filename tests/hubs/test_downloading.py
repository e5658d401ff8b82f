"""A download is told of while it runs: in Python, on a terminal, in a file of lines, in a tuning."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hub_client import environment
from hub_server import commit_of
from PIL import Image

NAME = "timm/test_resnet.r160_in1k"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    draw = np.random.default_rng(0)
    for label in ("a", "b"):
        (root / label).mkdir()
        for number in range(12):
            pixels = draw.integers(0, 255, (16, 16, 3)).astype(np.uint8) // (1 + (label == "b"))
            Image.fromarray(pixels).save(root / label / f"{number}.png")
    return root


def test_bytes_are_told_as_they_come(client, hub):
    with hub.fault("/storage/", bytes_per_second=60_000, times=1):
        found = client.attempt("hf/acme/slow")
    assert "commit" in found, found
    done = [part for part, _ in found["bytes"]]
    assert done == sorted(done)
    assert done[0] == 0
    assert done[-1] == found["bytes"][-1][1]
    assert {total for _, total in found["bytes"]} == {done[-1]}


def run_command(hub, home: Path, *words: object, terminal: bool = False) -> str:
    command = [sys.executable, "-m", "hubscout", *map(str, words)]
    if not terminal:
        done = subprocess.run(command, capture_output=True, text=True, env=environment(hub.url, home), timeout=200)
        assert done.returncode == 0, done.stderr
        return done.stderr
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(hub.url, home))
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:
            break
    assert process.wait(timeout=120) == 0, shown
    os.close(ours)
    return shown.decode(errors="replace")


@pytest.mark.slow
def test_lines_say_how_much_is_fetched_and_the_run_records_the_commit(hub, repositories, images, tmp_path):
    said = run_command(hub, tmp_path / "home", "rank", images, "-m", NAME, "--out", tmp_path / "run")
    assert re.search(rf"{NAME}: downloading [\d.]+ MB\n", said)
    assert re.search(rf"{NAME}: downloaded [\d.]+ MB in \d+ s\n", said)
    commit = commit_of(repositories / NAME)
    [row] = json.loads((tmp_path / "run" / "ranking.json").read_text())["rows"]
    assert row["card"]["commit"] == commit
    run_command(hub, tmp_path / "home", "report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert commit in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_a_terminal_shows_a_bar(hub, images, tmp_path):
    with hub.fault("/storage/", bytes_per_second=400_000, times=1):
        shown = run_command(hub, tmp_path / "home", "rank", images, "-m", NAME, "--no-cache", terminal=True)
    assert f"{NAME}: download, MB" in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)


@pytest.mark.slow
def test_a_tuning_tells_of_its_downloads(hub, images, tmp_path):
    options = ["--epochs", "1", "--batch-size", "8"]
    said = run_command(
        hub,
        tmp_path / "home",
        "tune",
        images,
        "--model",
        NAME,
        "--method",
        "fine-tune",
        *options,
        "--out",
        tmp_path / "tuned",
    )
    assert re.search(r"downloading [\d.]+ MB", said)
    assert re.search(r"downloaded [\d.]+ MB in", said)
