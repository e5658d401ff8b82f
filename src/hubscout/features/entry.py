"""An opened part of the cache: reading and writing the shards of one model on one task.

    about.json                      what the folder holds, for lists
    probe-HASH.npz                  what the model gave for two samples
    00000-HASH.safetensors          a shard
    00000.json                      its record, written after it

A shard counts by its record: when its file has the size and hash that stand there, and the probe that stands there is
one that the model agrees with today. Files are named after their content and records are written whole, so nothing
is read, changed and written back, and no lock is needed for what is in the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from hubscout.errors import CacheError, CorruptCacheError
from hubscout.features.feature_keys import Probe
from hubscout.features.shards import FINAL, LOGITS, ShardData
from hubscout.features.storage import ABOUT, About, Files, ShardRecord, encode_shard, megabytes, shard_stem

_ROWS, _FEATURES, _LOGITS = "rows", "features", "logits"
_PROBE, _PROBE_END = "probe-", ".npz"
_MOST_BYTES_KEPT = 256 << 20


class LayerFolder:
    """The folder of one layer. It is listed once, on opening; `about` is what is written about a new one."""

    def __init__(self, files: Files, about: About) -> None:
        self.files = files
        self.about = about
        files.remove_stale_temporaries()
        self._names = files.names()
        small = files.read_all([name for name in self._names if name.endswith((".json", _PROBE_END))])
        self._described = False
        with contextlib.suppress(KeyError, CorruptCacheError):
            self.about = replace(about, samples_per_second=About.decode(small.pop(ABOUT)).samples_per_second)
            self._described = True
        self.records: dict[int, ShardRecord] = {}
        for name, content in small.items():
            with contextlib.suppress(ValueError, CorruptCacheError):
                self.records[int(name.removesuffix(".json"))] = ShardRecord.decode(content)
        self._probes = {
            name.removeprefix(_PROBE).removesuffix(_PROBE_END): probe
            for name, content in small.items()
            if name.startswith(_PROBE) and (probe := Probe.decode(content)) is not None
        }
        self._probe: bytes | None = None
        self._probe_id = ""
        self._kept: dict[str, bytes] = {}
        """Shards from a URL that were checked: what was fetched to be hashed is not fetched again."""

    def claim(self, probe: Probe) -> bool:
        """Whether shards do not count because the model that made them computed something else than this one.

        `probe` goes with the shards that come.
        """
        same = [name for name, kept in self._probes.items() if probe.agrees_with(kept)]
        if same:
            self._probe_id = same[0]
        else:
            self._probe = probe.encode()
            self._probe_id = hashlib.sha256(self._probe).hexdigest()[:12]
        count = len(self.records)
        self.records = {index: record for index, record in self.records.items() if record.probe in same}
        return len(self.records) < count

    def write(self, data: ShardData, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a shard, then its record; what the record before spoke of goes."""
        content, record = encode_shard(data, arrays, self._probe_id)
        if not self._described:
            self.describe()
        if self._probe is not None:
            self.files.write(f"{_PROBE}{self._probe_id}{_PROBE_END}", self._probe)
            self._probe = None
        stem = shard_stem(data.index)
        self.files.write(record.file, content)
        self.files.write(f"{stem}.json", record.encode())
        self.records[data.index] = record
        for name in self._names:
            if name.startswith(f"{stem}-") and name != record.file:
                with contextlib.suppress(CacheError):
                    self.files.remove(name)

    def describe(self) -> None:
        """Write what the folder holds."""
        self.files.write(ABOUT, self.about.encode())
        self._described = True

    def repair(self) -> None:
        """Describe a folder again whose description was lost, so that it is listed."""
        if self.records and not self._described:
            with contextlib.suppress(CacheError):
                self.describe()

    def read(self, index: int, name: str) -> np.ndarray:
        """One array of a shard."""
        with self._shard(index) as (_, get):
            return get(name)

    def has(self, index: int, name: str) -> bool:
        """Whether a shard has this array."""
        with self._shard(index) as (names, _):
            return name in names

    @contextmanager
    def _shard(self, index: int) -> Iterator[tuple[Collection[str], Callable[[str], np.ndarray]]]:
        """The names of a shard's arrays, and a function that gives one; a file of this machine is not read whole."""
        from safetensors import SafetensorError, safe_open
        from safetensors.numpy import load

        file = self.records[index].file
        try:
            if self.files.local is not None:
                with safe_open(self.files.local / file, framework="numpy") as shard:
                    yield shard.keys(), shard.get_tensor
            else:
                content = self._kept.get(file)
                arrays = load(self.files.read(file) if content is None else content)
                yield arrays.keys(), arrays.__getitem__
        except (OSError, SafetensorError, KeyError, CacheError) as error:
            shown = f"{self.files.shown}/{file}"
            raise CorruptCacheError(f"{shown} was removed or altered during the run: {error}") from error

    def verify(self, record: ShardRecord) -> str | None:
        """What is wrong with a shard's file; None where its size and hash are those that were written."""
        try:
            if self.files.local is not None:
                with (self.files.local / record.file).open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest() if size == record.size_bytes else ""
            else:
                content = self.files.read(record.file)
                size, sha256 = len(content), hashlib.sha256(content).hexdigest()
                if sha256 == record.sha256 and sum(map(len, self._kept.values())) + size <= _MOST_BYTES_KEPT:
                    self._kept[record.file] = content
        except (OSError, CacheError) as error:
            return f"cannot be read ({getattr(error, 'strerror', None) or type(error.__cause__).__name__})"
        if size != record.size_bytes:
            return f"has {megabytes(size)} of {megabytes(record.size_bytes)}"
        return None if sha256 == record.sha256 else "was altered"


class OpenEntry:
    """The shards of a model on a task: a folder for the final features with the logits, one for each tapped layer."""

    def __init__(self, folders: Mapping[str, LayerFolder], tell: Callable[[str], None]) -> None:
        self._folders = folders
        self._tell = tell
        self._valid: dict[str, set[int]] = {layer: set() for layer in folders}

    def check(self, probe: Probe) -> None:
        """Pass over the shards of a model that computes something else, though it looks the same."""
        stale = [
            folder.claim(Probe(probe.rows, _of_layer(probe.arrays, layer))) for layer, folder in self._folders.items()
        ]
        if any(stale):
            self._tell("the cached features are not what the model gives now: they are made again")

    def finished(self, parts: Mapping[int, np.ndarray]) -> dict[int, tuple[np.ndarray, tuple[int, ...]]]:
        """The parts that are there for every layer, each with its samples and the ones left out.

        Files are checked here, once. A broken one is told of, to be made again.
        """
        for layer, folder in self._folders.items():
            folder.repair()
            for index in parts:
                if (record := folder.records.get(index)) is None:
                    continue
                if (fault := folder.verify(record)) is None:
                    self._valid[layer].add(index)
                else:
                    self._tell(f"the cache file {folder.files.name}/{record.file} {fault}: it is made again")
        found = {}
        for index in sorted(set.intersection(*self._valid.values())):
            rows, skipped = self._folders[FINAL].read(index, _ROWS), self._folders[FINAL].records[index].skipped
            if np.array_equal(np.sort(np.concatenate([rows, skipped])), np.sort(parts[index])):
                found[index] = (rows, skipped)
        # What is run again is written again, for every layer.
        self._valid = {layer: valid & set(found) for layer, valid in self._valid.items()}
        return found

    def put(self, data: ShardData) -> None:
        """Write a shard into every folder that lacks it."""
        for layer, folder in self._folders.items():
            if data.index not in self._valid[layer]:
                folder.write(data, {_ROWS: data.rows, **_of_layer(data.arrays, layer)})
                self._valid[layer].add(data.index)

    def read(self, index: int, name: str) -> np.ndarray:
        """One array of one shard."""
        layer, array = _place(name)
        return self._folders[layer].read(index, array)

    def has(self, index: int, name: str) -> bool:
        """Whether the shard is there and has this array."""
        layer, array = _place(name)
        return index in self._valid.get(layer, ()) and self._folders[layer].has(index, array)

    @property
    def samples_per_second(self) -> float:
        """The speed that was measured when the features were made."""
        return self._folders[FINAL].about.samples_per_second

    def note_speed(self, samples_per_second: float) -> None:
        """Keep the measured speed. Not worth failing for."""
        folder = self._folders[FINAL]
        folder.about = replace(folder.about, samples_per_second=samples_per_second)
        try:
            folder.describe()
        except CacheError:
            self._tell("the measured speed could not be kept in the cache")


def _of_layer(arrays: Mapping[str, np.ndarray], layer: str) -> dict[str, np.ndarray]:
    """What the folder of a layer holds of a shard or a probe."""
    names = {_FEATURES: layer, **({_LOGITS: LOGITS} if layer == FINAL else {})}
    return {name: arrays[source] for name, source in names.items() if source in arrays}


def _place(name: str) -> tuple[str, str]:
    """The folder in which an array of a shard lies, and its name there."""
    return (FINAL, _LOGITS) if name == LOGITS else (name, _FEATURES)
