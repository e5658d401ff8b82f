"""Whether the Hugging Face Hub can be reached, what of it is on this machine, and what its failures mean."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

from hubscout.errors import CheckpointError, HubscoutError, ModelError, ModelNotFoundError, UnsafeCheckpointError

_SECONDS_TO_WAIT = 3.0


def declared_offline() -> bool:
    """Whether the environment says to stay off the network."""
    return any(
        os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"}
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


@functools.cache
def _answers() -> bool:
    import urllib.error
    import urllib.request

    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=_SECONDS_TO_WAIT):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def hub_reachable() -> bool:
    """Whether the Hub answers; asked once a process, for three seconds at most."""
    return not declared_offline() and _answers()


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


def count_downloads(repository: str) -> int | None:
    """Downloads of the last month, None where the Hub cannot be reached or does not tell."""
    if not hub_reachable():
        return None
    try:
        from huggingface_hub import model_info

        return model_info(repository, timeout=_SECONDS_TO_WAIT).downloads
    except Exception:  # Popularity is worth having, never worth failing for.
        return None


def downloads_of_owner(owner: str) -> dict[str, int]:
    """Downloads of the last month of every model of an owner, in one question; empty where the Hub does not answer."""
    if not hub_reachable():
        return {}
    try:
        from huggingface_hub import list_models

        return {info.id: info.downloads for info in list_models(author=owner) if info.downloads is not None}
    except Exception:  # As above.
        return {}


def explain_failure(error: BaseException, identifier: str) -> HubscoutError:
    """The error of a hub's library as one of ours, saying what to do."""
    if isinstance(error, HubscoutError):
        return error
    chain = list(_causes(error))
    names = {type(each).__name__ for each in chain}
    messages = " ".join(str(each) for each in chain)
    if "weights_only" in messages or "upgrade torch to at least v2.6" in messages:
        return UnsafeCheckpointError(
            f"The weights of {identifier} are a pickle that would run code; it was not opened. "
            "Ask its author for safetensors."
        )
    if "trust_remote_code" in messages:
        return ModelError(
            f"{identifier} needs code from its own repository. If you trust it, add the option trust_remote_code=true."
        )
    if names & {"RepositoryNotFoundError", "RevisionNotFoundError", "GatedRepoError"}:
        return ModelNotFoundError(f"The Hugging Face Hub has no model for {identifier}, or it is not open to you.")
    if _is_absence(names, messages):
        why = "the hub is switched off (HF_HUB_OFFLINE)" if declared_offline() else "the hub cannot be reached"
        return ModelNotFoundError(
            f"{identifier} is not in the local cache, and {why}. Connect once to fetch it, or use file:PATH with "
            "weights on this machine."
        )
    if "size mismatch" in messages or "Error(s) in loading state_dict" in messages:
        return CheckpointError(f"The weights of {identifier} do not fit: {_first_line(error)}")
    return ModelError(f"{identifier} cannot be loaded: {type(error).__name__}: {_first_line(error)}")


def _is_absence(names: set[str], messages: str) -> bool:
    absent = {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "EntryNotFoundError", "ConnectError", "URLError"}
    absent |= {"ConnectionError", "ConnectTimeout", "ReadTimeout", "MaxRetryError", "gaierror"}
    return bool(names & absent) or "is not the path to a directory" in messages or "couldn't connect" in messages


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]
