"""The list of finished shards of one cache folder, each with its size and hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.credentials import strip_credentials
from hubscout.errors import CorruptCacheError
from hubscout.features.shards import ShardData
from hubscout.features.storage import write_atomically

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class ShardRecord:
    """One finished shard: `rows` samples, less those that could not be read."""

    file: str
    bytes: int
    sha256: str
    rows: int
    skipped: tuple[int, ...] = ()


def encode_shard(data: ShardData, arrays: Mapping[str, np.ndarray]) -> tuple[bytes, ShardRecord]:
    """A shard as the content of its file, and the record that the content is checked by."""
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    return content, ShardRecord(
        file=f"{data.index:05d}.safetensors",
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        rows=len(data.rows),
        skipped=data.skipped,
    )


@dataclass(frozen=True)
class Manifest:
    """What a cache folder holds. `about` is the description its key was made from."""

    about: Mapping[str, str]
    layer: str
    shards_expected: int
    shards: Mapping[int, ShardRecord] = field(default_factory=dict)
    samples_per_second: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether every shard is there."""
        return len(self.shards) >= self.shards_expected

    @property
    def bytes(self) -> int:
        """Bytes of all shards."""
        return sum(record.bytes for record in self.shards.values())

    @property
    def rows(self) -> int:
        """Samples in all finished shards."""
        return sum(record.rows for record in self.shards.values())

    def with_shard(self, index: int, record: ShardRecord) -> Manifest:
        """The same with one more shard."""
        return replace(self, shards={**self.shards, index: record})

    def without(self, index: int) -> Manifest:
        """The same without a shard."""
        return replace(self, shards={number: record for number, record in self.shards.items() if number != index})

    def write(self, folder: Path) -> None:
        """Put it into its folder, in place of the one before."""
        content = {**asdict(self), "shards": {str(index): asdict(record) for index, record in self.shards.items()}}
        text = strip_credentials(json.dumps(content, indent=1, sort_keys=True))
        write_atomically(folder / MANIFEST, text.encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read it back; a file that is no manifest raises `CorruptCacheError`."""
        path = folder / MANIFEST
        try:
            content = json.loads(path.read_bytes())
            shards = {int(index): read_record(record) for index, record in content["shards"].items()}
            return cls(
                about={str(name): str(value) for name, value in content["about"].items()},
                layer=str(content["layer"]),
                shards_expected=int(content["shards_expected"]),
                shards=shards,
                samples_per_second=float(content["samples_per_second"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptCacheError(f"{path} is no cache manifest: {type(error).__name__}: {error}") from error


def read_record(content: Mapping[str, Any]) -> ShardRecord:
    """A shard out of its JSON; a file that is no record raises one of the errors of its values."""
    name = str(content["file"])
    if Path(name).name != name:
        raise ValueError(f"file name {name!r} leads out of the folder")
    return ShardRecord(
        file=name,
        bytes=int(content["bytes"]),
        sha256=str(content["sha256"]),
        rows=int(content["rows"]),
        skipped=tuple(int(row) for row in content["skipped"]),
    )
