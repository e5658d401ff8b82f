"""Files of the cache: written under a temporary name and renamed, so that a reader never sees half a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from hubscout.errors import CacheError
from hubscout.runs.atomic_files import TEMPORARY, is_full
from hubscout.runs.atomic_files import write_atomically as write_file

_STALE_SECONDS = 3600.0


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


def remove_stale_temporaries(folder: Path) -> None:
    """Remove what a process that was killed while writing left behind."""
    for path in folder.glob(f".*{TEMPORARY}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                path.unlink()


def megabytes(count: int) -> str:
    """A number of bytes for people.

    >>> megabytes(2_340_000), megabytes(5_100_000_000)
    ('2.3 MB', '5.1 GB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def default_root() -> Path:
    """Where the cache is: HUBSCOUT_CACHE, else the platform's folder for caches."""
    if chosen := os.environ.get("HUBSCOUT_CACHE"):
        return Path(chosen).expanduser() / "features"
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"))
    elif os.uname().sysname == "Darwin":
        base = Path("~/Library/Caches")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return base.expanduser() / "hubscout" / "features"
