"""Whether the Hugging Face Hub can be asked, and what its errors, and those of model libraries, mean in our own words.

Everything that would go to the Hub asks `hub_silence` first: that there is no network is found out once per process.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from typing import Any

from hubscout.errors import (
    CheckpointError,
    HubscoutError,
    ModelError,
    ModelNotFoundError,
    UnsafeCheckpointError,
    one_line,
)

_SECONDS_TO_WAIT = 3.0
_LOG_IN = "log in with `hf auth login` or set HF_TOKEN"
_LONGEST_QUOTE = 600
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


def explain_failure(error: BaseException, identifier: str) -> HubscoutError:
    """The error of a library that opens models, saying what to do."""
    if isinstance(error, HubscoutError):
        return error
    messages = " ".join(str(each) for each in _causes(error))
    if "weights_only" in messages or "upgrade torch to at least v2.6" in messages:
        return UnsafeCheckpointError(
            f"The weights of {identifier} are a pickle that would run code; it was not opened. "
            "Ask its author for safetensors."
        )
    if "trust_remote_code" in messages:
        return needs_code(identifier)
    if is_lost_connection(error) or is_timeout(error):
        return absent(identifier, hub_silence() or f"the network cannot be reached ({in_one_line(error)})")
    if "size mismatch" in messages or "Error(s) in loading state_dict" in messages:
        return CheckpointError(f"The weights of {identifier} do not fit: {in_one_line(error)}")
    return ModelError(f"{identifier} cannot be loaded: {type(error).__name__}: {in_one_line(error)}")


def absent(identifier: str, why: str) -> ModelNotFoundError:
    """The refusal of a model that is not here and cannot be fetched."""
    return ModelNotFoundError(
        f"{identifier} is not in the local cache, and {why}. Connect once to fetch it, or use file:PATH with weights "
        "on this machine."
    )


def needs_code(identifier: str) -> ModelError:
    """The refusal of a model that cannot be opened without running what its repository brings."""
    return ModelError(
        f"{identifier} needs code from its own repository, which was not run. If you have read that code and trust it, "
        f"write '{with_option(identifier, 'trust_remote_code=true')}'."
    )


def with_option(identifier: str, option: str) -> str:
    """An identifier as a user would write it with one more option."""
    return f"{identifier}{'&' if '?' in identifier else '?'}{option}"


def explain_hub_failure(error: BaseException, identifier: str, repository: str, revision: str | None) -> HubscoutError:
    """What the Hub's refusal or silence means for `repository`, saying what to do."""
    if isinstance(error, HubscoutError):
        return error
    names = {type(each).__name__ for each in _causes(error)}
    status = status_of(error)
    page = f"{endpoint()}/{repository}"
    if "GatedRepoError" in names:
        return ModelNotFoundError(
            f"{identifier} is gated: its owner hands it only to those who have accepted its licence. Accept it at "
            f"{page}, then {_LOG_IN}."
        )
    if "HFValidationError" in names:
        return ModelNotFoundError(f"{identifier}: {repository!r} is not a name of the Hugging Face Hub, owner/name.")
    if "RevisionNotFoundError" in names:
        return ModelNotFoundError(f"{identifier}: {repository} has no revision {revision!r}. Those it has: {page}.")
    if status == 401 and "Invalid credentials" in f"{_server_message(error)} {error}":
        return ModelNotFoundError(f"{identifier}: the hub does not accept your token (401). To renew it, {_LOG_IN}.")
    if status in (401, 404):
        return ModelNotFoundError(
            f"{identifier}: the Hugging Face Hub has no model {repository}, or it is private ({status}). Check the "
            f"spelling; if it is yours, {_LOG_IN}."
        )
    if status == 403:
        return ModelNotFoundError(
            f"{identifier}: the hub denies you access to {repository} (403){_said(error)}. Your token may lack the "
            f"permission to read it, or {page} asks for something first."
        )
    if status == 429:
        wait = seconds_to_wait(error)
        when = f"in {wait:.0f} seconds" if wait else "later"
        return ModelError(
            f"{identifier}: the hub refuses for now, it was asked too often (429). Try again {when}; those who "
            f"{_LOG_IN} may ask more."
        )
    if status is not None and status >= 500:
        return ModelError(
            f"{identifier}: the hub reports an error of its own ({status}){_said(error)}. Nothing is wrong here: try "
            "again later."
        )
    if is_timeout(error):
        return ModelError(
            f"{identifier}: the hub stopped sending (no data for some seconds, several times over). Try again later; "
            "HF_HUB_DOWNLOAD_TIMEOUT=60 waits longer."
        )
    if is_lost_connection(error):
        return ModelError(f"{identifier}: the connection to the hub broke off ({in_one_line(error)}). Try again.")
    if "No space left" in str(error) or getattr(error, "errno", None) == 28:
        return ModelError(f"{identifier} cannot be downloaded: the disk of the cache is full.")
    return ModelError(f"{identifier} cannot be fetched: {type(error).__name__}: {in_one_line(error)}")


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error, if there is one."""
    response = _response(error)
    return None if response is None else int(response.status_code)


def seconds_to_wait(error: BaseException) -> float | None:
    """How long the Hub asks to wait before the next request."""
    response = _response(error)
    if response is None:
        return None
    said = str(response.headers.get("Retry-After") or "")
    limit = str(response.headers.get("RateLimit") or "")
    said = said or next((part[2:] for part in limit.replace(" ", "").split(";") if part.startswith("t=")), "")
    return float(said) if said.isdigit() else None


def is_timeout(error: BaseException) -> bool:
    """Whether somebody waited too long."""
    return any("Timeout" in type(each).__name__ for each in _causes(error))


def is_lost_connection(error: BaseException) -> bool:
    """Whether there was, or is, no connection."""
    lost = {"ConnectError", "ReadError", "RemoteProtocolError", "ProxyError", "URLError", "LocalEntryNotFoundError"}
    return any(type(each).__name__ in lost or isinstance(each, ConnectionError) for each in _causes(error))


def in_one_line(error: BaseException) -> str:
    """The whole message, line breaks taken out."""
    text = one_line(error)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]} …"


def _response(error: BaseException) -> Any:
    return next((r for each in _causes(error) if (r := getattr(each, "response", None)) is not None), None)


def _server_message(error: BaseException) -> str:
    response = _response(error)
    return "" if response is None else str(response.headers.get("X-Error-Message") or "")


def _said(error: BaseException) -> str:
    message = _server_message(error)
    return f", saying {message!r}" if message else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
