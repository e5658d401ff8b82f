from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hubscout.cli.listings import cache as app
from hubscout.errors import InputError
from hubscout.features import FeatureCache, extract
from hubscout.tasks import Task


@pytest.fixture
def root(make_backbone: Any, make_image_task: Any, tmp_path: Path) -> str:
    task: Task = make_image_task(60)
    cache = FeatureCache(tmp_path)
    extract(make_backbone(), task, device="cpu", cache=cache)
    extract(make_backbone(identifier="timm/vit_small"), task, device="cpu", cache=cache)
    return str(tmp_path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_ls_lists_models_tasks_and_sizes(root: str) -> None:
    text = run("ls", "--cache", root)
    assert "vit_small" in text
    assert "noise" in text
    assert "2 entries" in text
    listed = json.loads(run("ls", "--cache", root, "--json"))
    assert {entry["model"] for entry in listed} == {"timm/vit_small", "test/conv"}
    assert all(entry["complete"] and entry["rows"] == 60 for entry in listed)


def test_a_cache_behind_a_url(
    make_backbone: Any, make_image_task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"memory://{tmp_path.name}/features"
    cache = FeatureCache(url)
    for name in ("test/conv", "timm/vit_small"):
        extract(make_backbone(identifier=name), make_image_task(60), device="cpu", cache=cache)
    listed = json.loads(run("ls", "--cache", url, "--json"))
    assert {(entry["model"], entry["rows"], entry["complete"]) for entry in listed} == {
        ("test/conv", 60, True),
        ("timm/vit_small", 60, True),
    }
    assert all(0 <= entry["age_seconds"] < 600 for entry in listed)
    size = json.loads(run("size", "--cache", url, "--json"))
    assert size == {"folder": url, "bytes": sum(entry["bytes"] for entry in listed), "entries": 2}
    assert f"2 entries, 0.0 MB at {url}" in " ".join(run("ls", "--cache", url).split())
    assert "Removed 1" in run("rm", "timm/*", "--cache", url)
    assert [entry.model for entry in cache.entries()] == ["test/conv"]
    assert not list(tmp_path.iterdir())


def test_size_is_that_of_the_files(root: str) -> None:
    record = json.loads(run("size", "--cache", root, "--json"))
    on_disk = sum(path.stat().st_size for path in Path(root).glob("*/*"))
    assert record == {"folder": root, "bytes": on_disk, "entries": 2}
    assert root in run("size", "--cache", root)


def test_rm_takes_patterns(root: str) -> None:
    assert "Would remove 1" in run("rm", "timm/*", "--cache", root, "--dry-run")
    assert len(FeatureCache(root).entries()) == 2
    assert "Removed 1" in run("rm", "timm/*", "--cache", root)
    assert [entry.model for entry in FeatureCache(root).entries()] == ["test/conv"]


def test_rm_by_age_and_all(root: str) -> None:
    assert "Removed 0" in run("rm", "--older-than", "1h", "--cache", root)
    assert json.loads(run("rm", "--all", "--cache", root, "--json"))["bytes"] > 0
    assert "is empty" in " ".join(run("ls", "--cache", root).split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Say what to remove"),
        (("nothing*",), "matches nothing"),
        (("--older-than", "soon"), "--older-than must be"),
    ],
)
def test_rm_refuses_what_it_cannot_read(root: str, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(app, ["rm", *arguments, "--cache", root], catch_exceptions=False)
