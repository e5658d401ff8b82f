"""`FeatureCache`: features and source logits on disk, one folder per (weights, data, preprocessing, layer, precision).

    root/.locks/KEY.lock
    root/MODEL-KEY/manifest.json
    root/MODEL-KEY/00000.safetensors ...

A second run that wants the same waits for the first and then finds its shards. A shard counts once its hash stands in
the manifest; whatever is cut short or altered is found on opening and made again.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from hubscout.errors import CacheError, CorruptCacheError, InputError
from hubscout.features.entry import LayerFolder, OpenEntry
from hubscout.features.fingerprint import key
from hubscout.features.manifest import MANIFEST, Manifest
from hubscout.features.shards import FINAL
from hubscout.features.storage import default_root
from hubscout.file_identifiers import IdentifierFromFile

_LOCKS = ".locks"
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This file marks a folder of caches; see bford.info/cachedir\n"


@dataclass(frozen=True)
class CachedFeatures:
    """One folder of the cache, for lists. `complete` is False while shards are missing."""

    name: str
    model: str
    task: str
    split: str
    layer: str
    rows: int
    bytes: int
    complete: bool
    age_seconds: float


class FeatureCache:
    """A folder of features, safe to share between processes. The folder is made when something is written.

    >>> import tempfile
    >>> FeatureCache(tempfile.mkdtemp()).size_bytes()
    0
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = default_root() if root is None else Path(root).expanduser()

    def __repr__(self) -> str:
        return f"FeatureCache({str(self.root)!r})"

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
        """Open the folders of a model on a task, the final features and the tapped `layers`.

        `exclusive` holds a lock meanwhile, so that two runs do not do the same work; workers that were given
        different shards of one model go without.
        """
        base = key(about)
        self._make_root()
        with contextlib.ExitStack() as stack:
            if exclusive:
                stack.enter_context(self._locked(base, tell))
            folders = {
                layer: LayerFolder(
                    self._folder(about, layer),
                    Manifest(about, layer, shards_expected),
                    FileLock(self._lock_path(f"{base}-manifest")),
                )
                for layer in dict.fromkeys((FINAL, *layers))
            }
            yield OpenEntry(folders, tell)

    def entries(self) -> list[CachedFeatures]:
        """What is there, the newest first. Folders that cannot be read are listed with an empty model."""
        found = []
        for folder in self._folders():
            age = max(0.0, time.time() - _modified(folder))
            try:
                manifest = Manifest.read(folder)
            except CorruptCacheError:
                found.append(CachedFeatures(folder.name, "", "", "", "", 0, _bytes_in(folder), False, age))
                continue
            about = manifest.about
            found.append(
                CachedFeatures(
                    name=folder.name,
                    model=IdentifierFromFile(about.get("model", ""), str(folder / MANIFEST)),
                    task=about.get("task_name", ""),
                    split=about.get("selection", "").partition(":")[0],
                    layer=manifest.layer,
                    rows=manifest.rows,
                    bytes=_bytes_in(folder),
                    complete=manifest.complete,
                    age_seconds=age,
                )
            )
        return sorted(found, key=lambda entry: (entry.age_seconds, entry.name))

    def size_bytes(self) -> int:
        """Bytes of everything in the cache."""
        return sum(_bytes_in(folder) for folder in self._folders())

    def remove(self, names: Sequence[str]) -> list[str]:
        """Remove folders by name; gives those back that are in use by a run and were left alone."""
        busy = []
        for name in names:
            folder = self.root / name
            if folder.parent != self.root or folder not in self._folders():
                raise InputError(f"The cache at {self.root} has no entry {name!r}.")
            with contextlib.ExitStack() as stack:
                try:
                    base = key(Manifest.read(folder).about)
                    stack.enter_context(FileLock(self._lock_path(base), timeout=0))
                except CorruptCacheError:
                    pass  # no run can use it
                except Timeout:
                    busy.append(name)
                    continue
                _remove_tree(folder)
        return busy

    def _folders(self) -> list[Path]:
        try:
            return sorted(path for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CacheError(f"cannot read the cache at {self.root}: {error.strerror}") from error

    def _folder(self, about: Mapping[str, str], layer: str) -> Path:
        # Stripped after the cut too: a name that starts with a dot is a hidden folder, which `entries` passes over.
        slug = re.sub(r"[^A-Za-z0-9._]+", "-", about["model"])[-48:].strip("-._")
        return self.root / f"{slug or 'model'}-{key(about, layer)}"

    def _lock_path(self, base: str) -> Path:
        return self.root / _LOCKS / f"{base}.lock"

    def _make_root(self) -> None:
        try:
            (self.root / _LOCKS).mkdir(parents=True, exist_ok=True)
            if not (self.root / "CACHEDIR.TAG").exists():
                (self.root / "CACHEDIR.TAG").write_text(_TAG)
        except OSError as error:
            if self.root.is_dir():
                return  # read-only or full: what is in it can be read
            raise CacheError(
                f"cannot make the cache folder {self.root}: {error.strerror}. HUBSCOUT_CACHE puts it elsewhere."
            ) from error

    @contextmanager
    def _locked(self, base: str, tell: Callable[[str], None]) -> Iterator[None]:
        lock = FileLock(self._lock_path(base))
        try:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                tell("another run is extracting the same features: waiting for it")
                lock.acquire()
        except (OSError, NotImplementedError):
            # Read-only, full, or on a file system without locks. Reading needs none: a shard counts by its hash.
            # Should something be missing, writing it fails, and that is told.
            pass
        try:
            yield
        finally:
            lock.release()


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _modified(folder: Path) -> float:
    with contextlib.suppress(OSError):
        return (folder / MANIFEST).stat().st_mtime
    return folder.stat().st_mtime


def _remove_tree(folder: Path) -> None:
    # The manifest first: a removal that is cut short leaves shards that nobody counts, not a list of missing ones.
    try:
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder)
    except OSError as error:
        raise CacheError(f"cannot remove {folder}: {error.strerror}") from error
