"""An opened part of the cache: reading and writing the shards of one model on one task."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from filelock import FileLock

from hubscout.errors import CacheError, CorruptCacheError
from hubscout.features.manifest import MANIFEST, Manifest, ShardRecord, encode_shard
from hubscout.features.probe import Probe
from hubscout.features.shards import FINAL, LOGITS, ShardData
from hubscout.features.storage import megabytes, remove_stale_temporaries, write_atomically

_ROWS, _FEATURES, _LOGITS = "rows", "features", "logits"
PROBE = "probe.npz"


class LayerFolder:
    """The folder of one layer. `empty` is the manifest of a new one; `lock` guards changes of the manifest."""

    def __init__(self, folder: Path, empty: Manifest, lock: FileLock) -> None:
        self.folder = folder
        self._empty = empty
        self._lock = lock
        self._probe: Probe | None = None

    def claim(self, probe: Probe) -> bool:
        """Whether shards were struck out because the model that made them computed something else than this one.

        `probe` goes with the shards that come.
        """
        self._probe = probe
        if not self._is_stale(probe):
            return False
        try:
            with self._changing():
                if self._is_stale(probe):  # still: another worker may have been here
                    self._clear()
                    self._write_probe(probe)
        except OSError as error:
            raise CacheError(f"{self.folder} is out of date and cannot be changed: {error.strerror}") from error
        return True

    def manifest(self) -> Manifest:
        """The manifest as it is on disk now; an empty one where there is none yet."""
        if not (self.folder / MANIFEST).exists():
            return self._empty
        return Manifest.read(self.folder)

    def change(self, change: Callable[[Manifest], Manifest]) -> None:
        """Read, change and write the manifest, while no other process does."""
        with self._changing():
            try:
                manifest = self.manifest()
            except CorruptCacheError:
                manifest = self._empty
            # A later run may know of more shards than the one that made the folder.
            change(replace(manifest, shards_expected=self._empty.shards_expected)).write(self.folder)

    def write(self, data: ShardData, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a shard and enter it into the manifest."""
        content, record = encode_shard(data, arrays)
        self._place_probe()
        write_atomically(self.folder / record.file, content)
        self.change(lambda manifest: manifest.with_shard(data.index, record))

    def read(self, index: int, name: str) -> np.ndarray:
        """One array of a shard."""
        from safetensors import SafetensorError, safe_open

        path = self.folder / f"{index:05d}.safetensors"
        try:
            with safe_open(path, framework="numpy") as file:
                return file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise CorruptCacheError(f"{path} was removed or altered during the run: {error}") from error

    def has(self, index: int, name: str) -> bool:
        """Whether a shard is there with this array."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.folder / f"{index:05d}.safetensors", framework="numpy") as file:
                return name in file.keys()  # noqa: SIM118 - not a mapping
        except (OSError, SafetensorError):
            return False

    def verify(self, record: ShardRecord) -> str | None:
        """What is wrong with a shard's file; None where its size and hash are those that were written."""
        path = self.folder / record.file
        try:
            size = path.stat().st_size
            if size != record.bytes:
                return f"has {megabytes(size)} of {megabytes(record.bytes)}"
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != record.sha256:
                    return "was altered"
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        return None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Nobody else changes the folder meanwhile."""
        try:
            self._lock.acquire()
        except (OSError, NotImplementedError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CacheError(f"cannot lock the cache folder {self.folder}: {reason}") from error
        try:
            yield
        finally:
            self._lock.release()

    def _is_stale(self, probe: Probe) -> bool:
        kept = self._read_probe()
        if kept is not None and probe.agrees_with(kept):
            return False
        try:
            return bool(self.manifest().shards)
        except CorruptCacheError:
            return False  # it is told of, and made again

    def _clear(self) -> None:
        replace(self.manifest(), shards={}).write(self.folder)

    def _read_probe(self) -> Probe | None:
        try:
            return Probe.decode((self.folder / PROBE).read_bytes())
        except OSError:
            return None

    def _write_probe(self, probe: Probe) -> None:
        write_atomically(self.folder / PROBE, probe.encode())

    def _place_probe(self) -> None:
        """Before the first shard: one without a probe does not count."""
        if self._probe is not None:
            with self._changing():
                if self._read_probe() is None:
                    self._write_probe(self._probe)
            self._probe = None


class OpenEntry:
    """The shards of a model on a task: a folder for the final features with the logits, one for each tapped layer."""

    def __init__(self, folders: Mapping[str, LayerFolder], tell: Callable[[str], None]) -> None:
        self._folders = folders
        self._tell = tell
        self._valid: dict[str, set[int]] = {layer: set() for layer in folders}

    def check(self, probe: Probe) -> None:
        """Strike out the shards of a model that computes something else, though it looks the same."""
        stale = [folder.claim(_of_layer(probe, layer)) for layer, folder in self._folders.items()]
        if any(stale):
            self._tell("the cached features are not what the model gives now: they are made again")

    def finished(self, parts: Mapping[int, np.ndarray]) -> dict[int, tuple[np.ndarray, tuple[int, ...]]]:
        """The parts that are there for every layer, each with its samples and the ones left out.

        Files are checked here, once. A broken one is told of and struck from the list, to be made again.
        """
        for layer, folder in self._folders.items():
            remove_stale_temporaries(folder.folder)
            try:
                manifest = folder.manifest()
            except CorruptCacheError:
                self._tell(f"the cache folder {folder.folder.name} has a broken manifest: it is made again")
                continue
            for index in parts:
                if (record := manifest.shards.get(index)) is None:
                    continue
                if (fault := folder.verify(record)) is None:
                    self._valid[layer].add(index)
                else:
                    self._tell(f"the cache file {folder.folder.name}/{record.file} {fault}: it is made again")
                    with contextlib.suppress(CacheError):  # a read-only cache keeps its broken shard
                        folder.change(lambda manifest, index=index: manifest.without(index))  # type: ignore[misc]
        found = {}
        for index in sorted(set.intersection(*self._valid.values())):
            rows = self._folders[FINAL].read(index, _ROWS)
            skipped = self._folders[FINAL].manifest().shards[index].skipped
            if np.array_equal(np.sort(np.concatenate([rows, skipped])), np.sort(parts[index])):
                found[index] = (rows, skipped)
        # What is run again is written again, for every layer.
        self._valid = {layer: valid & set(found) for layer, valid in self._valid.items()}
        return found

    def put(self, data: ShardData) -> None:
        """Write a shard into every folder that lacks it."""
        for layer, folder in self._folders.items():
            if data.index in self._valid[layer]:
                continue
            arrays = {_ROWS: data.rows}
            if layer in data.arrays:
                arrays[_FEATURES] = data.arrays[layer]
            if layer == FINAL and LOGITS in data.arrays:
                arrays[_LOGITS] = data.arrays[LOGITS]
            folder.write(data, arrays)
            self._valid[layer].add(data.index)

    def read(self, index: int, name: str) -> np.ndarray:
        """One array of one shard."""
        if name == LOGITS:
            return self._folders[FINAL].read(index, _LOGITS)
        return self._folders[name].read(index, _FEATURES)

    def has(self, index: int, name: str) -> bool:
        """Whether the shard is there and has this array."""
        layer, array = (FINAL, _LOGITS) if name == LOGITS else (name, _FEATURES)
        return index in self._valid.get(layer, ()) and self._folders[layer].has(index, array)

    @property
    def samples_per_second(self) -> float:
        """The speed that was measured when the features were made."""
        try:
            return self._folders[FINAL].manifest().samples_per_second
        except CorruptCacheError:
            return 0.0

    def note_speed(self, samples_per_second: float) -> None:
        """Keep the measured speed. Not worth failing for."""
        try:
            self._folders[FINAL].change(lambda manifest: replace(manifest, samples_per_second=samples_per_second))
        except CacheError:
            self._tell("the measured speed could not be kept in the cache")


def _of_layer(probe: Probe, layer: str) -> Probe:
    arrays = {_FEATURES: probe.arrays[layer]}
    if layer == FINAL and LOGITS in probe.arrays:
        arrays[_LOGITS] = probe.arrays[LOGITS]
    return Probe(probe.rows, arrays)
