from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task, parquet
from hubscout.tasks.parquet import RowGroups

ROWS = "text,label\n" + "".join(f"a good film {i},positive\na bad film {i},negative\n" for i in range(10))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


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


def test_a_split_column(write: Callable[..., Path]) -> None:
    path = write("a.csv", "text,label,split\nx,a,train\ny,b,train\nz,a,dev\nw,b,test\n")
    task = Task.from_table(path)
    assert [list(part.inputs) for part in task.splits.values()] == [["x", "y"], ["z"], ["w"]]
    assert sum(len(part) for part in Task.from_table(path, split=False).splits.values()) == 4


def test_unknown_split_names(write: Callable[..., Path]) -> None:
    path = write("a.csv", "text,label,split\nx,a,train\ny,b,north\n")
    with pytest.raises(TaskError, match=r"'north' \(row 1\).*Known names.*split=False"):
        Task.from_table(path)
    with pytest.raises(TaskError, match="no split 'north'"):
        Task.from_table({"train": path, "north": path})


def test_one_file_a_split(write: Callable[..., Path]) -> None:
    write("d/train.csv", "text,label\nx,a\ny,b\n")
    write("d/test.csv", "text,label\nz,b\n")
    write("d/dev.csv", "text,label\nw,b\n")
    task = Task.from_table(write("d/train.csv", "text,label\nx,a\ny,b\n").parent)
    assert [list(part.inputs) for part in task.splits.values()] == [["x", "y"], ["w"], ["z"]]
    assert Task.reopen(task.source) == task


def test_shards_of_a_split(tmp_path: Path) -> None:
    for i in range(3):
        frame = pd.DataFrame({"text": [f"t {i} {j}" for j in range(4)], "label": [0, 1, 0, 1]})
        frame.to_parquet(tmp_path / f"train-{i:05d}-of-00003.parquet")
    pd.DataFrame({"text": ["u v w"], "label": [1]}).to_parquet(tmp_path / "test-00000-of-00001.parquet")
    task = Task.from_table(tmp_path, validation_size=0)
    assert list(task.train.inputs) == [f"t {i} {j}" for i in range(3) for j in range(4)]
    assert len(task.test) == 1


def test_a_folder_whose_tables_do_not_say_their_split(write: Callable[..., Path]) -> None:
    write("d/one.csv", ROWS)
    with pytest.raises(TaskError, match=r"do not say which split.*one\.csv, two\.csv"):
        Task.from_table(write("d/two.csv", ROWS).parent)


def test_pairs_and_real_targets(write: Callable[..., Path]) -> None:
    lines = "".join(f"{i},left {i},right {i},{i / 7}\n" for i in range(20))
    task = Task.from_table(write("p.csv", "id,sentence1,sentence2,score\n" + lines))
    assert (task.kind, task.modality, task.target_names) == ("regression", "text-pair", ("score",))
    left, right = task.train.inputs[0]
    assert left.split()[1] == right.split()[1]
    assert task.train.targets[0, 0] == int(left.split()[1]) / 7
    named = Task.from_table(write("p.csv", "id,sentence1,sentence2,score\n" + lines), text=("sentence2", "sentence1"))
    assert named.train.inputs[0] == (right, left)


def test_several_targets(write: Callable[..., Path]) -> None:
    lines = "".join(f"t {i},{i},{i / 2},{i % 2},{(i + 1) % 2}\n" for i in range(20))
    path = write("m.csv", "text,a,b,c,d\n" + lines)
    real = Task.from_table(path, label=["a", "b"])
    assert (real.kind, real.target_names) == ("regression", ("a", "b"))
    assert real.train.targets.shape == (14, 2)
    np.testing.assert_array_equal(real.train.targets[:, 0], real.train.targets[:, 1] * 2)
    labels = Task.from_table(path, label="d,c")
    assert (labels.kind, labels.target_names) == ("multilabel", ("d", "c"))
    np.testing.assert_array_equal(labels.train.targets.sum(axis=1), 1)
    with pytest.raises(TaskError, match=r"several columns could be the label.*a, b, c, d"):
        Task.from_table(path)
    with pytest.raises(TaskError, match="hold 0 and 1"):
        Task.from_table(path, label="a,c", kind="multilabel")


@pytest.mark.parametrize(("mark", "given"), [(";", None), ("|", None), (",", None), ("/", "/")])
def test_labels_between_separators(tmp_path: Path, mark: str, given: str | None) -> None:
    frame = pd.DataFrame(
        {"text": [f"t {i}" for i in range(6)], "label": [f"cat{mark} dog", "dog", "", "cat", "dog", "fox"]}
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    options: dict[str, Any] = {"kind": "multilabel", "test_size": 0, "validation_size": 0}
    task = Task.from_table(tmp_path / "a.csv", separator=given, **options)
    assert task.target_names == ("cat", "dog", "fox")
    assert task.train.targets[:3].tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]


def test_a_column_of_lists_is_multilabel(write: Callable[..., Path]) -> None:
    lines = [{"text": f"t {i}", "label": ["a", "b"][: i % 3]} for i in range(12)]
    task = Task.from_table(write("a.jsonl", "\n".join(map(json.dumps, lines))))
    assert (task.kind, task.target_names) == ("multilabel", ("a", "b"))


def test_columns_of_tokens_and_tags(write: Callable[..., Path]) -> None:
    lines = [{"tokens": ["Ada", "sleeps"], "ner_tags": ["B-PER", "O"]}] * 10
    task = Task.from_table(write("a.jsonl", "\n".join(map(json.dumps, lines))))
    assert (task.kind, task.modality, task.target_names) == ("tagging", "tokens", ("B-PER", "O"))
    lines[3] = {"tokens": ["Ada", "sleeps"], "ner_tags": ["O"]}
    with pytest.raises(TaskError, match="row 3: 2 words but 1 tags"):
        Task.from_table(write("b.jsonl", "\n".join(map(json.dumps, lines))))


def image_table(path: Path, image_bytes: Callable[..., bytes], column: str = "image", n: int = 20) -> Path:
    table = pa.table({column: [image_bytes(i) for i in range(n)], "label": [["a", "b"][i % 2] for i in range(n)]})
    pq.write_table(table, path, row_group_size=4)
    return path


def test_images_as_bytes_paths_and_mappings_are_one_task(tmp_path: Path, image_bytes: Callable[..., bytes]) -> None:
    whole = Task.from_table(image_table(tmp_path / "a.parquet", image_bytes))
    assert (whole.modality, whole.train.inputs[0].mode) == ("image", "RGB")
    (tmp_path / "img").mkdir()
    for i in range(20):
        (tmp_path / "img" / f"{i}.png").write_bytes(image_bytes(i))
    paths = pd.DataFrame({"file": [f"img/{i}.png" for i in range(20)], "label": ["a", "b"] * 10})
    paths.to_csv(tmp_path / "paths.csv", index=False)
    by_path = Task.from_table(tmp_path / "paths.csv")
    mappings = [{"bytes": image_bytes(i), "path": f"{i}.png"} for i in range(20)]
    pq.write_table(pa.table({"image": mappings, "label": ["a", "b"] * 10}), tmp_path / "hf.parquet")
    by_mapping = Task.from_table(tmp_path / "hf.parquet")
    assert whole == by_path == by_mapping
    assert np.array_equal(np.asarray(whole.train.inputs[3]), np.asarray(by_path.train.inputs[3]))


def test_large_columns_are_read_by_row_group(
    tmp_path: Path, image_bytes: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = image_table(tmp_path / "a.parquet", image_bytes, n=60)
    in_memory = Task.from_table(path)
    monkeypatch.setattr(parquet, "_LARGEST_IN_MEMORY_BYTES", 0)
    lazy = Task.from_table(path)
    assert isinstance(lazy.train.inputs.base.encoded, RowGroups)
    assert lazy == in_memory
    again = pickle.loads(pickle.dumps(lazy))
    for row in (0, 30, 3):
        np.testing.assert_array_equal(np.asarray(again.train.inputs[row]), np.asarray(in_memory.train.inputs[row]))


def test_rows_without_a_label_are_left_out_and_counted(write: Callable[..., Path]) -> None:
    path = write("a.csv", "text,y,part\nu,1.5,train\nv,,train\nw,2.5,train\nx,nan,\nz,3.5,test\n")
    task = Task.from_table(path, label="y", split="part", validation_size=0)
    assert task.kind == "regression"
    assert [list(part.inputs) for part in task.splits.values()] == [["u", "w"], [], ["z"]]
    said = "\n".join(task.notes)
    assert "1 of 5 rows have no value in 'part'" in said
    assert "1 of 3 rows in train lack a value in 'y'" in said


def test_empty_texts_are_kept_and_counted(write: Callable[..., Path]) -> None:
    task = Task.from_table(write("a.csv", ROWS + ",positive\n"), test_size=0, validation_size=0)
    assert task.train.inputs[20] == ""
    assert any("1 of 21 inputs in train are empty; they are kept" in note for note in task.notes)


def test_a_column_that_is_not_there(write: Callable[..., Path]) -> None:
    path = write("a.csv", ROWS)
    with pytest.raises(TaskError, match=r"no column 'lable'\. Did you mean 'label'\? It has: text, label"):
        Task.from_table(path, label="lable")
    with pytest.raises(TaskError, match=r"no column 'TEXT'\. Did you mean 'text'"):
        Task.from_table(path, text="TEXT")
    with pytest.raises(TaskError, match="no column 'where'"):
        Task.from_table(path, split="where")


def test_a_column_that_only_the_first_file_has(write: Callable[..., Path]) -> None:
    train, test = write("train.csv", ROWS), write("test.csv", "text,other\nx,y\n")
    with pytest.raises(TaskError, match=r"test\.csv has no column 'label'"):
        Task.from_table({"train": train, "test": [test]})


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
    "a.docx": (b"x", {}, "is no table"),
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
    with pytest.raises(TaskError, match="no encoding that Python knows"):
        Task.from_table(path, encoding="latin-99")


def test_missing_values_of_a_frame() -> None:
    frame = pd.DataFrame({"text": ["a", None, "c", "d"], "label": [0, 1, None, 1]})
    task = Task.from_table(frame, test_size=0, validation_size=0)
    assert list(task.train.inputs) == ["a", "", "d"]
    assert task.target_names == ("0", "1")


def test_a_missing_file_offers_a_neighbour(write: Callable[..., Path]) -> None:
    path = write("reviews.csv", ROWS)
    with pytest.raises(TaskError, match=r"Did you mean .*reviews\.csv"):
        Task.from_table(path.parent / "review.csv")


def test_tab_separated_text_without_quoting(write: Callable[..., Path]) -> None:
    path = write("a.tsv", 'text\tlabel\n"so\ta\nnot "so"\tb\n')
    task = Task.from_table(path, text="text", test_size=0, validation_size=0)
    assert list(task.train.inputs) == ['"so', 'not "so"']


def test_quoted_line_breaks_and_long_cells(write: Callable[..., Path]) -> None:
    long = "word " * 50_000
    path = write("a.csv", f'text,label,\n"one\ntwo, ""three""",a,\n{long},b,\n\n')
    task = Task.from_table(path, test_size=0, validation_size=0)
    assert list(task.train.inputs) == ['one\ntwo, "three"', long]


def test_columns_whose_names_hold_commas(write: Callable[..., Path]) -> None:
    path = write("a.csv", 'text,"x, y"\n' + "".join(f"a b c {i},{i}.5\n" for i in range(10)))
    assert Task.from_table(path, label="x, y").target_names == ("x, y",)
    frame = pd.DataFrame({"text": ["a", "b"] * 5, 7: ["u", "v"] * 5})
    assert Task.from_table(frame, label=7).target_names == ("u", "v")


def test_images_that_lie_elsewhere(tmp_path: Path, image_folder: Callable[..., Path]) -> None:
    folder = image_folder({"a": 5, "b": 5})
    rows = "".join(f"{name}/{number:03d}.png,{name}\n" for name in "ab" for number in range(5))
    table = tmp_path / "tables" / "labels.csv"
    table.parent.mkdir()
    table.write_text("file,label\n" + rows)
    with pytest.raises(TaskError, match=r"image_root="):
        Task.from_table(table)
    task = Task.from_table(table, image_root=folder)
    assert task.train.inputs[0].mode == "RGB"
    assert Task.reopen(task.source) == task
    frame = pd.read_csv(table)
    assert Task.from_table(frame, image_root=folder).fingerprint == task.fingerprint
    with pytest.raises(TaskError, match="There is no"):
        Task.from_table(table, image_root=tmp_path / "nowhere")


def test_labels_that_look_like_several_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    labels = ["big;red", "big", "red", "small;red"]
    path.write_text("text,label\n" + "".join(f"word {row},{labels[row % 4]}\n" for row in range(40)))
    task = Task.from_table(path)
    assert task.kind == "classification"
    assert any("'big;red'" in note and "multilabel" in note for note in task.notes)
    assert not any("multilabel" in note for note in Task.from_table(path, kind="classification").notes)
    assert Task.from_table(path, kind="multilabel").target_names == ("big", "red", "small")


def test_rows_that_are_all_marked_train_are_not_split_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label,split\n" + "".join(f"word {row},{'ab'[row % 2]},train\n" for row in range(40)))
    task = Task.from_table(path)
    assert any("every row as train" in note and "test_size=0" in note for note in task.notes)
    whole = Task.from_table(path, validation_size=0, test_size=0)
    assert len(whole.train) == 40
    assert not any("every row as train" in note for note in whole.notes)
