from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task

ROWS = "text,label\n" + "".join(f"a good film {i},positive\na bad film {i},negative\n" for i in range(10))


def test_a_split_column(write: Callable[..., Path]) -> None:
    path = write("a.csv", "text,label,split\nx,a,train\ny,b,train\nz,a,dev\nw,b,test\n")
    task = Task.from_table(path)
    assert [list(part.inputs) for part in task.splits.values()] == [["x", "y"], ["z"], ["w"]]
    assert sum(len(part) for part in Task.from_table(path, split=False).splits.values()) == 4


def test_rows_of_a_group_stay_together_where_they_are_split_off(write: Callable[..., Path]) -> None:
    rows = "".join(f"a film {row},{'ab'[row % 2]},p{row // 6 if row != 7 else ''}\n" for row in range(120))
    path = write("a.csv", f"text,label,patient_id\n{rows}")
    task = Task.from_table(path, group="patient_id")
    rows_of = [{int(text.split()[2]) for text in part.inputs} - {7} for part in task.splits.values()]
    found = [{row // 6 for row in rows} for rows in rows_of]
    assert all(found)
    assert sum(map(len, found)) == len(set.union(*found)) == 20
    assert sum("whole groups" in note for note in task.notes) == 2
    assert task.source is not None
    assert Task.reopen(task.source) == task
    guessed = Task.from_table(path)
    assert any("say group='patient_id'" in note for note in guessed.notes)
    assert guessed.train.groups is None
    assert guessed == Task.from_table(path.rename(path.with_name("b.csv")), group=None)


def test_groups_in_several_of_the_splits_of_the_data_are_said(write: Callable[..., Path]) -> None:
    rows = "".join(f"a film {row},{'ab'[row % 2]},{row // 6},{'train' if row % 5 else 'test'}\n" for row in range(60))
    path = write("a.csv", f"text,label,user,split\n{rows}")
    assert any(
        "10 of its 10 values in test are in train too, by the data's own splits" in note
        for note in Task.from_table(path, group="user", validation_size=0).notes
    )
    with pytest.raises(TaskError, match=r"has no column 'usr'\. Did you mean 'user'"):
        Task.from_table(path, group="usr")
    with pytest.raises(TaskError, match="holds inputs, labels or splits"):
        Task.from_table(path, group="split")
    one = write("one.csv", "text,label,user\n" + "".join(f"a film {row},{'ab'[row % 2]},me\n" for row in range(60)))
    assert any("too large or too few" in note for note in Task.from_table(one, group="user").notes)


def test_labels_that_are_amounts_with_a_comma_are_pointed_out(write: Callable[..., Path]) -> None:
    path = write("a.csv", "text;price\n" + "".join(f"a film {row};{row % 7},{row % 9}\n" for row in range(40)))
    notes = Task.from_table(path).notes
    assert any("labels such as '0,0' look like amounts" in note for note in notes)
    assert not any("look like several in one" in note for note in notes)


def test_words_for_a_missing_number_make_no_classes_of_the_others(write: Callable[..., Path]) -> None:
    rows = "".join(f"a film {row},{'N/A' if row % 4 == 0 else row / 2}\n" for row in range(40))
    task = Task.from_table(write("a.csv", f"text,price\n{rows}"))
    assert (task.kind, sum(map(len, task.splits.values()))) == ("regression", 30)
    assert any("'N/A' counts as missing in column 'price'" in note for note in task.notes)
    rows = "".join(f"a film {row},{('1', '2', 'none')[row % 3]}\n" for row in range(40))
    assert Task.from_table(write("b.csv", f"text,class\n{rows}")).target_names == ("1", "2", "none")


def test_what_may_be_wrong_with_labels_is_said(write: Callable[..., Path]) -> None:
    rows = "".join(f"a film {row},{('Dog', 'dog', 'cat')[row % 3]}\n" for row in range(30))
    notes = Task.from_table(write("a.csv", f"text,label\n{rows}")).notes
    assert any("differ in capital letters alone are different ones: 'Dog', 'dog'" in note for note in notes)
    headless = Task.from_table(write("b.csv", "".join(f"a film {row},{'ab'[row % 2]}\n" for row in range(30))))
    assert any("'a' is a label too: if it is a row of data" in note for note in headless.notes)
    with pytest.raises(TaskError, match="None of the 3 rows has a value in 'label': check which column"):
        Task.from_table(write("c.csv", "text,label\na,\nb,\nc,\n"))


def test_texts_of_a_script_without_spaces_are_found(write: Callable[..., Path]) -> None:
    path = write("a.csv", "文本,标签\n" + "".join(f"我喜欢这部电影{row},{'好坏'[row % 2]}\n" for row in range(20)))
    task = Task.from_table(path)
    assert (task.modality, task.target_names) == ("text", ("坏", "好"))


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


def test_images_as_bytes_paths_and_mappings_are_one_task(
    tmp_path: Path, image_bytes: Callable[..., bytes], image_table: Callable[..., Path]
) -> None:
    whole = Task.from_table(image_table())
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


def test_a_test_file_without_labels_counts_as_no_test_split(write: Callable[..., Path]) -> None:
    train, test = write("d/train.csv", ROWS), write("d/test.csv", "text,id\nx,1\ny,2\n")
    alone, task = Task.from_table(train), Task.from_table(train.parent)
    assert task == alone
    assert any("test.csv has no column 'label'" in note and "left out" in note for note in task.notes)
    frames = {"train": pd.read_csv(train), "test": pd.read_csv(test)}
    assert Task.from_table(frames, text="text", label="label") == alone


def test_a_column_that_only_the_first_file_has(write: Callable[..., Path]) -> None:
    first, second = write("train-0.csv", ROWS), write("train-1.csv", "text,other\nx,y\n")
    with pytest.raises(TaskError, match=r"train-1\.csv has no column 'label', which train-0\.csv has"):
        Task.from_table({"train": [first, second]})
    test = write("test.csv", "label\npositive\n")
    with pytest.raises(TaskError, match=r"test\.csv has no column 'text', which train-0\.csv has"):
        Task.from_table({"test": test, "train": first})


def test_a_missing_file_offers_a_neighbour(write: Callable[..., Path]) -> None:
    path = write("reviews.csv", ROWS)
    with pytest.raises(TaskError, match=r"Did you mean .*reviews\.csv"):
        Task.from_table(path.parent / "review.csv")


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


@pytest.mark.parametrize("record", ["ranking.json", "tuning.json", "race.json"])
def test_the_folder_of_a_run_is_no_data(tmp_path: Path, record: str) -> None:
    for name in (record, "events.jsonl"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(TaskError, match=r"is the folder of a run \(it has \w+\.json\): give the data first"):
        Task.from_table(tmp_path)
