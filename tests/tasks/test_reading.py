"""Files of tables are read without changing a value."""

from __future__ import annotations

import gzip
import json
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task, open_task, reading
from hubscout.tasks.reading import read_table

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
    "latin.csv": ("text,label\nÜ,a\n".encode("latin-1"), {}, "'latin.csv\\?encoding=cp1252'"),
    "cut.csv.gz": (gzip.compress(ROWS.encode() * 50)[:-20], {}, "cannot be read"),
    "broken.parquet": (b"PAR1 no", {}, "cannot be read as Parquet"),
    "broken.jsonl": (b'{"text": "a"}\n{"text": \n', {}, "line 2"),
    "list.jsonl": (b"[1]\n", {}, "row 0: expected an object"),
    "mixed.jsonl": (b'{"text": "a", "label": "x"}\n{"text": "b", "label": 3}\n', {}, "mixed types"),
    "infinite.csv": (b"text,y\na b c,1.5\na b c,inf\n", {}, "finite"),
    "words.csv": (b"text,y\na,1.5\nb,two\n", {"kind": "regression", "text": "text"}, "'two'"),
    "noinput.csv": (b"p,q\none,2\n", {}, "Say text=, image="),
    "numbers.csv": (b"p,q\n1,2\n", {}, "numbers only"),
    "features.csv": (b"p,q,species\n1,2,setosa\n", {}, "numbers only"),
    "notarget.csv": (b"text\na b\n", {}, "no column left"),
    "single.csv": (b"text,label\na,x\nb,x\n", {}, "one class 'x'"),
    "both.csv": (ROWS.encode(), {"text": "text", "image": "text"}, "Say one of"),
    "same.csv": (ROWS.encode(), {"text": "text", "label": "text"}, "input and label at once"),
    "three.csv": (ROWS.encode(), {"text": ["text", "label", "text"]}, "two for pairs"),
    "kind.csv": (ROWS.encode(), {"kind": "classify"}, "kind must be one of"),
    "nolabels.csv": (b"text,label\na b c,\nd e f,\n", {}, "None of the 2 rows has a value in .label."),
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


def test_objects_in_objects_are_columns_whose_names_are_joined_by_points(write: Callable[..., Path]) -> None:
    rows = [{"meta": {"id": row, "by": {"user": "u"}}, "data": {"body": f"a film {row}"}, "y": {"stars": "ab"[row % 2]}}
            for row in range(20)]  # fmt: skip
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
    task = Task.from_table(path, text="data.body", label="y.stars")
    assert task.target_names == ("a", "b")
    with pytest.raises(TaskError, match=r"label= one of: meta\.id, meta\.by\.user, y\.stars"):
        Task.from_table(path)
    deep = "[" + '{"a":' * 400 + "1" + "}" * 400 + "]"
    with pytest.raises(TaskError, match="cannot tell which column"):
        Task.from_table(write("deep.json", deep))


def test_one_object_of_columns_or_of_rows_is_a_table_and_so_is_utf_16(write: Callable[..., Path]) -> None:
    texts, labels = [f"a film {row}" for row in range(20)], ["a", "b"] * 10
    rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    plain = Task.from_table(write("a.json", json.dumps(rows)))
    written = pd.DataFrame(rows).to_json()
    for content in (json.dumps({"text": texts, "label": labels}), json.dumps({"version": 1, "data": rows}), written):
        assert Task.from_table(write("b.json", content)) == plain
    path = write("c.csv", "")
    path.write_bytes(
        ("text\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in zip(texts, labels, strict=True))).encode("utf-16")
    )
    assert Task.from_table(path) == plain


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


@pytest.fixture(autouse=True)
def memory_limit() -> Iterator[None]:
    """What a bomb would need is not there: a reader that unpacks it fails instead of filling the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + (2 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def test_a_million_columns_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(1_000_000)) + "\n" + "," * 999_999 + "\n")
    started = time.perf_counter()
    with pytest.raises(TaskError, match=r"1,000,000 columns.*100,000.*from_arrays") as caught:
        read_table(tmp_path / "wide.csv")
    assert time.perf_counter() - started < 120  # looking for doubles pair by pair takes hours
    assert len(str(caught.value)) < 1000


def test_many_columns_are_read_and_errors_stay_short(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(50_000)) + "\n" + "0," * 49_999 + "0\n")
    assert len(read_table(tmp_path / "wide.csv").columns) == 50_000
    for options in ({"text": "d1"}, {"text": "c1"}):
        with pytest.raises(TaskError, match=r"and 49,9\d\d more") as caught:
            Task.from_table(tmp_path / "wide.csv", **options)
        assert len(str(caught.value)) < 1000
    (tmp_path / "twice.csv").write_text("a,b,a\n1,2,3\n")
    with pytest.raises(TaskError, match="two columns called 'a'"):
        read_table(tmp_path / "twice.csv")


def test_rows_of_ever_new_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sparse.jsonl").write_text("".join(json.dumps({f"key{i}": 1}) + "\n" for i in range(20_000)))
    with pytest.raises(TaskError, match="400,000,000 cells"):
        read_table(tmp_path / "sparse.jsonl")


def test_wide_frames_and_parquet_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_COLUMNS", 10)
    frame = pd.DataFrame({f"c{i}": [1] for i in range(11)})
    frame.to_parquet(tmp_path / "wide.parquet")
    for source in (frame, tmp_path / "wide.parquet"):
        with pytest.raises(TaskError, match="11 columns"):
            Task.from_table(source)


@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.jsonl.gz", "bomb.conll.gz"])
def test_a_gzip_bomb_is_not_unpacked(name: str, tmp_path: Path) -> None:
    # Three gigabytes in three megabytes: members of a gzip file follow one another.
    packed = gzip.compress(b"a b\n" * 2_500_000) * 300
    assert len(packed) < 4_000_000
    (tmp_path / name).write_bytes(packed)
    with pytest.raises(TaskError, match=r"unpacks to more than.*HUBSCOUT_MAX_UNPACKED_BYTES"):
        open_task(tmp_path / name)


def test_the_limit_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "text,label\n" + "a good film,yes\na bad one,no\n" * 1000
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert read_table(tmp_path / "a.csv.gz").length == 2000
    monkeypatch.setenv("HUBSCOUT_MAX_UNPACKED_BYTES", str(len(text)))
    assert read_table(tmp_path / "a.csv.gz").length == 2000
    monkeypatch.setenv("HUBSCOUT_MAX_UNPACKED_BYTES", str(len(text) - 1))
    with pytest.raises(TaskError, match="unpacks to more"):
        read_table(tmp_path / "a.csv.gz")
    monkeypatch.setenv("HUBSCOUT_MAX_UNPACKED_BYTES", "lots")
    with pytest.raises(TaskError, match="'lots'"):
        read_table(tmp_path / "a.csv.gz")
