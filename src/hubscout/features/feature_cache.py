"""`FeatureCache`: features and source logits, one folder per (weights, inputs, preprocessing, layer, precision).

    PLACE/MODEL-KEY/...          see `hubscout.features.entry`
    PLACE/.locks/KEY.lock        where the place is a folder of this machine

The layout is the same in a folder and behind a URL. In a folder a second run that wants the same waits for the first
and then finds its shards; stores have no locks, and there two runs may do the same work, each without harm.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hubscout.credentials import strip_credentials
from hubscout.errors import CacheError, InputError, MissingDependencyError
from hubscout.features.entry import LayerFolder, OpenEntry
from hubscout.features.feature_keys import key
from hubscout.features.shards import FINAL
from hubscout.features.storage import ABOUT, About, Files, default_place, shard_stem
from hubscout.file_identifiers import IdentifierFromFile

GRAPH = "graph"
"""Where lists have the name of a layer."""
_LOCKS = ".locks"
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This file marks a folder of caches; see bford.info/cachedir\n"
_LOCAL = ("file://", "local://")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")
"""What the stores call the time at which a file was written."""


@dataclass(frozen=True)
class CachedFeatures:
    """One folder of the cache, for lists. `complete` is False while shards are missing."""

    name: str
    """Of the folder."""
    model: str
    """The identifier."""
    task: str
    """The name of the data."""
    split: str
    """Of the data."""
    layer: str
    """"" for the final features."""
    rows: int
    """How many samples."""
    bytes: int
    """On disk."""
    complete: bool
    age_seconds: float
    """Since it was last written."""


class FeatureCache:
    """Features in a folder or at a URL, safe to share between processes. A folder is made when something is written.

    It can be pickled: each process connects to the store by itself.

    Args:
        place: a folder, a URL that fsspec opens, or None for the user's own cache.

    Example:
        >>> import tempfile
        >>> FeatureCache(tempfile.mkdtemp()).size_bytes()
        0
        >>> FeatureCache("s3://KEY:SECRET@bucket/features")
        FeatureCache('s3://***@bucket/features')

    """

    def __init__(self, place: str | Path | None = None) -> None:
        text = default_place() if place is None else str(place)
        scheme = next((scheme for scheme in _LOCAL if text.startswith(scheme)), "")
        self._folder: Path | None = None
        if scheme or "://" not in text:
            self._folder = Path(text.removeprefix(scheme)).expanduser()
        self.place = text.rstrip("/") if self._folder is None else str(self._folder)

    def __str__(self) -> str:
        return strip_credentials(self.place)

    def __repr__(self) -> str:
        return f"FeatureCache({str(self)!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "_folder": self._folder}

    @property
    def root(self) -> Path:
        """The folder on this machine; a cache at a URL has none."""
        if self._folder is None:
            raise InputError(f"The cache at {self} is not a folder of this machine.")
        return self._folder

    @contextmanager
    def open(
        self,
        about: Mapping[str, str],
        layers: Sequence[str],
        tell: Callable[[str], None],
        *,
        shard_rows: Sequence[int],
        exclusive: bool = True,
    ) -> Iterator[OpenEntry]:
        """Open the folders of a model on a task, for as long as the `with` block lasts.

        Args:
            about: what the features depend on (`hubscout.features.feature_keys.describe`).
            layers: the tapped layers, beside the final features.
            tell: hears what is to be said on the way, such as that another run is waited for.
            shard_rows: the samples in each shard.
            exclusive: hold a lock meanwhile, where there are locks, so that two runs do not do the same work. Workers
                that were given different shards of one model go without.

        Returns:
            The shards that are there, and the place for those that come.

        Raises:
            CacheError: the place cannot be read or made.

        """
        with contextlib.ExitStack() as stack:
            if self._folder is not None:
                self._make_root()
                if exclusive:
                    stack.enter_context(self._locked(key(about), tell))
            folders = {
                layer: LayerFolder(self._files(_name(about, layer)), About(about, layer, tuple(shard_rows)))
                for layer in dict.fromkeys((FINAL, *layers))
            }
            yield OpenEntry(folders, tell)

    def graph_folder(self, about: Mapping[str, str]) -> Files | None:
        """The folder of an exported network; None behind a URL, from where it would come no sooner than it is made.

        Args:
            about: what the network and its export depend on.

        Returns:
            The folder, or None.

        """
        return None if self._folder is None else self._files(_name(about, GRAPH))

    def entries(self) -> list[CachedFeatures]:
        """What is there, the newest first. Folders that cannot be read are listed with an empty model.

        Returns:
            One entry per model, data, split and layer, and one per exported network.

        Raises:
            CacheError: the place cannot be read.

        """
        found = [self._describe(name, files) for name, files in self._listing().items()]
        return sorted(found, key=lambda entry: (entry.age_seconds, entry.name))

    def size_bytes(self) -> int:
        """Bytes of everything in the cache.

        Returns:
            The number of bytes.

        """
        return sum(_bytes(files) for files in self._listing().values())

    def remove(self, names: Sequence[str]) -> list[str]:
        """Remove folders by name.

        Args:
            names: names of `entries`.

        Returns:
            Those that are in use by a run and were left alone.

        Raises:
            InputError: there is no entry of that name.

        """
        known, busy = self._listing(), []
        for name in names:
            if name not in known:
                raise InputError(f"The cache at {self} has no entry {name!r}.")
            files = self._files(name)
            with contextlib.ExitStack() as stack:
                if self._folder is not None:
                    try:
                        base = key(About.decode(files.read(ABOUT)).description)
                        stack.enter_context(FileLock(self._lock_path(base), timeout=0))
                    except CacheError:
                        pass  # no run can use it
                    except Timeout:
                        busy.append(name)
                        continue
                files.remove_folder()
        return busy

    def _describe(self, name: str, files: Mapping[str, Mapping[str, Any]]) -> CachedFeatures:
        age = max(0.0, time.time() - max(map(_modified, files.values())))
        folder = self._files(name)
        try:
            about = About.decode(folder.read(ABOUT))
        except CacheError:
            return CachedFeatures(name, "", "", "", "", 0, _bytes(files), False, age)
        done = [index for index in range(len(about.shard_rows)) if f"{shard_stem(index)}.json" in files]
        return CachedFeatures(
            name=name,
            model=IdentifierFromFile(about.description.get("model", ""), f"{folder.shown}/{ABOUT}"),
            task=about.description.get("task_name", ""),
            split=about.description.get("selection", "").partition(":")[0],
            layer=about.layer,
            rows=sum(about.shard_rows[index] for index in done),
            bytes=_bytes(files),
            complete=len(done) == len(about.shard_rows),
            age_seconds=age,
        )

    def _listing(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        """Every folder with its files, and what the store knows of them: one walk for all."""
        system, path = self._store
        try:
            system.invalidate_cache()
            system.ls(path, detail=False)  # a walk passes over what cannot be read, also over the place itself
            found = system.find(path, maxdepth=2, detail=True)
        except FileNotFoundError:
            return {}
        except Exception as error:  # every store has errors of its own
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}".replace(path, str(self))
            raise CacheError(f"cannot read the cache at {self}: {reason}") from error
        folders: dict[str, dict[str, Mapping[str, Any]]] = {}
        for full, facts in sorted(found.items()):
            folder, _, name = full.removeprefix(path).strip("/").partition("/")
            if name and not folder.startswith("."):
                folders.setdefault(folder, {})[name] = facts
        return folders

    def _files(self, name: str) -> Files:
        system, path = self._store
        return Files(system, f"{path}/{name}", f"{self}/{name}", local=self._folder is not None)

    @cached_property
    def _store(self) -> tuple[Any, str]:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem

        if self._folder is not None:
            return LocalFileSystem(), self._folder.absolute().as_posix()
        try:
            system, path = fsspec.core.url_to_fs(self.place)
        except ImportError as error:
            scheme = self.place.partition("://")[0]
            raise MissingDependencyError(f"fsspec for {scheme}", "ray", f"A cache at {scheme}://") from error
        except Exception as error:
            raise CacheError(f"cannot open the cache at {self}: {type(error).__name__}: {error}") from error
        return system, path.rstrip("/")

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


def _name(about: Mapping[str, str], layer: str) -> str:
    # Stripped after the cut too: a name that starts with a dot is a hidden folder, which `entries` passes over.
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", about["model"].partition("?")[0])[-48:].strip("-._")
    return f"{slug or 'model'}-{key(about, layer)}"


def _bytes(files: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(int(facts.get("size") or 0) for facts in files.values())


def _modified(facts: Mapping[str, Any]) -> float:
    for name in _TIMES:
        value = facts.get(name)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return time.time()  # nobody knows, and what is taken for old may be removed
