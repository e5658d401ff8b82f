from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
import torch

from hubscout.errors import InputError
from hubscout.hubs.image_preprocessing import ImageConfig, ImagePreprocessing, check_image, normalise


def test_pixels_are_what_timm_gives(image):
    from timm.data import create_transform

    config = ImageConfig(input_size=(3, 96, 96), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), crop_pct=0.9)
    ours = ImagePreprocessing(config)
    batch = ours.collate([ours(image), ours(image.rotate(90))])
    assert batch["pixel_values"].dtype == torch.uint8
    theirs = create_transform(input_size=96, mean=config.mean, std=config.std, crop_pct=0.9, interpolation="bicubic")
    expected = torch.stack([theirs(image), theirs(image.rotate(90))])
    found = normalise(batch["pixel_values"], torch.tensor(config.mean), torch.tensor(config.std))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_models_that_differ_in_mean_alone_share_their_decoded_images():
    one, other = (ImagePreprocessing(ImageConfig(mean=(m,) * 3)) for m in (0.4, 0.5))
    assert one.key == other.key
    assert one.key != ImagePreprocessing(ImageConfig(crop_pct=1.0)).key
    assert one.key != one.augmented().key


def test_augmentation_is_random_and_keeps_the_shape(image):
    augmented = ImagePreprocessing(ImageConfig(input_size=(3, 64, 64))).augmented()
    first, second = augmented(image), augmented(image)
    assert first.shape == second.shape == (3, 64, 64)
    assert not np.array_equal(first, second)


def test_only_decoded_images_are_taken(image):
    """A file that a hub opened by itself would be seen otherwise than ranking and tuning see it."""
    reference = np.asarray(image)
    for form in (image, reference):
        np.testing.assert_array_equal(np.asarray(check_image(form)), reference)
    assert check_image(image, channels=1).mode == "L"
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    refused = (reference.astype(np.float32), 3, "a.png", buffer.getvalue(), image.convert("RGBA"), image.convert("P"))
    for wrong in refused:
        with pytest.raises(InputError, match="takes a decoded image"):
            check_image(wrong)


def test_it_travels_to_other_processes(image):
    preprocessing = ImagePreprocessing(ImageConfig(input_size=(3, 48, 48)))
    again = pickle.loads(pickle.dumps(preprocessing))
    assert again.key == preprocessing.key
    np.testing.assert_array_equal(again(image), preprocessing(image))


def test_options_on_images():
    config = ImageConfig().updated({"input_size": 240, "mean": 0.5, "std": (0.1, 0.2, 0.3)})
    assert config.input_size == (3, 240, 240)
    assert config.mean == (0.5, 0.5, 0.5)
    for options, message in (
        ({"std": 0}, "positive"),
        ({"mean": (1, 2)}, "2 numbers"),
        ({"input_size": (1,) * 4}, "side"),
    ):
        with pytest.raises(InputError, match=message):
            ImageConfig().updated(options)
