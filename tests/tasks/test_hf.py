from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from hubscout.errors import TaskError
from hubscout.tasks import Task, open_task

datasets = pytest.importorskip("datasets")


def texts(n: int = 20, labels: list[int] | None = None) -> datasets.Dataset:
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    return datasets.Dataset.from_dict(
        {"text": [f"text {i}" for i in range(n)], "label": labels or [i % 2 for i in range(n)]}, features=features
    )


def test_class_labels_get_their_names() -> None:
    task = Task.from_hf(texts())
    assert (task.kind, task.modality, task.target_names) == ("classification", "text", ("neg", "pos"))
    assert sum(map(len, task.splits.values())) == 20
    for text, target in zip(task.train.inputs, task.train.targets, strict=True):
        assert int(text.split()[1]) % 2 == target
    assert task.source is None


def test_selected_and_shuffled_rows_are_followed() -> None:
    chosen = texts().shuffle(seed=1).select(range(10))
    task = Task.from_hf(chosen, test_size=0, validation_size=0)
    assert list(task.train.inputs) == list(chosen["text"])


def test_a_test_split_without_labels_is_left_out() -> None:
    both = datasets.DatasetDict({"train": texts(), "test": texts(6, [-1] * 6), "unsupervised": texts(2)})
    task = Task.from_hf(both)
    said = "\n".join(task.notes)
    assert "6 of 6 rows in test lack a value in 'label'" in said
    assert "no test split" in said
    assert "'unsupervised'" in said
    assert len(task.test) == 4


def test_saved_to_disk_and_reopened(tmp_path: Path) -> None:
    both = datasets.DatasetDict({"train": texts(), "validation": texts(4), "test": texts(6)})
    both.save_to_disk(tmp_path / "set")
    task = open_task(str(tmp_path / "set"))
    assert [len(part) for part in task.splits.values()] == [20, 4, 6]
    assert task == Task.from_hf(both) == Task.reopen(task.source)
    texts().save_to_disk(tmp_path / "one")
    assert open_task(tmp_path / "one") == Task.from_hf(texts())


def test_images_stay_encoded(tmp_path: Path, image_bytes: Callable[..., bytes]) -> None:
    (tmp_path / "a.png").write_bytes(image_bytes(0))
    images = [{"bytes": None, "path": str(tmp_path / "a.png")}] + [
        {"bytes": image_bytes(i), "path": None} for i in range(9)
    ]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    dataset = datasets.Dataset.from_dict({"image": images, "label": [0, 1] * 5}, features=features)
    task = Task.from_hf(dataset, test_size=0, validation_size=0)
    assert task.modality == "image"
    assert task.train.inputs[0].size == (8, 8)
    np.testing.assert_array_equal(np.asarray(task.train.inputs[0]), np.asarray(task.train.inputs[1]))
    same = Task.from_arrays(
        [image_bytes(max(i - 1, 0)) for i in range(10)],
        ["a", "b"] * 5,
        modality="image",
        test_size=0,
        validation_size=0,
    )
    assert same == task


def wave(seed: int, kind: str = "int16") -> bytes:
    buffer = io.BytesIO()
    samples = np.random.default_rng(seed).uniform(-1, 1, 800)
    stored = {"int16": (samples * 32767).astype(np.int16), "uint8": (samples * 127 + 128).astype(np.uint8)}
    wavfile.write(buffer, 8000, stored.get(kind, np.stack([samples, samples], axis=1).astype(np.float32)))
    return buffer.getvalue()


def test_sounds_are_decoded_when_asked_for() -> None:
    sounds = [{"bytes": wave(i), "path": None} for i in range(9)] + [{"bytes": b"RIFF cut", "path": None}]
    dataset = datasets.Dataset.from_dict({"audio": sounds, "label": ["a", "b"] * 5})
    dataset = dataset.cast_column("audio", datasets.Audio())
    task = Task.from_hf(dataset, test_size=0, validation_size=0)
    assert task.modality == "audio"
    sound = task.train.inputs[0]
    assert (sound["sampling_rate"], sound["array"].shape, sound["array"].dtype) == (8000, (800,), np.float32)
    expected = np.random.default_rng(0).uniform(-1, 1, 800)
    np.testing.assert_allclose(sound["array"], expected, atol=1e-4)
    with pytest.raises(TaskError, match=r"row 9.* cannot be decoded"):
        task.train.inputs[9]


@pytest.mark.parametrize(("kind", "tolerance"), [("uint8", 0.02), ("float32", 1e-6)])
def test_wave_files_of_a_table(tmp_path: Path, kind: str, tolerance: float) -> None:
    for i in range(6):
        (tmp_path / f"{i}.wav").write_bytes(wave(i, kind))
    (tmp_path / "a.csv").write_text("path,label\n" + "".join(f"{i}.wav,{'ab'[i % 2]}\n" for i in range(6)))
    task = Task.from_table(tmp_path / "a.csv", test_size=0, validation_size=0)
    assert task.modality == "audio"
    expected = np.random.default_rng(2).uniform(-1, 1, 800)
    np.testing.assert_allclose(task.train.inputs[2]["array"], expected, atol=tolerance)


def test_sequences_of_class_labels_are_tags() -> None:
    tags = datasets.List(datasets.ClassLabel(names=["O", "B-PER", "B-LOC"]))
    features = datasets.Features(
        {"id": datasets.Value("string"), "tokens": datasets.List(datasets.Value("string")), "ner_tags": tags}
    )
    rows = {"id": ["0", "1"] * 5, "tokens": [["Ada", "runs"], ["hm"]] * 5, "ner_tags": [[1, 0], [0]] * 5}
    task = Task.from_hf(datasets.Dataset.from_dict(rows, features=features))
    assert (task.kind, task.target_names) == ("tagging", ("B-PER", "O"))


def test_what_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(TaskError, match="cannot be loaded"):
        Task.from_hf(tmp_path / "nothing" / "here")
    with pytest.raises(TaskError, match="no train split"):
        Task.from_hf(datasets.DatasetDict({"test": texts(), "validation": texts()}))
    with pytest.raises(TaskError, match="two splits"):
        Task.from_hf(datasets.DatasetDict({"train": texts(), "dev": texts(), "val": texts()}))
    with pytest.raises(TaskError, match="Streaming"):
        Task.from_hf(texts().to_iterable_dataset())
    with pytest.raises(TaskError, match="no rows"):
        Task.from_hf(texts().select([]))


def test_what_load_dataset_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that `datasets` reads by its own rules goes the way that an id of the hub goes."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()
    for split, n in (("train", 20), ("test", 6)):
        texts(n).to_parquet(tmp_path / "set" / f"{split}.parquet")
    task = Task.from_hf(tmp_path / "set")
    assert task == Task.from_hf(datasets.DatasetDict({"train": texts(20), "test": texts(6)}))
    assert task == Task.reopen(task.source)
