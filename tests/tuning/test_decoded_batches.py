"""Data that is held: decoded once, on the device, cropped and flipped there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from hubscout.errors import InputError
from hubscout.hubs.image_preprocessing import ImageConfig, ImagePreprocessing
from hubscout.tasks import Task
from hubscout.tuning import tune
from hubscout.tuning.batches import MODEL, BatchPlan
from hubscout.tuning.decoded_batches import HeldBatches, crop_and_flip, fits


class Pictures:
    """Noise of several sizes that counts how often it is read."""

    def __init__(self, count: int) -> None:
        generator = np.random.default_rng(0)
        self.images = [
            Image.fromarray(generator.integers(0, 256, (40 + i % 3, 44, 3), dtype=np.uint8)) for i in range(count)
        ]
        self.reads = 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Image.Image:
        self.reads += 1
        return self.images[index]


@pytest.fixture
def preprocessing() -> ImagePreprocessing:
    return ImagePreprocessing(ImageConfig.from_pretrained_cfg({"input_size": (3, 32, 32)}))


def hold(pictures: Pictures, preprocessing: ImagePreprocessing, *, augment: bool) -> HeldBatches:
    return HeldBatches(pictures, {MODEL: preprocessing}, seed=0, augment=augment, workers=0, device=torch.device("cpu"))


def first_batch(batches: HeldBatches, count: int) -> torch.Tensor:
    plan = BatchPlan(count, count, 0)
    (share,) = batches.train(plan, range(1), 0, 1)
    (pixels,) = share.views[MODEL].values()
    return pixels[share.samples.argsort()]


def test_images_of_a_real_preprocessing_become_one_tensor(preprocessing):
    pictures = Pictures(6)
    held = hold(pictures, preprocessing, augment=False)
    assert held.views[MODEL].images is not None
    assert held.views[MODEL].images.shape == (6, 3, 32, 32)
    expected = np.stack([preprocessing(image) for image in pictures.images])
    np.testing.assert_array_equal(first_batch(held, 6).numpy(), expected)


def test_augmentation_changes_pixels_and_keeps_their_type(preprocessing):
    pictures = Pictures(6)
    plain = first_batch(hold(pictures, preprocessing, augment=False), 6)
    augmented = first_batch(hold(pictures, preprocessing, augment=True), 6)
    assert augmented.dtype == plain.dtype == torch.uint8
    assert all((a != b).any() for a, b in zip(plain, augmented, strict=True))


def test_a_second_run_over_the_same_inputs_reads_nothing(preprocessing):
    pictures = Pictures(6)
    hold(pictures, preprocessing, augment=True)
    reads = pictures.reads
    hold(pictures, preprocessing, augment=False)
    assert pictures.reads == reads == 6


def test_the_whole_image_unmirrored_is_the_image(preprocessing):
    images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    whole = torch.tensor([[0.0, 0.0, 1.0, 1.0, 1.0]]).repeat(2, 1)
    mirrored = torch.tensor([[0.0, 0.0, 1.0, 1.0, -1.0]]).repeat(2, 1)
    assert torch.equal(crop_and_flip(images, whole), images)
    assert torch.equal(crop_and_flip(images, mirrored), images.flip(-1))


@pytest.mark.parametrize(("augment", "said"), [("standard", True), ("none", False)])
def test_crops_beside_numbers_are_mentioned(augment, said):
    pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 16, 3)).astype(np.uint8)
    task = Task.from_arrays(pixels, np.linspace(0, 1, 12), kind="regression", modality="image", name="places")
    tuned = tune(task, "python:tuning_networks:images", method="fine-tune", steps=1, batch_size=4, augment=augment)
    assert any("augment='none'" in note for note in tuned.notes) == said


def test_what_a_preprocessing_does_in_collate_is_done_to_held_data_too(preprocessing):
    class Halved:
        key = "halved"

        def __call__(self, sample):
            return preprocessing(sample)

        def collate(self, samples):
            return {"halves": torch.from_numpy(np.stack(samples)) / 2}

        def augmented(self):
            return self

    pictures = Pictures(6)
    halves = first_batch(hold(pictures, Halved(), augment=False), 6)
    np.testing.assert_array_equal(halves.numpy(), np.stack([preprocessing(one) for one in pictures.images]) / 2)


@pytest.mark.parametrize("sizes", [[8] * 64 + [9] * 64, [8] * 64 + [8, 9]])
def test_arrays_of_several_sizes_are_held_as_they_are(sizes):
    arrays = [np.full((3, size, size), place, np.uint8) for place, size in enumerate(sizes)]

    class AsTheyAre(Held):
        key = "as they are"

    held = hold(arrays, AsTheyAre(), augment=False)
    assert [share.views[MODEL]["inputs"].shape[-1] for share in held.evaluate(np.array([0, len(sizes) - 1]), 1)] == [
        8,
        9,
    ]
    with pytest.raises(InputError, match="one size"):
        hold(arrays, AsTheyAre("another"), augment=True)


class Held:
    """A preprocessing that leaves arrays alone; `other` is the key of its augmentation."""

    key = "held"

    def __init__(self, other: str | None = None) -> None:
        self.other = other

    def __call__(self, sample):
        return sample

    def collate(self, samples):
        return {"inputs": torch.from_numpy(np.stack(samples))}

    def augmented(self):
        found = Held()
        found.key = self.other or self.key
        return found


def test_data_is_held_by_itself_only_if_it_takes_a_quarter_of_the_free_memory(monkeypatch):
    monkeypatch.setattr("hubscout.features.decoded.free_bytes", lambda: 4 * 1000)
    cpu, views = torch.device("cpu"), {MODEL: Held()}
    assert fits([np.zeros(100, np.uint8)] * 10, views, cpu)
    assert not fits([np.zeros(100, np.uint8)] * 11, views, cpu)
    assert not fits([np.zeros(100, np.uint8)] * 10, {**views, "teacher": Held()}, cpu)
    assert not fits([], views, cpu)
    assert not fits([[101, 102]], views, cpu)


@pytest.mark.parametrize("in_memory", [None, True])
def test_a_task_without_validation_can_be_held(in_memory):
    pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 16, 3)).astype(np.uint8)
    whole = Task.from_arrays(pixels, ["a", "b"] * 6, modality="image", name="noise")
    task = replace(whole, splits={"train": whole.train, "test": whole.test}, fingerprint="no validation")
    options = {"method": "fine-tune", "steps": 2, "batch_size": 4, "data_in_memory": in_memory}
    assert tune(task, "python:tuning_networks:images", **options).steps == 2
