"""Sounds, decoded when they are asked for, as `{"array", "sampling_rate"}`."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.errors import TaskError
from hubscout.optional import require
from hubscout.tasks.images import Images
from hubscout.tasks.sequences import Mapped

EXTENSIONS = frozenset({".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif"})


def decode(data: bytes, origin: str) -> dict[str, Any]:
    """One channel of float32 samples in [-1, 1] out of an encoded sound; channels are averaged.

    WAV is read by SciPy; other formats need the package soundfile.
    """
    try:
        if data[:4] in (b"RIFF", b"RIFX", b"RF64"):
            from scipy.io import wavfile

            sampling_rate, samples = wavfile.read(io.BytesIO(data))
            samples = _to_float(samples)
        else:
            soundfile = require("soundfile", extra="audio", purpose="Decoding sounds other than WAV")
            samples, sampling_rate = soundfile.read(io.BytesIO(data), dtype="float32")
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        raise TaskError(
            f"The sound {origin} cannot be decoded ({type(error).__name__}: {error}; {len(data)} bytes). "
            "It is probably cut short or not a sound: replace it or take it out of the data."
        ) from error
    if samples.ndim == 2:
        samples = samples.mean(axis=1)
    return {"array": np.ascontiguousarray(samples, dtype=np.float32), "sampling_rate": int(sampling_rate)}


def _to_float(samples: np.ndarray) -> np.ndarray:
    if samples.dtype.kind == "f":
        return samples
    if samples.dtype == np.uint8:
        return (samples.astype(np.float64) - 128) / 128
    return samples / -float(np.iinfo(samples.dtype).min)


class Sounds(Images):
    """Encoded sounds: each a path, bytes, or a mapping of `bytes` and `path`."""

    def read(self, row: int) -> Any:
        return decode(*self._read(self.encoded[row], row))


class AudioArrays(Mapped):
    """Sounds in memory: mappings of `array` and `sampling_rate`."""

    def __init__(self, sounds: Sequence[Any]) -> None:
        for row, sound in enumerate(sounds):
            if not isinstance(sound, Mapping) or not {"array", "sampling_rate"} <= set(sound):
                raise TaskError(f"Sound {row} must be a mapping of 'array' and 'sampling_rate'; {sound!r:.60} came.")
        super().__init__(sounds, _as_sound)

    def digest(self, row: int) -> bytes:
        """A digest of the samples and their rate."""
        sound = self[row]
        header = f"{sound['array'].dtype.str}{sound['array'].shape}{sound['sampling_rate']}".encode()
        return hashlib.sha256(header + np.ascontiguousarray(sound["array"]).tobytes()).digest()


def _as_sound(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"array": np.asarray(given["array"]), "sampling_rate": int(given["sampling_rate"])}


def is_sound_path(value: Any) -> bool:
    """Whether a cell of a table names a sound file."""
    return isinstance(value, (str, Path)) and Path(value).suffix.lower() in EXTENSIONS
