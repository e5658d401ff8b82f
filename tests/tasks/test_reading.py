"""Files of tables are read without changing a value."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task

ROWS = "text,label\n" + "".join(f"a good film {i},positive\na bad film {i},negative\n" for i in range(10))


def test_formats_hold_the_same_task(write: Callable[..., Path], tmp_path: Path) -> None:
    frame = pd.read_csv(write("a.csv", ROWS))
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    frame.to_csv(tmp_path / "semicolon.csv", sep=";", index=False)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "a.json", orient="records")
    frame.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    write("bom.csv", b"\xef\xbb\xbf" + ROWS.replace("\n", "\r\n").encode())
    names = ["a.csv", "a.tsv", "semicolon.csv", "a.jsonl", "a.json", "a.parquet", "a.csv.gz", "bom.csv"]
    tasks = [Task.from_table(tmp_path / name) for name in names] + [Task.from_table(frame)]
    assert len({task.fingerprint for task in tasks}) == 1
    assert all(Task.reopen(json.loads(json.dumps(task.source))) == task for task in tasks[:-1])
    assert tasks[-1].source is None


def test_text_stays_the_text_it_was(write: Callable[..., Path]) -> None:
    """pandas' own reading would make NA a missing value and 007 the number 7."""
    path = write("a.csv", "text,label\nNA,007\nnull,7\n1.50,007\nnan,7\n")
    task = Task.from_table(path, text="text", kind="classification", test_size=0, validation_size=0)
    assert list(task.train.inputs) == ["NA", "null", "1.50", "nan"]
    assert task.target_names == ("007", "7")


BAD = {
    "empty.csv": (b"", {}, "names of the columns"),
    "header.csv": (b"text,label\n", {}, "no rows"),
    "ragged.csv": (b"text,label\na,b\na,b,c,d\n", {}, "line 3"),
    "short.csv": (b"text,label\na,b\na\n", {}, "line 3: 1 cells"),
    "quote.csv": (b'text,label\n"a,b\n', {}, "quotation marks"),
    "twice.csv": (b"text,text\na,b\n", {}, "two columns called 'text'"),
    "delimiter.csv": (b"text,text\na,b\n", {"delimiter": "::"}, "one character"),
    "latin.csv": ("text,label\nÜ,a\n".encode("latin-1"), {}, "encoding='latin-1'"),
    "cut.csv.gz": (gzip.compress(ROWS.encode() * 50)[:-20], {}, "cannot be read"),
    "broken.parquet": (b"PAR1 no", {}, "cannot be read as Parquet"),
    "broken.jsonl": (b'{"text": "a"}\n{"text": \n', {}, "line 2"),
    "list.jsonl": (b"[1]\n", {}, "row 0: expected an object"),
    "mixed.jsonl": (b'{"text": "a", "label": "x"}\n{"text": "b", "label": 3}\n', {}, "mixed types"),
    "infinite.csv": (b"text,y\na b c,1.5\na b c,inf\n", {}, "finite"),
    "words.csv": (b"text,y\na,1.5\nb,two\n", {"kind": "regression", "text": "text"}, "'two'"),
    "noinput.csv": (b"p,q\n1,2\n", {}, "Say text=, image="),
    "notarget.csv": (b"text\na b\n", {}, "no column left"),
    "single.csv": (b"text,label\na,x\nb,x\n", {}, "one class 'x'"),
    "both.csv": (ROWS.encode(), {"text": "text", "image": "text"}, "Say one of"),
    "same.csv": (ROWS.encode(), {"text": "text", "label": "text"}, "input and label at once"),
    "three.csv": (ROWS.encode(), {"text": ["text", "label", "text"]}, "two for pairs"),
    "kind.csv": (ROWS.encode(), {"kind": "classify"}, "kind must be one of"),
    "nolabels.csv": (b"text,label\na b c,\nd e f,\n", {}, "no rows to train on"),
    "a.docx": (b"x", {}, "is not a table"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables(write: Callable[..., Path], name: str) -> None:
    content, options, message = BAD[name]
    with pytest.raises(TaskError, match=message):
        Task.from_table(write(name, content), **options)


def test_other_encodings_can_be_named(write: Callable[..., Path]) -> None:
    path = write("a.csv", "text,label\nÜ,a\nÄ,b\n".encode("latin-1"))
    task = Task.from_table(path, encoding="latin-1", test_size=0, validation_size=0)
    assert list(task.train.inputs) == ["Ü", "Ä"]
    with pytest.raises(TaskError, match="not an encoding that Python knows"):
        Task.from_table(path, encoding="latin-99")


def test_missing_values_of_a_frame() -> None:
    frame = pd.DataFrame({"text": ["a", None, "c", "d"], "label": [0, 1, None, 1]})
    task = Task.from_table(frame, test_size=0, validation_size=0)
    assert list(task.train.inputs) == ["a", "", "d"]
    assert task.target_names == ("0", "1")


def test_tab_separated_text_without_quoting(write: Callable[..., Path]) -> None:
    path = write("a.tsv", 'text\tlabel\n"so\ta\nnot "so"\tb\n')
    task = Task.from_table(path, text="text", test_size=0, validation_size=0)
    assert list(task.train.inputs) == ['"so', 'not "so"']


def test_quoted_line_breaks_and_long_cells(write: Callable[..., Path]) -> None:
    long = "word " * 50_000
    path = write("a.csv", f'text,label,\n"one\ntwo, ""three""",a,\n{long},b,\n\n')
    task = Task.from_table(path, test_size=0, validation_size=0)
    assert list(task.train.inputs) == ['one\ntwo, "three"', long]
