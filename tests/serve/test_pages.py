"""The pages, above all the form that starts a run."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from hubscout.serve.pages import listing_page, start_page
from hubscout.serve.served_folder import DataFolder, Folder
from hubscout.serve.starting import Request, Starter


@pytest.fixture
def starter(tmp_path: Path) -> Starter:
    """One over a folder of two rankings, and an empty one of data."""
    for folder in ("data", "runs/mine", "runs/other"):
        (tmp_path / folder).mkdir(parents=True)
    for run in ("mine", "other"):
        (tmp_path / "runs" / run / "ranking.json").write_text("{}")
    runs = Folder.open(tmp_path / "runs", "RUNS")
    return Starter(runs, DataFolder(Folder.open(tmp_path / "data", "--data"), without=runs.path))


def test_a_pattern_is_offered_by_what_it_stands_for(starter: Starter) -> None:
    page = start_page(replace(starter, offered=("timm/resnet18", "pypi/*", "file:models/*")), None, csrf="")
    assert re.findall(r"<span title=[^>]*>(.*?)</span>", page) == [
        "resnet18",
        "all models matching pypi/*",
        "all models matching file:models/*",
    ]


def test_the_form_has_the_three_commands_and_the_rankings(starter: Starter) -> None:
    asked = Request.read({"name": "new", "data": "d", "command": "tune", "teachers": "mine", "epochs": "4"})
    page = start_page(starter, asked, csrf="")
    assert re.findall(r'name="command" value="(\w+)"( checked)?', page) == [
        ("rank", ""),
        ("race", ""),
        ("tune", " checked"),
    ]
    assert '<option value="mine" selected>mine</option>' in page
    assert 'name="epochs" value="4"' in page


def test_the_form_has_the_model_to_deploy_the_method_and_the_learning_rate(starter: Starter) -> None:
    asked = Request.read({"name": "new", "data": "d", "deploy": "timm/small", "method": "kd", "learning_rate": "1e-3"})
    page = start_page(starter, asked, csrf="")
    only = {words: command for command, words in re.findall(r'data-only="([\w ]+)"><span>([^<]+)', page)}
    assert (only["Model to deploy"], only["Method"], only["Learning rate"]) == ("race", "tune", "tune")
    assert 'name="deploy" value="timm/small"' in page
    assert '<option value="kd" selected>' in page
    assert 'name="learning_rate" value="1e-3"' in page


def test_an_empty_folder_says_what_to_type_and_has_nothing_to_search() -> None:
    page = listing_page([], "", "/home/me/my runs")
    assert unescape(page).count("hubscout rank flowers/ --out '/home/me/my runs'/flowers") == 1
    assert 'id="search"' not in page
    assert 'id="search"' in listing_page([], "nothing of that name", "/home/me/runs")


def test_folders_of_images_and_of_sounds_are_offered(starter: Starter, tmp_path: Path) -> None:
    for name in ("clips/high/a.wav", "clips/low/b.flac", "photos/cat/a.heic", "photos/dog/b.jpg", "notes/a/b.txt"):
        (tmp_path / "data" / name).parent.mkdir(parents=True)
        (tmp_path / "data" / name).touch()
    page = start_page(starter, None, csrf="")
    assert re.findall(r'<option value="(\w+)"[^>]*>\1</option>', page)[:2] == ["clips", "photos"]
    assert "notes" not in page
