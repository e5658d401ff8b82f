from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile

from hubscout.errors import TaskError
from hubscout.tasks import Task
from hubscout.tasks.images import Images, readable_endings

Maker = Callable[..., Path]


def test_a_folder_per_class(image_folder: Maker) -> None:
    task = Task.from_image_folder(image_folder({"dog": 20, "cat": 30}))
    assert (task.kind, task.modality, task.target_names) == ("classification", "image", ("cat", "dog"))
    assert {split: len(part) for split, part in task.splits.items()} == {"train": 35, "validation": 5, "test": 10}
    np.testing.assert_array_equal(np.bincount(task.test.targets), [6, 4])
    assert task.train.inputs[0].size == (8, 8)
    assert any("split off train" in note for note in task.notes)


def test_images_go_with_their_classes(image_folder: Maker) -> None:
    folder = image_folder({"a": 6, "b": 6})
    task = Task.from_image_folder(folder)
    for part in task.splits.values():
        for row, target in enumerate(part.targets):
            path = part.inputs.base.encoded[int(part.inputs.rows[row])]
            assert path.parent.name == task.target_names[target]


def test_splits_above_the_classes(image_folder: Maker) -> None:
    folder = image_folder({"train/a": 5, "train/b": 5, "val/a": 2, "val/b": 1, "test/a": 3, "extra": 1})
    task = Task.from_image_folder(folder)
    assert [len(part) for part in task.splits.values()] == [10, 3, 3]
    assert any("'extra'" in note for note in task.notes)


def test_classes_may_be_called_like_splits(image_folder: Maker) -> None:
    """Folders called test and other hold images themselves: they are classes."""
    task = Task.from_image_folder(image_folder({"test": 5, "other": 5}))
    assert task.target_names == ("other", "test")


def test_splits_without_class_folders(image_folder: Maker) -> None:
    task = Task.from_image_folder(image_folder({"train/a": 10, "train/b": 10, "test": 4}))
    assert task.target_names == ("a", "b")
    assert len(task.test) == 4
    assert any("'test' is left out: it has no class folders" in note for note in task.notes)
    with pytest.raises(TaskError, match=r"splits .*'test', 'train'.* no class folders"):
        Task.from_image_folder(image_folder({"train": 10, "test": 10}, name="flat"))


def test_folders_inside_class_folders_are_spoken_of(image_folder: Maker) -> None:
    task = Task.from_image_folder(image_folder({"cat/persian": 5, "cat/bengal": 5, "dog/pug": 5, "1.0": 5}))
    assert task.target_names == ("1.0", "cat", "dog")
    assert any("what is in 'cat/bengal' has the class 'cat'" in note for note in task.notes)
    plain = Task.from_image_folder(image_folder({"train/a": 5, "train/b": 5}, name="plain"))
    assert not any("of their own" in note for note in plain.notes)


def test_a_folder_of_sounds(tmp_path: Path) -> None:
    for number, name in enumerate(["low/a.wav", "low/b.wav", "high/a.wav", "high/b.WAV", "high/notes.txt"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        wavfile.write(tmp_path / name, 8000, np.full(100, number, dtype=np.int16))
    task = Task.from_image_folder(tmp_path, validation_size=0, test_size=0)
    assert (task.modality, task.target_names, len(task.train)) == ("audio", ("high", "low"), 4)
    assert task.train.inputs[0]["sampling_rate"] == 8000
    assert any("is not a sound (.txt)" in note for note in task.notes)
    Image.new("RGB", (8, 8)).save(tmp_path / "low" / "c.png")
    with pytest.raises(TaskError, match="one class"):
        Task.from_image_folder(tmp_path)


def test_names_that_differ_by_case_are_two_classes(image_folder: Maker) -> None:
    folder = image_folder({"Cat": 4, "cat": 4})
    if len(list(folder.iterdir())) < 2:
        pytest.skip("this file system does not tell case apart")
    assert Task.from_image_folder(folder).target_names == ("Cat", "cat")


def test_hidden_and_other_files_are_left_out(image_folder: Maker) -> None:
    folder = image_folder({"a": 4, "b/deep/er": 4, ".git": 2})
    (folder / "a" / "notes.txt").write_text("no image")
    (folder / "a" / ".DS_Store").write_bytes(b"x")
    task = Task.from_image_folder(folder)
    assert sum(map(len, task.splits.values())) == 8
    assert any("1 file in the class folders is not an image" in note for note in task.notes)


def test_a_class_with_one_image_stays_in_train_and_is_noted(image_folder: Maker) -> None:
    task = Task.from_image_folder(image_folder({"a": 10, "b": 10, "lonely": 1}))
    assert np.bincount(task.train.targets)[2] == 1
    assert any("single example" in note and "'lonely'" in note for note in task.notes)


def test_only_single_images(image_folder: Maker) -> None:
    task = Task.from_image_folder(image_folder({"a": 1, "b": 1}))
    assert [len(part) for part in task.splits.values()] == [2, 0, 0]
    assert any("test is empty" in note for note in task.notes)


def test_fingerprint_is_of_the_content(image_folder: Maker, image_bytes: Callable[..., bytes]) -> None:
    folder = image_folder({"a": 6, "b": 6})
    task = Task.from_image_folder(folder)
    moved = folder.parent / "elsewhere" / "moved"
    shutil.copytree(folder, moved)
    for path in moved.rglob("*.png"):
        os.utime(path, (1, 1))
    assert Task.from_image_folder(moved).fingerprint == task.fingerprint
    assert Task.from_image_folder(moved, seed=1).fingerprint != task.fingerprint
    (moved / "a" / "000.png").write_bytes(image_bytes(999))
    assert Task.from_image_folder(moved).fingerprint != task.fingerprint


def test_fingerprint_sees_a_relabelled_image(image_folder: Maker) -> None:
    folder = image_folder({"train/a": 4, "train/b": 4, "test/a": 1, "val/a": 1})
    before = Task.from_image_folder(folder).fingerprint
    (folder / "train/a/003.png").rename(folder / "train/b/zzz.png")
    assert Task.from_image_folder(folder).fingerprint != before


def test_reopen_and_changed_data(image_folder: Maker, image_bytes: Callable[..., bytes]) -> None:
    folder = image_folder({"a": 6, "b": 6})
    task = Task.from_image_folder(folder, seed=3).subset(5, seed=2).subset(4)
    again = Task.reopen(task.source)
    assert again == task
    np.testing.assert_array_equal(again.train.targets, task.train.targets)
    (folder / "a" / "000.png").write_bytes(image_bytes(999))
    with pytest.raises(TaskError, match="changed since"):
        Task.reopen(task.source)


def test_missing_folder_offers_a_neighbour(image_folder: Maker) -> None:
    folder = image_folder({"a": 1}, name="flowers")
    with pytest.raises(TaskError, match=r"Did you mean .*flowers'"):
        Task.from_image_folder(folder.parent / "flower")
    with pytest.raises(TaskError, match=r"only .* exists"):
        Task.from_image_folder(folder.parent / "no" / "where")


def test_empty_and_flat_folders_and_one_class(tmp_path: Path, image_folder: Maker) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="has no images"):
        Task.from_image_folder(tmp_path / "empty")
    with pytest.raises(TaskError, match="no class folders"):
        Task.from_image_folder(image_folder({".": 3}, name="flat"))
    with pytest.raises(TaskError, match="one class 'only'"):
        Task.from_image_folder(image_folder({"only": 3}, name="single"))
    (tmp_path / "file").write_text("")
    with pytest.raises(TaskError, match="is a file"):
        Task.from_image_folder(tmp_path / "file")


def test_a_broken_image_does_not_stop_the_opening(image_folder: Maker) -> None:
    folder = image_folder({"a": 4, "b": 4})
    (folder / "a" / "000.png").write_bytes(b"\x89PNG broken")
    task = Task.from_image_folder(folder, test_size=0, validation_size=0)
    assert [len(part) for part in task.splits.values()] == [8, 0, 0]
    with pytest.raises(TaskError, match=r"000\.png"):
        task.train.inputs[0]


def test_links_to_folders_above_are_not_followed(image_folder: Maker) -> None:
    folder = image_folder({"a": 4, "b": 4})
    (folder / "a" / "loop").symlink_to(folder, target_is_directory=True)
    assert sum(map(len, Task.from_image_folder(folder).splits.values())) == 8


def test_links_in_a_circle_end_and_no_image_is_taken_twice(image_folder: Maker) -> None:
    root = image_folder({"cat": 6, "dog": 6, "cat/more": 2})
    (root / "everything").symlink_to(root)
    (root / "cat" / "up").symlink_to(root)
    (root / "cat" / "more" / "again").symlink_to(root / "cat" / "more")
    (root / "cat" / "alias").symlink_to(root / "cat" / "more")
    (root / "cat" / "dogs").symlink_to(root / "dog")
    (root / "dog" / "cats").symlink_to(root / "cat")
    (root / "dog" / "more").symlink_to(root / "cat" / "more")
    task = Task.from_image_folder(root)
    assert task.target_names == ("cat", "dog")
    assert sum(map(len, task.splits.values())) == 14
    assert sum(int((np.asarray(split.targets) == 0).sum()) for split in task.splits.values()) == 8
    assert any("not followed" in note for note in task.notes)


def test_links_to_images_elsewhere_are_followed(image_folder: Maker, tmp_path: Path) -> None:
    store = image_folder({"a": 4, "b": 4}, name="store")
    root = tmp_path / "task"
    (root / "cat").mkdir(parents=True)
    (root / "cat" / "stored").symlink_to(store / "a")
    (root / "dog").symlink_to(store / "b")
    task = Task.from_image_folder(root)
    assert sum(map(len, task.splits.values())) == 8
    assert not any("not followed" in note for note in task.notes)
    for split in ("train", "test"):
        (tmp_path / "by-split" / split).mkdir(parents=True)
        for name in ("a", "b"):
            (tmp_path / "by-split" / split / name).symlink_to(store / name)
    assert len(Task.from_image_folder(tmp_path / "by-split").test) == 8


def test_folders_around_the_classes_are_seen_through(image_folder: Maker) -> None:
    """As archives unpack: seg_train/seg_train/CLASS beside seg_test/seg_test/CLASS."""
    counts = {f"seg_{split}/seg_{split}/{name}": 4 for split in ("train", "test") for name in ("forest", "sea")}
    folder = image_folder({**counts, "seg_pred/seg_pred": 3})
    task = Task.from_image_folder(folder)
    assert task.target_names == ("forest", "sea")
    assert (len(task.train) + len(task.validation), len(task.test)) == (8, 8)
    assert any("seg_pred" in note for note in task.notes)
    alone = Task.from_image_folder(folder / "seg_train")
    assert alone.target_names == ("forest", "sea")
    assert any("'seg_train', the only folder" in note for note in alone.notes)


def test_a_folder_with_images_in_it_is_not_seen_through(image_folder: Maker) -> None:
    folder = image_folder({"only": 3, "only/a": 3, "only/b": 3})
    with pytest.raises(TaskError, match="one class 'only'"):
        Task.from_image_folder(folder)


def test_files_that_need_a_plug_in_are_named(image_folder: Maker) -> None:
    folder = image_folder({"a": 4, "b": 4})
    (folder / "a" / "photo.heic").write_bytes(b"\0\0\0\x18ftypheic")
    (folder / "a" / "notes.txt").write_text("x")
    if importlib.util.find_spec("pillow_heif") is None:
        notes = Task.from_image_folder(folder).notes
        assert any("1 .heic file is left out: reading it takes the package pillow-heif" in note for note in notes)
        assert any("(.txt)" in note for note in notes)
    else:
        assert len(Images([folder / "a" / "photo.heic"])) == 1


def test_images_of_a_format_with_a_plug_in_are_read_where_it_is(image_folder: Maker) -> None:
    folder = image_folder({"a": 4, "b": 4})
    if ".avif" not in readable_endings():
        pytest.skip("this Pillow reads no AVIF")
    for file in folder.rglob("*.png"):
        Image.open(file).convert("RGB").save(file.with_suffix(".avif"))
        file.unlink()
    task = Task.from_image_folder(folder)
    assert sum(len(part) for part in task.splits.values()) == 8
    assert task.train.inputs[0].mode == "RGB"
