from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubscout.ranking import Ranking

Run = Callable[..., Any]


def test_a_table_on_stdout_and_the_rest_on_stderr(hubscout: Run, images: Path, zoo: str, tmp_path: Path) -> None:
    result = hubscout(
        "rank", images, "-m", f"{zoo}:red,{zoo}:colours", "--out", tmp_path / "run", "--metrics", "logme,knn"
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout.index(":colours") < result.stdout.index(":red")
    assert "P(best)" in result.stdout
    assert "knn" in result.stdout
    assert "3 classes: blue, green, red" in result.stderr
    assert "Saved in" in result.stderr
    assert "Saved in" not in result.stdout
    ranking = Ranking.load(tmp_path / "run")
    assert ranking.best.identifier == f"{zoo}:colours"
    assert ranking.task.source is not None


def test_json_is_all_there_is_on_stdout(hubscout: Run, images: Path, zoo: str) -> None:
    result = hubscout("rank", images, "-m", f"{zoo}:colours", "--limit", "40", "--no-cache", "--json", "-q")
    record = json.loads(result.stdout)
    assert result.stderr == ""
    assert record["format"] == "hubscout-ranking"
    assert record["rows"][0]["n"] == 40
    assert record["task"]["target_names"] == ["blue", "green", "red"]


def test_some_failed_is_status_3_and_all_failed_is_1(hubscout: Run, images: Path, zoo: str) -> None:
    some = hubscout("rank", images, "-m", f"{zoo}:broken", "-m", f"{zoo}:colours", "--no-cache")
    assert some.exit_code == 3
    assert "these weights are cursed" in some.stdout
    none = hubscout("rank", images, "-m", f"{zoo}:broken", "--no-cache")
    assert none.exit_code == 1
    assert "no model could be ranked" in none.stdout


def test_interrupted_is_130_and_the_same_command_goes_on(hubscout: Run, images: Path, zoo: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = hubscout("rank", images, "-m", f"{zoo}:red,{zoo}:stop,{zoo}:colours", "--out", run, "--no-cache")
    assert first.exit_code == 130
    assert f"Interrupted: 1 of 3 models are finished and saved in {run}" in first.stderr
    assert "Traceback" not in first.stderr
    assert not Ranking.load(run).complete
    second = hubscout("rank", images, "-m", f"{zoo}:red,{zoo}:colours", "--out", run, "--no-cache")
    assert second.exit_code == 0
    assert f"{zoo}:red: " not in second.stderr, "the finished model ran again"
    assert len(Ranking.load(run)) == 2


def test_models_from_a_file(hubscout: Run, images: Path, zoo: str, tmp_path: Path) -> None:
    (tmp_path / "models.txt").write_text(f"# mine\n{zoo}:red\n\n{zoo}:colours\n")
    result = hubscout("rank", images, "-m", f"@{tmp_path / 'models.txt'}", "--no-cache", "--json", "-q")
    assert len(json.loads(result.stdout)["rows"]) == 2
    missing = hubscout("rank", images, "-m", "@nowhere.txt")
    assert missing.exit_code == 2
    assert "cannot read the list of models" in missing.stderr


def test_a_table_with_named_columns(hubscout: Run, zoo: str, tmp_path: Path, images: Path) -> None:
    rows = "\n".join(f"{path},{path.parent.name}" for path in sorted(images.glob("*/*.png")))
    (tmp_path / "table.csv").write_text("picture,colour\n" + rows)
    result = hubscout(
        "rank", tmp_path / "table.csv", "--image", "picture", "--target", "colour", "-m", f"{zoo}:colours",
        "--no-cache", "--json", "-q",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["task"]["target_names"] == ["blue", "green", "red"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/nowhere/at/all", "-m", "x/y"], "There is no '/nowhere/at/all'"),
        (["IMAGES", "-m", "x/y", "--metrics", "logmee"], "Unknown metric 'logmee'. Did you mean 'logme'?"),
        (["IMAGES", "-m", "x/y", "--limit", "many"], "--limit must be a number such as 300, 10M or 1.5G, not 'many'"),
        (["IMAGES", "-m", "x/y", "--budget", "soon"], "budget must be a time"),
        (["IMAGES", "-m", "pypi/nothing*"], "matches no model"),
        (["IMAGES", "-m", "x/y", "--cache", "c", "--no-cache"], "exclude each other"),
        (["IMAGES", "-m", ","], "models is empty"),
    ],
)
def test_bad_input_is_one_line_and_status_2(hubscout: Run, images: Path, arguments: list[str], words: str) -> None:
    result = hubscout("rank", "-q", *[str(images) if argument == "IMAGES" else argument for argument in arguments])
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_debug_shows_the_traceback_wherever_it_stands(hubscout: Run) -> None:
    from hubscout.errors import TaskError

    for arguments in (["--debug", "rank", "/nowhere", "-m", "x/y"], ["rank", "/nowhere", "-m", "x/y", "--debug"]):
        result = hubscout(*arguments)
        assert isinstance(result.exception, TaskError)
