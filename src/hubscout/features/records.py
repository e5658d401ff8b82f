"""The small files beside the shards of a cache folder: what the folder holds, and one record per finished shard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hubscout.credentials import strip_credentials
from hubscout.errors import CorruptCacheError
from hubscout.features.shards import ShardData

ABOUT = "about.json"
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class About:
    """What a cache folder holds: `description` is what its key was made from, `shard_rows` the samples per shard.

    For people and lists; nothing is read by it.
    """

    description: Mapping[str, str]
    layer: str
    shard_rows: tuple[int, ...]
    samples_per_second: float = 0.0

    def encode(self) -> bytes:
        """As the content of a file."""
        return strip_credentials(json.dumps(asdict(self), indent=1, sort_keys=True)).encode()

    @classmethod
    def decode(cls, content: bytes) -> About:
        """Out of a file; one that is none raises `CorruptCacheError`."""
        try:
            found = json.loads(content)
            return cls(
                description={str(name): str(value) for name, value in found["description"].items()},
                layer=str(found["layer"]),
                shard_rows=tuple(int(rows) for rows in found["shard_rows"]),
                samples_per_second=float(found["samples_per_second"]),
            )
        except _UNREADABLE as error:
            raise CorruptCacheError(f"no description of a cache folder: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class ShardRecord:
    """One finished shard: its file with size and hash, the samples that could not be read, and its probe."""

    file: str
    size_bytes: int
    sha256: str
    skipped: tuple[int, ...]
    probe: str

    def encode(self) -> bytes:
        """As the content of a file."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def decode(cls, content: bytes) -> ShardRecord:
        """Out of a file; one that is none raises `CorruptCacheError`."""
        try:
            found = json.loads(content)
            name = str(found["file"])
            if Path(name).name != name:
                raise ValueError(f"file name {name!r} leads out of the folder")
            return cls(
                file=name,
                size_bytes=int(found["size_bytes"]),
                sha256=str(found["sha256"]),
                skipped=tuple(int(row) for row in found["skipped"]),
                probe=str(found["probe"]),
            )
        except _UNREADABLE as error:
            raise CorruptCacheError(f"no record of a shard: {type(error).__name__}: {error}") from error


def encode_shard(data: ShardData, arrays: Mapping[str, np.ndarray], probe: str) -> tuple[bytes, ShardRecord]:
    """A shard as the content of its file, and its record.

    The file is named after its content, so that two runs that make the same shard never write into one another's.
    """
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    sha256 = hashlib.sha256(content).hexdigest()
    name = f"{shard_stem(data.index)}-{sha256[:12]}.safetensors"
    return content, ShardRecord(name, len(content), sha256, data.skipped, probe)


def shard_stem(index: int) -> str:
    """How the names of a shard's files start.

    >>> shard_stem(7)
    '00007'
    """
    return f"{index:05d}"
