from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from hubscout.checking.duplicates import equal_groups, near_groups


def picture(seed: int) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (7, 7, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((120, 90), Image.Resampling.BICUBIC)


def sketch(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("L").resize((16, 16), Image.Resampling.BOX), dtype=np.float32)


def compressed(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=40)
    return Image.open(io.BytesIO(buffer.getvalue()))


def brighter(image: Image.Image) -> Image.Image:
    return Image.fromarray(np.clip(np.asarray(image).astype(int) + 8, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("change", [compressed, brighter, lambda image: image.resize((64, 48))])
def test_the_same_picture_after_a_change_is_found_and_others_are_not(change) -> None:
    pictures = [picture(seed) for seed in range(60)]
    sketches = {number: sketch(image) for number, image in enumerate([*pictures, *map(change, pictures[:10])])}
    groups = near_groups(sketches)
    assert sorted(groups) == [(number, 60 + number) for number in range(10)]


def test_empty_pictures_are_not_compared() -> None:
    assert near_groups({number: np.full((16, 16), 255.0, dtype=np.float32) for number in range(5)}) == []
    assert near_groups({}) == []


def test_groups_of_equal_keys() -> None:
    assert equal_groups(enumerate("abcab")) == [(0, 3), (1, 4)]
