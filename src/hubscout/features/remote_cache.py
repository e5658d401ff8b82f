"""A feature cache behind a URL: S3, GCS, a web file system, or whatever else fsspec opens.

    URL/MODEL-KEY/about.json
    URL/MODEL-KEY/00000.safetensors, 00000.json ...

Object stores have no locks and no rename. Here every shard has a record of its own, written after it: workers add
shards without touching one another's, and a shard without a record, or whose hash is not the one in it, does not count.
Two runs that make the same shard at the same time write the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hubscout.credentials import strip_credentials
from hubscout.errors import CacheError, CorruptCacheError, InputError, MissingDependencyError
from hubscout.features.cache import CachedFeatures, FeatureCache
from hubscout.features.entry import PROBE, LayerFolder, OpenEntry
from hubscout.features.manifest import Manifest, ShardRecord, encode_shard, read_record
from hubscout.features.probe import Probe
from hubscout.features.shards import FINAL, ShardData
from hubscout.optional import require

_ABOUT = "about.json"
_MOST_BYTES_KEPT = 256 << 20


def is_url(place: object) -> bool:
    """Whether a cache is named by a URL rather than by a folder.

    >>> is_url("s3://bucket/features"), is_url("/nfs/features")
    (True, False)
    """
    return "://" in str(place)


class RemoteFeatureCache(FeatureCache):
    """The cache at a URL. It can be pickled: each process connects by itself."""

    def __init__(self, url: str) -> None:
        if not is_url(url):
            raise InputError(f"url must be such as s3://bucket/features, not {url!r}.")
        self.url = url.rstrip("/")
        self.root = Path(strip_credentials(self.url))  # for messages only

    def __repr__(self) -> str:
        return f"RemoteFeatureCache({strip_credentials(self.url)!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "root": self.root}

    @cached_property
    def _place(self) -> tuple[Any, str]:
        fsspec = require("fsspec", extra="ray", purpose="A cache behind a URL")
        try:
            system, path = fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            scheme = self.url.partition("://")[0]
            raise MissingDependencyError(f"fsspec for {scheme}", "ray", f"A cache at {scheme}://") from error
        except Exception as error:
            raise CacheError(f"cannot open the cache at {self.url}: {type(error).__name__}: {error}") from error
        return system, path.rstrip("/")

    @contextmanager
    def open(
        self,
        about: Mapping[str, str],
        layers: Sequence[str],
        tell: Callable[[str], None],
        *,
        shards_expected: int,
        exclusive: bool = True,
    ) -> Iterator[OpenEntry]:
        """Open the folders of a model on a task. There is nothing to wait for: URLs have no locks."""
        system, path = self._place
        folders = {
            layer: RemoteFolder(
                system,
                f"{path}/{self._folder(about, layer).name}",
                Manifest(about, layer, shards_expected),
                shown=str(self._folder(about, layer)),
            )
            for layer in dict.fromkeys((FINAL, *layers))
        }
        yield OpenEntry(folders, tell)

    def entries(self) -> list[CachedFeatures]:
        """Not for URLs: use the tools of the store."""
        self._refuse()

    def size_bytes(self) -> int:
        """Not for URLs: use the tools of the store."""
        self._refuse()

    def remove(self, names: Sequence[str]) -> list[str]:
        """Not for URLs: use the tools of the store."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InputError(f"The cache at {self.url} can be listed and emptied with the tools of the store only.")


class RemoteFolder(LayerFolder):
    """The folder of one layer at a URL; `shown` is what it is called in messages, without credentials."""

    def __init__(self, system: Any, path: str, empty: Manifest, *, shown: str) -> None:
        self.folder = Path(shown)
        self._system = system
        self._path = path
        self._empty = empty
        self._probe = None
        self._kept: dict[str, bytes] = {}
        """Shards that were checked, until they are read: what was fetched to be hashed is not fetched again."""

    def manifest(self) -> Manifest:
        """Put together from the records of the shards; those that cannot be read do not count."""
        with self._errors("list"):
            try:
                self._system.invalidate_cache()
                names = [str(name) for name in self._system.ls(self._path, detail=False)]
            except FileNotFoundError:
                return self._empty
            wanted = [name for name in names if name.endswith(".json")]
            contents = self._system.cat(wanted, on_error="return") if wanted else {}
        shards: dict[int, ShardRecord] = {}
        speed = 0.0
        for name, content in contents.items():
            stem = name.rpartition("/")[2].removesuffix(".json")
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                if stem + ".json" == _ABOUT:
                    speed = float(json.loads(content)["samples_per_second"])
                elif stem.isdigit():
                    shards[int(stem)] = read_record(json.loads(content))
        return replace(self._empty, shards=shards, samples_per_second=speed)

    def change(self, change: Callable[[Manifest], Manifest]) -> None:
        """Records that are gone are removed, the rest is written where it differs."""
        before = self.manifest()
        after = change(before)
        with self._errors("write"):
            for index in before.shards.keys() - after.shards.keys():
                self._system.rm_file(f"{self._path}/{index:05d}.json")
            for index, record in after.shards.items():
                if before.shards.get(index) != record:
                    self._put(f"{index:05d}.json", json.dumps(asdict(record)).encode())
            if after.samples_per_second != before.samples_per_second:
                about = {"about": dict(after.about), "layer": after.layer, "shards_expected": after.shards_expected}
                facts = {**about, "samples_per_second": after.samples_per_second}
                self._put(_ABOUT, strip_credentials(json.dumps(facts, sort_keys=True)).encode())

    def write(self, data: ShardData, arrays: Mapping[str, np.ndarray]) -> None:
        """The shard first, then its record."""
        content, record = encode_shard(data, arrays)
        self._place_probe()
        with self._errors("write"):
            self._put(record.file, content)
            self._put(f"{data.index:05d}.json", json.dumps(asdict(record)).encode())

    def read(self, index: int, name: str) -> np.ndarray:
        """One array of a shard."""
        return self._arrays(index)[name]

    def has(self, index: int, name: str) -> bool:
        """Whether a shard is there with this array."""
        try:
            return name in self._arrays(index)
        except CacheError:
            return False

    def verify(self, record: ShardRecord) -> str | None:
        """What is wrong with a shard; None where its bytes are those that were written."""
        try:
            content = self._system.cat_file(f"{self._path}/{record.file}")
        except Exception as error:
            return f"cannot be read ({type(error).__name__})"
        if len(content) != record.bytes or hashlib.sha256(content).hexdigest() != record.sha256:
            return "was cut short or altered"
        if sum(map(len, self._kept.values())) + len(content) <= _MOST_BYTES_KEPT:
            self._kept[record.file] = content
        return None

    def _arrays(self, index: int) -> dict[str, np.ndarray]:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        name = f"{index:05d}.safetensors"
        try:
            content = self._kept.get(name)
            return load(self._system.cat_file(f"{self._path}/{name}") if content is None else content)
        except (OSError, SafetensorError) as error:
            raise CorruptCacheError(
                f"{self.folder}/{name} was removed or altered during the run: {self._reason(error)}"
            ) from error

    @contextmanager
    def _changing(self) -> Iterator[None]:
        yield  # a store behind a URL has no locks

    def _clear(self) -> None:
        self.change(lambda manifest: replace(manifest, shards={}))

    def _read_probe(self) -> Probe | None:
        try:
            return Probe.decode(self._system.cat_file(f"{self._path}/{PROBE}"))
        except Exception:  # every store has errors of its own; without a probe there are no shards
            return None

    def _write_probe(self, probe: Probe) -> None:
        with self._errors("write"):
            self._put(PROBE, probe.encode())

    def _put(self, name: str, content: bytes) -> None:
        with contextlib.suppress(NotImplementedError):
            self._system.makedirs(self._path, exist_ok=True)
        self._system.pipe_file(f"{self._path}/{name}", content)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except CacheError:
            raise
        except Exception as error:  # every store has errors of its own
            raise CacheError(f"cannot {what} the cache at {self.folder}: {self._reason(error)}") from error

    def _reason(self, error: Exception) -> str:
        return f"{type(error).__name__}: {error}".replace(self._path, str(self.folder))


def open_cache(place: str | Path | None = None) -> FeatureCache:
    """The cache in a folder or at a URL; None is the default folder."""
    return RemoteFeatureCache(str(place)) if place is not None and is_url(place) else FeatureCache(place)
