from __future__ import annotations

from pathlib import Path

import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task

IOB1 = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Ada NNP I-NP I-PER
Bob NNP I-NP B-PER
sleep VB I-VP O

Paris NNP I-NP I-LOC
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_folder_of_token_files(tmp_path: Path) -> None:
    for name in ("train", "valid", "test"):
        write(tmp_path / f"{name}.txt", IOB1)
    task = Task.from_conll(tmp_path)
    assert [len(part) for part in task.splits.values()] == [3, 3, 3]
    assert task.train.inputs[1] == ["Ada", "Bob", "sleep"]
    assert [task.target_names[tag] for tag in task.train.targets[1]] == ["B-PER", "B-PER", "O"]
    assert any("IOB1" in note for note in task.notes)
    assert Task.reopen(task.source) == task


def test_schemes_and_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", IOB1 * 5)
    assert Task.from_conll(path, scheme="keep").target_names == ("B-PER", "I-LOC", "I-ORG", "I-PER", "O")
    assert Task.from_conll(path, scheme="types").target_names == ("LOC", "O", "ORG", "PER")
    assert Task.from_conll(path, column=1).target_names == ("NNP", "VB", "VBZ")


def test_tabs_comments_and_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "# a comment\nNew York\tB-LOC\r\nis\tO\r\n\r\nhere\tO\n\nAda\tB-PER")
    task = Task.from_conll(path, test_size=0, validation_size=0)
    assert list(task.train.inputs) == [["New York", "is"], ["here"], ["Ada"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb X\nc\n", r"line 3: expected 2 columns"),
        ("a O\nb X O\n", r"line 2: expected 2 columns"),
        ("a\nb\n", "a word and its tags"),
        ("", "no sentences"),
        ("-DOCSTART- -X- O O\n\n", "no sentences"),
        ("a O\nb O\n\nc O\n", "one class 'O'"),
    ],
)
def test_ragged_and_empty_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        Task.from_conll(write(tmp_path / "a.txt", text))


def test_bad_arguments(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", IOB1)
    for column in (0, 4, -4):
        with pytest.raises(TaskError, match="4 columns"):
            Task.from_conll(path, column=column)
    with pytest.raises(TaskError, match="scheme must be one of"):
        Task.from_conll(path, scheme="bilou")
    with pytest.raises(TaskError, match="There is no"):
        Task.from_conll(tmp_path / "nowhere.txt")
    with pytest.raises(TaskError, match="no split 'x'"):
        Task.from_conll({"x": path})
    (tmp_path / "b.txt").write_bytes(b"\xfe\x00 O\n")
    with pytest.raises(TaskError, match="not utf-8"):
        Task.from_conll(tmp_path / "b.txt")
    with pytest.raises(TaskError, match=r"a\.txt, b\.txt"):
        Task.from_conll(tmp_path)


def test_texts_that_are_no_token_file_are_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("__label__good a film\n__label__bad another\n")
    with pytest.raises(TaskError, match=r"as fastText reads them.*CSV file with the columns text and label"):
        Task.from_conll(tmp_path / "a.txt")
    (tmp_path / "prose.txt").write_text("All of this is prose.\n")
    with pytest.raises(TaskError, match=r"only one sentence.*Texts with labels go into a CSV"):
        Task.from_conll(tmp_path / "prose.txt")
