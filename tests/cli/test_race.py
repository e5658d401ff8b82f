"""`hubscout race` from the command to the model that predicts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubscout.cli.tune import open_teachers
from hubscout.errors import CodeNotAllowedError
from hubscout.hubs import load

Run = Callable[..., Any]
NETWORKS = """
import torch
from torch import nn


def make(width=8, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(3, width, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.num_features = width
    net.pretrained_cfg = {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 1.0}
    return net
"""
QUICK = ("--set", "steps=40", "--set", "batch_size=16", "--set", "learning_rate=0.05", "--device", "cpu")


@pytest.fixture
def networks(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(NETWORKS)
    return f"python:{tmp_path / 'nets.py'}:make"


def test_rank_race_and_teach_in_one_command(hubscout: Run, images: Path, networks: str, tmp_path: Path) -> None:
    big, small = f"{networks}?width=16", f"{networks}?seed=1&width=4"
    command = ("race", images, "-m", big, "--deploy", small, "--out", tmp_path / "run", *QUICK)
    result = hubscout(*command)
    assert result.exit_code == 0, result.stderr
    assert "P(best)" in result.stdout
    assert "taught by" in result.stdout
    assert "deploy" in result.stderr
    for folder in ("winner", "deployed"):
        told = hubscout("predict", tmp_path / "run" / folder, next(images.glob("red/*")), "--allow-code", "--json")
        assert told.exit_code == 0, told.stderr
    assert open_teachers([str(tmp_path / "run")], 3, allow_code=True) == [big]
    with pytest.raises(CodeNotAllowedError):
        load(open_teachers([str(tmp_path / "run")], 3)[0])  # it came out of a file
    page = hubscout("report", tmp_path / "run")
    assert page.exit_code == 0, page.stderr
    assert "Learning curves" in (tmp_path / "run" / "report.html").read_text()
    again = hubscout(*command, "--json")
    record = json.loads(again.stdout)
    assert record["deployed"]["model"] == small
    assert record["deployed"]["teachers"] == [big]
    assert set(record["seconds"]) == {"evidence", "rungs", "winner", "deploy"}


def test_without_out_a_race_goes_to_runs_and_says_each_thing_once(
    hubscout: Run, images: Path, networks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = hubscout("race", images, "-m", networks, *QUICK)
    assert result.exit_code == 0, result.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    place = folder.relative_to(tmp_path)
    assert f"Saved in {place}. Next:\n  hubscout report {place}\n" in result.stderr
    command = re.search(r"^  hubscout (predict \S+) INPUTS(.*)$", result.stderr, re.MULTILINE)
    assert command is not None
    told = hubscout(*command[1].split(), next(images.glob("red/*")), *command[2].split())
    assert told.exit_code == 0, told.stderr
    notes = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    assert notes
    assert len(set(notes)) == len(notes)
    refused = hubscout("race", images, "-m", networks, "--overwrite", *QUICK)
    assert refused.exit_code == 2
    assert "give --out" in refused.stderr


def test_a_pattern_races_all_that_it_matches_and_limits_hold(
    hubscout: Run, images: Path, networks: str, tmp_path: Path
) -> None:
    models = ("-m", f"{networks}?width=4", "-m", f"{networks}?width=16")
    result = hubscout("race", images, *models, "--max-params", "200", "--out", tmp_path / "run", "--json", *QUICK)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["winner"]["model"].endswith("width=4")
    none = hubscout("race", images, *models, "--max-params", "1", "--out", tmp_path / "none", *QUICK)
    assert none.exit_code == 2
    assert "all 2 are over the limits" in none.stderr


def test_the_command_for_more_time_goes_on_with_the_race(
    hubscout: Run, images: Path, networks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ("-m", f"{networks}?width=4", "-m", f"{networks}?width=16")
    words = ["race", str(images), *models, "--budget=0.01s", "--out", str(tmp_path / "run"), "--overwrite", *QUICK]
    monkeypatch.setattr("sys.argv", ["hubscout", *words])
    first = hubscout(*words)
    assert first.exit_code == 0, first.stderr
    said = first.stderr.partition("the race goes on from here:\n")[2].replace(" \\\n", "")
    command = shlex.split(said)
    assert command[:2] == ["hubscout", "race"]
    assert command[-4:] == ["--budget", "0.04s", "--out", str(tmp_path / "run")]
    command[-3] = "30s"
    again = hubscout(*command[1:])
    assert again.exit_code == 0, again.stderr
    assert "the race goes on with more time or models" in again.stderr
    page = hubscout("report", tmp_path / "run")
    assert page.exit_code == 0, page.stderr


def test_models_of_a_list_race_and_run_no_code(
    hubscout: Run, images: Path, networks: str, word_encoder: str, tmp_path: Path
) -> None:
    texts, listed = tmp_path / "texts.csv", tmp_path / "models.txt"
    lines = [f"{name} {verb} .,{verb}" for verb in ("runs", "reads") for name in ("Ann", "Bob", "Eve", "Tom") * 8]
    texts.write_text("text,label\n" + "\n".join(lines) + "\n")
    listed.write_text(f"{word_encoder}\n{networks}\n")
    short = ("--set", "steps=8", "--device", "cpu")
    command = ("race", texts, "-m", f"@{listed}", "--out", tmp_path / "run", "--json", *short)
    for _ in range(2):  # the second time out of the folder
        result = hubscout(*command)
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["winner"]["model"] == word_encoder
        first, *_ = map(json.loads, (tmp_path / "run" / "race.jsonl").read_text().splitlines())
        assert first["probe"]["model"] == word_encoder
    listed.write_text(f"{networks}\n")
    refused = hubscout("race", images, "-m", f"@{listed}", "--out", tmp_path / "refused", *QUICK)
    assert refused.exit_code == 2
    assert "--allow-code" in refused.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--deploy", "timm/no-such-model"), "no-such-model"),
        (("--folds", "0"), "--folds"),
        (("--set", "epoch=3"), "Did you mean"),
        (("--budget", "soon"), "soon"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(
    hubscout: Run, images: Path, networks: str, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    result = hubscout("race", images, "-m", networks, "--out", tmp_path / "run", *options)
    assert result.exit_code in (1, 2)
    assert words in result.stderr
    assert not (tmp_path / "run").exists()


def test_the_budget_counts_from_the_beginning_of_the_command(
    hubscout: Run, images: Path, networks: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    result = hubscout("race", images, "-m", networks, "--budget", "1h", "--out", run, *QUICK, seconds_ago=1000)
    assert result.exit_code == 0, result.stderr
    first, *_ = map(json.loads, (run / "race.jsonl").read_text().splitlines())
    assert first["elapsed"] > 1000  # imports, and data that take long to open
    assert json.loads((run / "race.json").read_text())["seconds"]["evidence"] > 1000
