"""Recordings to what an audio model takes: its own sampling rate and features."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.hubs.backbone import Batch

LENGTHS = "lengths"
"""The key of the number of samples of each recording before padding."""


class AudioPreprocessing:
    """A transformers feature extractor. Recordings are mixed to one channel and resampled to its rate."""

    def __init__(self, extractor: Any) -> None:
        self.extractor = extractor
        self.input_name: str = extractor.model_input_names[0]
        digest = hashlib.blake2b(extractor.to_json_string().encode(), digest_size=12).hexdigest()
        self.key = f"audio:{digest}"

    def __call__(self, sample: Any) -> np.ndarray:
        """A dictionary of `array` (samples, or channels and samples) and `sampling_rate`."""
        if not isinstance(sample, Mapping) or "array" not in sample or "sampling_rate" not in sample:
            raise InputError(f"Expected a dictionary of 'array' and 'sampling_rate', got {type(sample).__name__}.")
        rate = int(self.extractor.sampling_rate)
        wave = resample(np.asarray(sample["array"], dtype=np.float32), int(sample["sampling_rate"]), rate)
        if wave.size == 0:
            raise InputError("A recording has no samples.")
        return np.asarray(self.extractor(wave, sampling_rate=rate, return_tensors="np")[self.input_name][0])

    def collate(self, samples: Sequence[np.ndarray]) -> Batch:
        import torch

        lengths = [sample.shape[0] for sample in samples]
        padded = np.zeros((len(samples), max(lengths), *samples[0].shape[1:]), dtype=np.float32)
        for row, sample in zip(padded, samples, strict=True):
            row[: len(sample)] = sample
        return {self.input_name: torch.from_numpy(padded), LENGTHS: torch.tensor(lengths)}

    def augmented(self) -> AudioPreprocessing:
        return self


def resample(wave: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """One channel at the wanted rate, by a polyphase filter.

    >>> resample(np.zeros((2, 800), dtype=np.float32), 8000, 16000).shape
    (1600,)
    """
    from scipy.signal import resample_poly

    if wave.ndim > 1:
        wave = wave.mean(int(np.argmin(wave.shape)))
    if rate == wanted:
        return wave
    common = gcd(rate, wanted)
    return resample_poly(wave, wanted // common, rate // common).astype(np.float32)
