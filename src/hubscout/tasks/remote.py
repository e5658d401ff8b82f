"""Data behind a URL: copied to this machine once, and opened as if it had always been here.

Every scheme that fsspec knows works (`s3://` with s3fs, `gs://` with gcsfs, `https://`, `file://`, `memory://`). A copy
is kept by the URL and by what is there now (names, sizes and tags of the files): data that changed is copied anew, and
a copy that was interrupted counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from hubscout.credentials import lacks_credentials
from hubscout.errors import TaskError

if TYPE_CHECKING:
    from hubscout.tasks.task import Task

_SIGNS_OF_CHANGE = ("size", "ETag", "etag", "mtime", "LastModified", "updated", "created")


def is_url(source: str) -> bool:
    """Whether a string names data on another machine.

    >>> is_url("s3://bucket/flowers"), is_url("flowers/"), is_url("hf:imdb")
    (True, False, False)
    """
    return "://" in source


def open_url(url: str, options: Mapping[str, Any]) -> Task:
    """Open the data behind a URL. The task remembers the URL, so that another machine makes a copy of its own."""
    from hubscout.tasks.opening import open_task

    if lacks_credentials(url):
        raise TaskError(
            f"The address {url!r} was saved without its password: open the data again with the whole address."
        )
    task = open_task(local_copy(url), **options)
    source = {"constructor": "from_url", "arguments": {"url": url, **options}, "fingerprint": task.fingerprint}
    return replace(task, source=source)


def local_copy(url: str) -> Path:
    """The file or folder of a URL on this machine, copied now if it is not here yet."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
        files = system.find(path, detail=True) if system.exists(path) else {}
    except Exception as error:  # each file system has errors of its own: no such scheme, no access, no network
        raise TaskError(f"{url!r} cannot be reached: {type(error).__name__}: {error}") from error
    if not files:
        raise TaskError(f"There is nothing at {url!r}.")
    name = PurePosixPath(str(path).rstrip("/")).name or "data"
    home = data_root() / _digest(url, files)
    with _lock(home):
        if not (home / name).exists():
            _copy(system, path, home, name, url)
    return home / name


def data_root() -> Path:
    """Where copies are kept: $HUBSCOUT_DATA, else `data` in the platform's folder for caches."""
    given = os.environ.get("HUBSCOUT_DATA")
    if given:
        return Path(given).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("hubscout", appauthor=False, opinion=False)) / "data"


def _lock(home: Path) -> FileLock:
    home.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{home}.lock")


def _copy(system: Any, path: str, home: Path, name: str, url: str) -> None:
    """Copy to a temporary folder and rename it: a copy is whole or not there."""
    temporary = Path(tempfile.mkdtemp(prefix="copying-", dir=home.parent))
    try:
        system.get(path, str(temporary / name), recursive=system.isdir(path))
        shutil.rmtree(home, ignore_errors=True)
        temporary.rename(home)
    except OSError as error:
        # A file system may tell its path without the scheme, by which credentials are known.
        reason = str(error).replace(str(path), url)
        raise TaskError(f"{url!r} could not be copied to {home.parent}: {reason}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _digest(url: str, files: Mapping[str, Mapping[str, Any]]) -> str:
    about = {name: [str(entry.get(sign)) for sign in _SIGNS_OF_CHANGE] for name, entry in files.items()}
    return hashlib.sha256(json.dumps([url, about], sort_keys=True).encode()).hexdigest()[:24]
