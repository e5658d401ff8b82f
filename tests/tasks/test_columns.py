"""Which column plays which role."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task

ROWS = "text,label\n" + "".join(f"a good film {i},positive\na bad film {i},negative\n" for i in range(10))


def test_guesses_are_said_aloud(write: Callable[..., Path]) -> None:
    task = Task.from_table(write("films.csv", ROWS))
    assert (task.name, task.kind, task.modality) == ("films", "classification", "text")
    assert task.target_names == ("negative", "positive")
    said = "\n".join(task.notes)
    assert "column 'text' holds the inputs" in said
    assert "column 'label' holds the labels" in said
    assert "kind guessed as classification" in said
    for text, target in zip(task.train.inputs, task.train.targets, strict=True):
        assert ("good" in text) == (target == 1)


def test_a_column_that_is_not_there(write: Callable[..., Path]) -> None:
    path = write("a.csv", ROWS)
    with pytest.raises(TaskError, match=r"no column 'lable'\. Did you mean 'label'\? It has: text, label"):
        Task.from_table(path, label="lable")
    with pytest.raises(TaskError, match=r"no column 'TEXT'\. Did you mean 'text'"):
        Task.from_table(path, text="TEXT")
    with pytest.raises(TaskError, match="no column 'where'"):
        Task.from_table(path, split="where")


def test_columns_whose_names_hold_commas(write: Callable[..., Path]) -> None:
    path = write("a.csv", 'text,"x, y"\n' + "".join(f"a b c {i},{i}.5\n" for i in range(10)))
    assert Task.from_table(path, label="x, y").target_names == ("x, y",)
    frame = pd.DataFrame({"text": ["a", "b"] * 5, 7: ["u", "v"] * 5})
    assert Task.from_table(frame, label=7).target_names == ("u", "v")


def test_a_table_of_numbers_is_told_what_there_is_for_it(write: Callable[..., Path]) -> None:
    path = write("wine.csv", "alcohol,ash,cultivar\n" + "14.2,2.4,barolo\n12.1,2.1,barbera\n" * 10)
    with pytest.raises(TaskError, match=r"numbers only.*hubscout\.logme\(X, y\)"):
        Task.from_table(path)


@pytest.mark.parametrize("index", ["__index_level_0__", "Unnamed: 0"])
def test_the_index_that_pandas_wrote_is_no_label(write: Callable[..., Path], index: str) -> None:
    path = write("a.csv", f"{index},text,stars\n" + "".join(f"{i},a b c,{i % 2}\n" for i in range(20)))
    assert "column 'stars' holds the labels" in Task.from_table(path).notes
