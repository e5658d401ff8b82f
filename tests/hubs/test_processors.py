"""Recordings and images as the model's own processor prepares them."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from hubscout.errors import InputError
from hubscout.hubs import load


def test_audio_is_resampled_and_mixed(wav2vec2):
    preprocessing = load(f"file:{wav2vec2}").preprocessing
    stereo = {"array": np.ones((2, 4000), dtype=np.float32), "sampling_rate": 8_000}
    assert preprocessing(stereo).shape == (8000,)
    with pytest.raises(InputError, match="sampling_rate"):
        preprocessing(np.zeros(10))


def test_an_image_is_not_a_text(bert):
    with pytest.raises(InputError, match="Expected a text"):
        load(f"file:{bert}").preprocessing(Image.new("RGB", (4, 4)))
