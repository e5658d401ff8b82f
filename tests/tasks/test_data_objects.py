"""What people have in their hands: each becomes the task that the files behind it would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hubscout.errors import TaskError
from hubscout.hubs import prepare_torchvision
from hubscout.tasks import Task, open_task

torch = pytest.importorskip("torch")
prepare_torchvision()
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 12, 12, 3), dtype=np.uint8)
NAMES = ["cat", "dog"] * 10


class Pairs(torch.utils.data.Dataset):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> Any:
        return self.items[row]


def test_image_folder_of_torchvision_without_its_transform(image_folder: Callable[..., Path]) -> None:
    datasets, transforms = pytest.importorskip("torchvision.datasets"), pytest.importorskip("torchvision.transforms")
    folder = image_folder({"a": 6, "b": 9})
    plain = open_task(folder)
    dataset = datasets.ImageFolder(folder, transform=transforms.Compose([transforms.ToTensor()]))
    task = open_task(dataset)
    assert (task.kind, task.modality, task.target_names) == ("classification", "image", ("a", "b"))
    assert task.fingerprint == plain.fingerprint
    assert any("transform" in note for note in task.notes)
    assert dataset.transform is not None
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True)
    assert open_task(loader).fingerprint == plain.fingerprint


def test_splits_of_a_mapping_and_subsets(image_folder: Callable[..., Path]) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    whole = datasets.ImageFolder(image_folder({"a": 6, "b": 9}))
    rows = {"train": [0, 1, 2, 8, 9, 10], "val": [3, 11], "test": [4, 12, 13]}
    parts = {name: torch.utils.data.Subset(whole, chosen) for name, chosen in rows.items()}
    task = open_task(parts)
    assert {name: len(part) for name, part in task.splits.items()} == {"train": 6, "validation": 2, "test": 3}
    assert task.target_names == ("a", "b")
    assert task.train.targets.tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_array_equal(np.asarray(task.test.inputs[1]), np.asarray(whole[12][0]))


def test_a_loader_with_a_sampler_of_some_rows() -> None:
    dataset = torch.utils.data.TensorDataset(torch.arange(40.0).reshape(20, 2), torch.tensor([0, 1] * 10))
    sampler = torch.utils.data.SubsetRandomSampler(range(12))
    task = open_task(torch.utils.data.DataLoader(dataset, sampler=sampler))
    assert sum(len(part) for part in task.splits.values()) == 12
    assert task.modality == "array"


def test_data_sets_of_ones_own() -> None:
    pillow = Pairs([(Image.fromarray(pixels), name) for pixels, name in zip(PIXELS, NAMES, strict=True)])
    task = open_task(pillow)
    assert (task.modality, task.target_names) == ("image", ("cat", "dog"))
    tensors = Pairs([(torch.from_numpy(pixels).permute(2, 0, 1) / 255, row % 2) for row, pixels in enumerate(PIXELS)])
    read = open_task(tensors, modality="image", target_names=["cat", "dog"])
    for mine, theirs in zip(read.train.inputs, task.train.inputs, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))
    texts = open_task(Pairs([{"text": f"word {row}", "label": torch.tensor(row % 3)} for row in range(30)]))
    assert (texts.modality, texts.target_names) == ("text", ("0", "1", "2"))


def test_data_sets_that_are_none() -> None:
    with pytest.raises(TaskError, match=r"pair of an input and a label"):
        open_task(Pairs([1, 2, 3]))
    with pytest.raises(TaskError, match=r"keys picture, label"):
        open_task(Pairs([{"picture": 1, "label": 2}]))
    with pytest.raises(TaskError, match="empty"):
        open_task(Pairs([]))

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            yield from ()

    with pytest.raises(TaskError, match="without a length"):
        open_task(Stream())


def test_pairs_and_lists_with_labels(image_folder: Callable[..., Path]) -> None:
    folder = image_folder({"a": 6, "b": 9})
    files = sorted(folder.rglob("*.png"))
    labels = [file.parent.name for file in files]
    expected = open_task(folder).fingerprint
    assert open_task((files, labels)).fingerprint == expected
    assert open_task(files, labels=labels).fingerprint == expected
    as_text = open_task([str(file) for file in files], labels=labels)
    assert as_text.fingerprint == expected
    assert any("image files" in note for note in as_text.notes)
    images = open_task([Image.open(file) for file in files], labels=labels, seed=3)
    assert images.modality == "image"
    assert open_task((np.eye(20), NAMES)).modality == "array"
    assert open_task({"train": (np.eye(20), NAMES), "test": (np.eye(20), NAMES)}).test.inputs.shape == (20, 20)
    with pytest.raises(TaskError, match=r"no option 'colour'.*seed"):
        open_task((np.eye(20), NAMES), colour="red")
    with pytest.raises(TaskError, match="cannot be read as data"):
        open_task(files)
    with pytest.raises(TaskError, match="cannot be read as data"):
        open_task(3)
    with pytest.raises(TaskError, match="no split 'a'"):
        open_task({"a": (np.eye(20), NAMES)})


def test_frames() -> None:
    pandas = pytest.importorskip("pandas")
    columns = {"text": [f"word {row}" for row in range(20)], "label": NAMES}
    expected = Task.from_table(pandas.DataFrame(columns)).fingerprint
    assert open_task(pandas.DataFrame(columns)).fingerprint == expected

    class Series(list):  # the part of polars that is used: its own package need not be installed
        def to_list(self) -> list[Any]:
            return list(self)

    class Frame:
        columns = ("text", "label")

        def __len__(self) -> int:
            return 20

        def get_column(self, name: str) -> Series:
            return Series(columns[name])

    assert open_task(Frame()).fingerprint == expected


def test_a_lazy_frame_of_polars_is_to_be_collected() -> None:
    class LazyFrame:  # the part of polars that is looked at
        @property
        def columns(self) -> list[str]:
            raise AssertionError("a schema that takes long to find out")

    LazyFrame.__module__ = "polars.lazyframe.frame"
    with pytest.raises(TaskError, match=r"A LazyFrame of polars holds no data yet: give what its collect\(\) gives"):
        open_task(LazyFrame())


def test_a_frame_of_polars() -> None:
    polars = pytest.importorskip("polars")
    task = open_task(polars.DataFrame({"text": [f"word {row}" for row in range(20)], "label": NAMES}))
    assert task.target_names == ("cat", "dog")


def test_data_sets_of_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"text": [f"word {row}" for row in range(20)], "label": NAMES}
    whole = datasets.Dataset.from_dict(rows)
    assert open_task(whole).target_names == ("cat", "dog")
    parts = datasets.DatasetDict({"train": whole, "test": whole.select(range(4))})
    assert len(open_task(parts).test) == 4
    assert len(open_task({"train": whole, "test": whole.select(range(4))}).test) == 4


def test_an_array_alone_is_told_that_labels_are_missing() -> None:
    with pytest.raises(TaskError, match=r"An array of shape \(4, 2\) has no labels: give \(inputs, labels\)"):
        open_task(np.zeros((4, 2)))


def test_rows_and_columns_in_plain_lists_are_told_what_to_do() -> None:
    with pytest.raises(TaskError, match=r"list of mappings is a table: give pandas\.DataFrame"):
        open_task([{"text": "a", "label": 1}])
    with pytest.raises(TaskError, match="list of pairs"):
        open_task([("a", 1), ("b", 0)])
    with pytest.raises(TaskError, match=r"'text', 'label', which are no splits: for columns give pandas\.DataFrame"):
        open_task({"text": ["a", "b"], "label": [0, 1]})
