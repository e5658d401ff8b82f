"""Whether the Hugging Face Hub can be asked, and what of it is on this machine.

Everything that would go to the Hub asks `hub_silence` first: that there is no network is found out once per process.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator

_SECONDS_TO_WAIT = 3.0
_silence: list[str | None] = []
"""What the one attempt found: empty before it."""


def endpoint() -> str:
    """The address of the Hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def hub_silence() -> str | None:
    """Why the Hub cannot be asked, in words; None where it answers. Tried once per process, for three seconds."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"}:
            return f"the hub is switched off ({name})"
    if not _silence:
        _silence.append(silence_of(endpoint()))
    return _silence[-1]


def note_silence(reason: str) -> None:
    """The Hub, which answered before, does so no more: it is not asked again by this process."""
    _silence.append(reason)


def hub_reachable() -> bool:
    """Whether the Hub answers."""
    return hub_silence() is None


def silence_of(address: str) -> str | None:
    """Why the host of `address` cannot be asked, in words; None where it answers. Waits for three seconds at most."""
    # In a thread, because looking up a name cannot be given a time limit.
    answer: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=lambda: answer.put(_connect(address)), daemon=True).start()
    try:
        return answer.get(timeout=_SECONDS_TO_WAIT)
    except queue.Empty:
        return f"the hub cannot be reached ({address} does not answer within {_SECONDS_TO_WAIT:.0f} seconds)"


def _connect(address: str) -> str | None:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=2 * _SECONDS_TO_WAIT):
            return None
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError) as error:
        return f"the hub cannot be reached ({address}: {getattr(error, 'reason', error)})"


def local_repositories() -> frozenset[str]:
    """The model repositories in the local cache that hold weights."""
    return frozenset(_scan())


def _scan() -> Iterator[str]:
    try:
        from huggingface_hub import CacheNotFound, scan_cache_dir
    except ImportError:
        return
    try:
        found = scan_cache_dir()
    except (CacheNotFound, OSError, ValueError):
        return
    for repository in found.repos:
        files = (file.file_name for revision in repository.revisions for file in revision.files)
        if repository.repo_type == "model" and any(name.endswith((".safetensors", ".bin", ".pth")) for name in files):
            yield repository.repo_id


def downloads_of_owner(owner: str) -> dict[str, int]:
    """Downloads of the last month of every model of an owner, in one request; empty where the Hub does not answer."""
    if not hub_reachable():
        return {}
    try:
        from huggingface_hub import list_models

        return {info.id: info.downloads for info in list_models(author=owner) if info.downloads is not None}
    except Exception:  # Popularity is worth having, never worth failing for.
        return {}
