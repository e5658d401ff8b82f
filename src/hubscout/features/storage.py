"""The files of one folder of the cache, on this machine or behind a URL of any store that fsspec opens, and the small
ones among them: what the folder holds, and one record per finished shard.

A file is whole or not there: stores put objects whole, and on a disk files are written under a temporary name and
renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.credentials import strip_credentials
from hubscout.errors import CacheError, CorruptCacheError, RunError
from hubscout.features.shards import ShardData
from hubscout.runs.files import TEMPORARY, is_full, parse_json
from hubscout.runs.files import write_atomically as write_file
from hubscout.runs.record_types import converted

_STALE_SECONDS = 3600.0
_REQUESTS_AT_ONCE = 16
ABOUT = "about.json"


class Files:
    """The files that lie directly in one folder. `shown` is what it is called in messages, without credentials."""

    def __init__(self, system: Any, path: str, shown: str, *, local: bool) -> None:
        self.shown = shown
        self.local = Path(path) if local else None
        self._system = system
        self._path = path
        self._made = False

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self._path.rpartition("/")[2]

    def names(self) -> list[str]:
        """The names of all files; none where the folder is not there yet."""
        with self._errors("list"):
            try:
                self._system.invalidate_cache()  # other processes write here too
                return [str(path).rpartition("/")[2] for path in self._system.ls(self._path, detail=False)]
            except FileNotFoundError:
                return []

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with self._errors("read"):
            return self._system.cat_file(f"{self._path}/{name}")

    def read_all(self, names: Sequence[str]) -> dict[str, bytes]:
        """The contents of small files; those that cannot be read are left out."""

        def attempt(name: str) -> bytes | None:
            with contextlib.suppress(CacheError):
                return self.read(name)
            return None

        if self.local is not None:
            contents = list(map(attempt, names))
        else:
            with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
                contents = list(pool.map(attempt, names))
        return {name: content for name, content in zip(names, contents, strict=True) if content is not None}

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file, in place of one of this name if there is one."""
        if self.local is not None:
            write_atomically(self.local / name, content)
            return
        with self._errors("write"):
            if not self._made:
                with contextlib.suppress(NotImplementedError):
                    self._system.makedirs(self._path, exist_ok=True)
                self._made = True
            self._system.pipe_file(f"{self._path}/{name}", content)

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._errors("remove from"):
            self._system.rm_file(f"{self._path}/{name}")

    def remove_folder(self) -> None:
        """Remove the folder and what is in it."""
        if self.local is None:
            for name in self.names():
                self.remove(name)
            return
        with self._errors("remove"):
            shutil.rmtree(self.local)

    def remove_stale_temporaries(self) -> None:
        """Remove what a process that was killed while writing left behind."""
        for path in () if self.local is None else self.local.glob(f".*{TEMPORARY}"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                    path.unlink()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # every store has errors of its own
            raise CacheError(f"cannot {what} the cache at {self.shown}: {self._reason(error)}") from error

    def _reason(self, error: Exception) -> str:
        if self.local is not None and isinstance(error, OSError) and error.strerror:
            return error.strerror
        # A store may tell its path without the scheme, by which credentials are known.
        return f"{type(error).__name__}: {error}".replace(self._path, self.shown)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file or none. A failure leaves no temporary file behind and says how much room there is."""
    try:
        write_file(path, content)
    except OSError as error:
        raise _explain(path, len(content), error) from error


def _explain(path: Path, needed_bytes: int, error: OSError) -> CacheError:
    if is_full(error):
        return CacheError(
            f"no room for {megabytes(needed_bytes)} more at {path.parent} ({error.strerror}; {megabytes(_free(path))} "
            "free). Make room with `hubscout cache rm`, or put the cache elsewhere with HUBSCOUT_CACHE."
        )
    return CacheError(f"cannot write {path}: {error.strerror or error}. HUBSCOUT_CACHE puts the cache elsewhere.")


def _free(path: Path) -> int:
    for folder in path.parents:
        with contextlib.suppress(OSError):
            return shutil.disk_usage(folder).free
    return 0


def megabytes(count: int) -> str:
    """A number of bytes for people.

    >>> megabytes(2_340_000), megabytes(5_100_000_000)
    ('2.3 MB', '5.1 GB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def default_place() -> str:
    """Where the cache is, a folder or a URL: in HUBSCOUT_CACHE, else in the platform's folder for caches."""
    import platformdirs

    home = os.environ.get("HUBSCOUT_CACHE") or platformdirs.user_cache_dir("hubscout", appauthor=False, opinion=False)
    return f"{home.rstrip('/')}/features"


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
        return _decoded(cls, content, "no description of a cache folder")


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
        found: ShardRecord = _decoded(cls, content, "no record of a shard")
        if Path(found.file).name != found.file:
            raise CorruptCacheError(f"no record of a shard: file name {found.file!r} leads out of the folder")
        return found


def _decoded(kind: Any, content: bytes, wrong: str) -> Any:
    try:
        return converted(kind, parse_json(content, origin="the file"), "the file")
    except RunError as error:
        raise CorruptCacheError(f"{wrong}: {error}") from error


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
