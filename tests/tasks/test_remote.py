"""Data behind URLs, on file systems that need no network: memory:// and file://."""

from __future__ import annotations

import json

import fsspec
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task, open_task

ROWS = "text,label\n" + "\n".join(f"word {i},{'ab'[i % 2]}" for i in range(40)) + "\n"


@pytest.fixture(autouse=True)
def _copies(tmp_path, monkeypatch):
    monkeypatch.setenv("HUBSCOUT_DATA", str(tmp_path / "copies"))


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def test_a_table_and_its_options(memory):
    memory.pipe("/bucket/words.csv", ROWS.encode())
    task = open_task("memory://bucket/words.csv?label=label&test_size=0.5")
    assert task.name == "words"
    assert task.target_names == ("a", "b")
    assert len(task.test) == 20


def test_a_folder_of_tables(memory):
    for part in ("train", "test"):
        memory.pipe(f"/bucket/words/{part}.csv", ROWS.encode())
    task = open_task("memory://bucket/words")
    assert len(task.test) == 40
    assert len(task.train) + len(task.validation) == 40


def test_the_content_is_that_of_the_files_themselves(tmp_path):
    file = tmp_path / "words.csv"
    file.write_text(ROWS)
    assert open_task(file.as_uri()).fingerprint == open_task(file).fingerprint


def test_it_is_copied_once_and_again_when_it_changes(memory, monkeypatch):
    memory.pipe("/bucket/words.csv", ROWS.encode())
    copies = []
    original = type(memory).get

    def counting(self, *arguments, **options):
        copies.append(arguments)
        return original(self, *arguments, **options)

    monkeypatch.setattr(type(memory), "get", counting)
    first = open_task("memory://bucket/words.csv")
    assert open_task("memory://bucket/words.csv").fingerprint == first.fingerprint
    assert len(copies) == 1
    memory.pipe("/bucket/words.csv", (ROWS + "more,a\n").encode())
    assert open_task("memory://bucket/words.csv").fingerprint != first.fingerprint
    assert len(copies) == 2


def test_it_opens_again_from_its_source_as_another_machine_would(memory, tmp_path, monkeypatch):
    memory.pipe("/bucket/words.csv", ROWS.encode())
    task = open_task("memory://bucket/words.csv", label="label").subset(10, seed=1)
    source = json.loads(json.dumps(task.source))
    monkeypatch.setenv("HUBSCOUT_DATA", str(tmp_path / "elsewhere"))
    assert Task.reopen(source).fingerprint == task.fingerprint
    assert list((tmp_path / "elsewhere").iterdir())
    memory.pipe("/bucket/words.csv", (ROWS + "more,a\n").encode())
    with pytest.raises(TaskError, match="changed since"):
        Task.reopen(source)


def test_a_copy_that_breaks_off_leaves_nothing(memory, tmp_path, monkeypatch):
    memory.pipe("/bucket/words.csv", ROWS.encode())

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
