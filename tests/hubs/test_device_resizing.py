"""Images resized by matrix products are those of Pillow, to the last bit. The device is the CPU, or a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hubscout.hubs import device_resizing
from hubscout.hubs.device_resizing import DECODED, DeviceResizing, pass_weights, resample, resizing_on
from hubscout.hubs.image_preprocessing import PIXELS, ImageConfig, ImagePreprocessing

sides = st.integers(1, 70)
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    """Many pixels at both ends: filters overshoot there, and are cut off."""
    found = np.random.default_rng(seed).integers(-200, 456, shape)
    return np.clip(found, 0, 255).astype(np.uint8)


def prepared(found: DeviceResizing, images: np.ndarray, device: str = "cpu") -> torch.Tensor:
    batch = found.collate([found(Image.fromarray(image)) for image in images])
    return found.resize({name: value.to(device) for name, value in batch.items()})[PIXELS].cpu()


@settings(max_examples=300, deadline=None)
@given(sides, sides, sides, sides, st.sampled_from(list(Image.Resampling)), st.integers(0, 99))
def test_every_pixel_is_that_of_pillow(
    height: int, width: int, high: int, wide: int, method: Image.Resampling, seed: int
) -> None:
    images = noise(2, height, width, 3, seed=seed)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    across, down = (torch.from_numpy(pass_weights(*sizes, method)) for sizes in ((width, wide), (height, high)))
    expected = np.stack([np.asarray(Image.fromarray(image).resize((wide, high), method)) for image in images])
    found = [resample(pixels, across, down, order).permute(0, 2, 3, 1).numpy() for order in (False, True)]
    assert any(np.array_equal(pixels, expected) for pixels in found)  # Pillow chooses which pass comes first


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"])
@pytest.mark.parametrize("size", [(32, 32), (28, 28), (64, 48), (200, 300), (224, 224), (17, 230)])
@pytest.mark.parametrize(
    ("wanted", "crop_pct", "crop_mode"),
    [((224, 224), 0.875, "center"), ((160, 96), 0.95, "center"), ((99, 99), 1.0, "squash")],
)
def test_a_model_sees_the_same_pixels(
    device: str, interpolation: str, size: tuple[int, int], wanted: tuple[int, int], crop_pct: float, crop_mode: str
) -> None:
    config = ImageConfig((3, *wanted), interpolation=interpolation, crop_pct=crop_pct, crop_mode=crop_mode)
    steps, images = ImagePreprocessing(config), noise(3, *size, 3)
    found = resizing_on(device, steps, images.shape[1:])
    assert found is not None
    expected = steps.collate([steps(Image.fromarray(image)) for image in images])[PIXELS]
    pixels = prepared(found, images, device)
    assert torch.equal(pixels, expected)
    assert pixels.is_contiguous(memory_format=torch.channels_last)


def test_images_are_resized_in_parts_where_memory_would_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, images = ImagePreprocessing(ImageConfig((3, 20, 20))), noise(7, 12, 12, 3)
    found = resizing_on("cpu", steps, (12, 12, 3))
    assert found is not None
    whole = prepared(found, images)
    monkeypatch.setattr(device_resizing, "MOST_BYTES", 3 * 20 * 20 * 3 * 8)
    asked: list[int] = []
    real = device_resizing.resample

    def counted(pixels: torch.Tensor, *rest: Any) -> torch.Tensor:
        asked.append(len(pixels))
        return real(pixels, *rest)

    monkeypatch.setattr(device_resizing, "resample", counted)
    assert torch.equal(prepared(found, images), whole)
    assert asked == [3, 3, 1]
    smaller = resizing_on("cpu", ImagePreprocessing(ImageConfig((3, 8, 8))), (20, 20, 3))
    assert smaller is not None
    asked.clear()
    prepared(smaller, noise(7, 20, 20, 3))
    assert asked == [3, 3, 1]  # by the larger of the two sizes


def test_images_of_the_right_size_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_resizing, "resample", None)
    images = noise(7, 20, 20, 3)
    found = resizing_on("cpu", ImagePreprocessing(ImageConfig((3, 20, 20), crop_pct=1.0)), (20, 20, 3))
    assert found is not None
    assert np.array_equal(prepared(found, images).permute(0, 2, 3, 1).numpy(), images)


def test_a_batch_with_another_size_is_resized_by_pillow() -> None:
    steps = ImagePreprocessing(ImageConfig((3, 20, 20)))
    found = resizing_on("cpu", steps, (12, 12, 3))
    assert found is not None
    images = [found(noise(12, 12, 3)), found(noise(12, 30, 3))]
    batch = found.collate(images)
    assert DECODED not in batch
    assert torch.equal(found.resize(batch)[PIXELS], steps.collate([steps(image) for image in images])[PIXELS])


class Own(ImagePreprocessing):
    """Of somebody else: what it does with an image cannot be known."""


@pytest.mark.parametrize(
    ("steps", "shape"),
    [
        (ImagePreprocessing(ImageConfig((3, 40, 40), crop_mode="border")), (12, 20, 3)),  # padded with a colour
        (ImagePreprocessing(ImageConfig((3, 40, 40), crop_pct=1.3)), (12, 12, 3)),  # padded with black
        (ImagePreprocessing(ImageConfig((1, 40, 40), mean=(0.5,), std=(0.5,))), (12, 12, 3)),  # grey
        (ImagePreprocessing(ImageConfig((3, 40, 40)), training=True), (12, 12, 3)),
        (ImagePreprocessing(ImageConfig((3, 40, 40))), (257, 256, 3)),  # more to send than after resizing
        (Own(ImageConfig((3, 40, 40))), (12, 12, 3)),
        (lambda sample: sample, (12, 12, 3)),
    ],
)
def test_what_is_not_reproduced_is_left_to_pillow(steps: Any, shape: tuple[int, ...]) -> None:
    assert resizing_on("cpu", steps, shape) is None


def test_a_device_that_rounds_otherwise_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = ImagePreprocessing(ImageConfig((3, 40, 40)))
    assert resizing_on("cpu", steps, (12, 12, 3)) is not None
    monkeypatch.setattr(
        device_resizing, "_pass", lambda weights, pixels: (weights[:, :-1].float() @ pixels.float()).to(torch.uint8)
    )
    assert resizing_on("cpu", steps, (12, 12, 3)) is None
