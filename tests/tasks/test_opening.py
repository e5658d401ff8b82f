from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from hubscout.errors import ModelNotFoundError, TaskError
from hubscout.hubs import load
from hubscout.optional import torch_ahead
from hubscout.tasks import Task, open_task

ROWS = "text,label,other\n" + "".join(f"word {i},{'ab'[i % 2]},{'cd'[i % 2]}\n" for i in range(20))


def test_each_sort_of_data(tmp_path: Path, image_folder: Callable[..., Path]) -> None:
    (tmp_path / "t").mkdir()
    for name in ("train", "test"):
        (tmp_path / "t" / f"{name}.csv").write_text(ROWS)
    (tmp_path / "c").mkdir()
    for name in ("train", "valid", "test"):
        (tmp_path / "c" / f"{name}.txt").write_text("a X\nb O\n\n" * 4)
    assert open_task(image_folder({"a": 5, "b": 5})).modality == "image"
    assert open_task(str(tmp_path / "t")).modality == "text"
    assert open_task(tmp_path / "t" / "train.csv").modality == "text"
    assert open_task(tmp_path / "c").kind == "tagging"
    assert open_task(tmp_path / "c" / "train.txt").kind == "tagging"
    assert open_task({"train": tmp_path / "t" / "train.csv"}).modality == "text"


def test_options_and_those_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ROWS)
    assert open_task(path, label="other", kind=None, split=None).target_names == ("c", "d")
    assert open_task(f"{path}?label=other&seed=3&test_size=0.5").target_names == ("c", "d")
    assert len(open_task(f"{path}?label=other&test_size=0.5").test) == 10
    with pytest.raises(TaskError, match=r"from_table has no option 'lable'\. Did you mean 'label'"):
        Task.from_table("reviews.csv", lable="stars")
    with pytest.raises(TaskError, match=r"no option 'colour'.*label"):
        open_task(path, colour="red")


def test_a_table_beside_image_folders(image_folder: Callable[..., Path]) -> None:
    folder = image_folder({"a": 5, "b": 5})
    rows = "".join(f"{home}/{i:03d}.png,{i}.5\n" for home in "ab" for i in range(5))
    (folder / "sizes.csv").write_text("path,size\n" + rows)
    assert open_task(folder).kind == "classification"
    assert open_task(folder, label="size").kind == "regression"


def test_a_task_and_its_source_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ROWS)
    task = open_task(path, label="label").subset(6)
    assert open_task(task) is task
    assert open_task(task.source) == task
    with pytest.raises(TaskError, match="open already"):
        open_task(task, label="other")


def test_another_process_opens_the_same_task(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ROWS)
    task = Task.from_table(path, label="label", seed=5).subset(6)
    code = "import json, sys; from hubscout.tasks import Task; print(Task.reopen(json.loads(sys.argv[1])).fingerprint)"
    command = [sys.executable, "-c", code, json.dumps(task.source)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == task.fingerprint


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="write hf:"):
        open_task(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="is empty: expected images with a folder per class"):
        open_task(tmp_path / "empty")
    (tmp_path / "a.pdf").write_bytes(b"")
    with pytest.raises(TaskError, match="cannot be read as data"):
        open_task(tmp_path / "a.pdf")


def test_tables_in_the_folder_data(tmp_path: Path) -> None:
    (tmp_path / "repository" / "data").mkdir(parents=True)
    (tmp_path / "repository" / "README.md").write_text("a card")
    (tmp_path / "repository" / "data" / "train-00000-of-00001.csv").write_text(ROWS)
    assert open_task(tmp_path / "repository").modality == "text"


def test_numbers_after_the_path_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROWS)
    with pytest.raises(TaskError, match="seed must be a number"):
        open_task(f"{tmp_path / 'a.csv'}?seed=x")
    with pytest.raises(TaskError, match="seed must be a whole number"):
        open_task(tmp_path / "a.csv", seed=-1)


def test_a_kind_that_goes_without_saying(image_folder: Callable[..., Path]) -> None:
    folder = image_folder({"a": 5, "b": 5})
    assert open_task(folder, kind="classification") == open_task(folder)
    with pytest.raises(TaskError, match="gives classification"):
        open_task(folder, kind="regression")


@pytest.mark.parametrize("constructor", ["image_folders.from_image_folder", "tables.from_table", "conll.from_conll"])
def test_a_task_remembers_every_argument_that_it_was_opened_with(
    constructor: str, tmp_path: Path, image_folder: Callable[..., Path]
) -> None:
    module, name = constructor.split(".")
    function = getattr(importlib.import_module(f"hubscout.tasks.{module}"), name)
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "a.conll").write_text("Ada B-PER\nsleeps O\n\n" * 10)
    data = {"from_table": tmp_path / "a.csv", "from_conll": tmp_path / "a.conll"}
    task = function(data[name] if name in data else image_folder({"cat": 10, "dog": 10}), seed=3)
    assert set(task.source["arguments"]) == set(inspect.signature(function).parameters)
    assert task.source["arguments"]["seed"] == 3
    json.dumps(task.source)


REMOTE_ROWS = "text,label\n" + "\n".join(f"word {i},{'ab'[i % 2]}" for i in range(40)) + "\n"


@pytest.fixture(autouse=True)
def _copies(tmp_path, monkeypatch):
    monkeypatch.setenv("HUBSCOUT_DATA", str(tmp_path / "copies"))


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def test_a_table_and_its_options(memory):
    memory.pipe("/bucket/words.csv", REMOTE_ROWS.encode())
    task = open_task("memory://bucket/words.csv?label=label&test_size=0.5")
    assert task.name == "words"
    assert task.target_names == ("a", "b")
    assert len(task.test) == 20


def test_a_folder_of_tables(memory):
    for part in ("train", "test"):
        memory.pipe(f"/bucket/words/{part}.csv", REMOTE_ROWS.encode())
    task = open_task("memory://bucket/words")
    assert len(task.test) == 40
    assert len(task.train) + len(task.validation) == 40


def test_the_content_is_that_of_the_files_themselves(tmp_path):
    file = tmp_path / "words.csv"
    file.write_text(REMOTE_ROWS)
    assert open_task(file.as_uri()).fingerprint == open_task(file).fingerprint


def test_it_is_copied_once_and_again_when_it_changes(memory, monkeypatch):
    memory.pipe("/bucket/words.csv", REMOTE_ROWS.encode())
    copies = []
    original = type(memory).get

    def counting(self, *arguments, **options):
        copies.append(arguments)
        return original(self, *arguments, **options)

    monkeypatch.setattr(type(memory), "get", counting)
    first = open_task("memory://bucket/words.csv")
    assert open_task("memory://bucket/words.csv").fingerprint == first.fingerprint
    assert len(copies) == 1
    memory.pipe("/bucket/words.csv", (REMOTE_ROWS + "more,a\n").encode())
    assert open_task("memory://bucket/words.csv").fingerprint != first.fingerprint
    assert len(copies) == 2


def test_it_opens_again_from_its_source_as_another_machine_would(memory, tmp_path, monkeypatch):
    memory.pipe("/bucket/words.csv", REMOTE_ROWS.encode())
    task = open_task("memory://bucket/words.csv", label="label").subset(10, seed=1)
    source = json.loads(json.dumps(task.source))
    monkeypatch.setenv("HUBSCOUT_DATA", str(tmp_path / "elsewhere"))
    assert Task.reopen(source).fingerprint == task.fingerprint
    assert list((tmp_path / "elsewhere").iterdir())
    memory.pipe("/bucket/words.csv", (REMOTE_ROWS + "more,a\n").encode())
    with pytest.raises(TaskError, match="changed since"):
        Task.reopen(source)


def test_a_copy_that_breaks_off_leaves_nothing(memory, tmp_path, monkeypatch):
    memory.pipe("/bucket/words.csv", REMOTE_ROWS.encode())

    def broken(self, path, target, **options):
        with open(target, "w") as file:
            file.write("text,lab")
        raise OSError("connection lost")

    with monkeypatch.context() as patched:
        patched.setattr(type(memory), "get", broken)
        with pytest.raises(TaskError, match="connection lost"):
            open_task("memory://bucket/words.csv")
    assert open_task("memory://bucket/words.csv").target_names == ("a", "b")


@pytest.mark.parametrize(
    ("url", "message"),
    [("memory://bucket/nothing.csv", "nothing at"), ("nosuchscheme://bucket/x", "cannot be reached")],
)
def test_what_is_not_there(memory, url, message):
    with pytest.raises(TaskError, match=message):
        open_task(url)


def test_the_home_of_nobody_is_a_path_that_is_not_there() -> None:
    with pytest.raises(TaskError, match="nobody-of-this-name"):
        open_task("~nobody-of-this-name/data")
    with torch_ahead("~nobody-of-this-name/data"):  # which asks before the data are opened
        pass
    with pytest.raises(ModelNotFoundError, match="nobody-of-this-name"):
        load("file:~nobody-of-this-name/model")
