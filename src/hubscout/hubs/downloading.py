"""How those who wait for a model hear of its download: progress in bytes, and what went wrong on the way.

Where nobody listens, the Hub's library shows its own bars on a terminal.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SECONDS_BETWEEN_NEWS = 0.5
_BYTES_AT_ONCE = 1 << 17
"""The library's own ten megabytes are minutes of silence on a slow line, and lost where it breaks."""
_IN_OUR_WORDS = {
    "resume download": "the download broke off or stalled; resuming where it stopped",
    "Rate limited": "the hub was asked too often and wants a pause; waiting",
    "Retrying in": "the hub did not answer as it should; asking again",
}
"""What the library logs on the way, by a part of it."""


@dataclass(frozen=True)
class Downloaded:
    """So many bytes of what is missing of a model have come. The last one has all of them."""

    bytes_done: int
    bytes_total: int


Listener = Callable[[Downloaded | str], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """What downloads tell in a `with` block goes to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(news: Downloaded | str) -> None:
    """Say something to whoever listens."""
    listener = _listener.get()
    if listener is not None:
        listener(news)
    elif isinstance(news, str):
        logging.getLogger("hubscout").warning(news)


@dataclass
class Download:
    """Files of one model that are fetched one after the other: `total` bytes in all, 0 to tell nothing."""

    total: int = 0
    done: int = 0
    _told: float = field(default=0.0, repr=False)

    def fetch(self, repository: str, name: str, commit: str) -> Path:
        """A file of the Hub in the local cache, fetched if it is not there."""
        from huggingface_hub import constants, hf_hub_download

        constants.DOWNLOAD_CHUNK_SIZE = min(_BYTES_AT_ONCE, constants.DOWNLOAD_CHUNK_SIZE)
        arguments: dict[str, Any] = {}
        if _listener.get() is not None and "tqdm_class" in inspect.signature(hf_hub_download).parameters:
            arguments["tqdm_class"] = self._bar()
        with _warnings_told():
            return Path(hf_hub_download(repository, name, revision=commit, **arguments))

    def __post_init__(self) -> None:
        if self.total:
            tell(Downloaded(0, self.total))

    def _advance(self, count: int) -> None:
        if not self.total:
            return
        self.done += count
        now = time.monotonic()
        if now - self._told >= _SECONDS_BETWEEN_NEWS or self.done >= self.total:
            self._told = now
            tell(Downloaded(min(self.done, self.total), self.total))

    def _bar(self) -> type:
        from huggingface_hub.utils import tqdm

        advance = self._advance

        class Bar(tqdm):
            """What the library takes for a progress bar; it shows nothing itself."""

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **{**options, "disable": True})

            def update(self, n: float | None = 1) -> None:
                advance(int(n or 0))

            def update_transfer(self, n: float | None = 1) -> None:
                """Bytes on the wire, where they are fewer than those of the file, are not counted."""

        return Bar


class _Retelling(logging.Handler):
    """Says once per cause what the library would print at every attempt."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        text = next((ours for theirs, ours in _IN_OUR_WORDS.items() if theirs in message), None)
        if text is not None and text not in self._said:
            self._said.add(text)
            tell(text)


@contextmanager
def _warnings_told() -> Iterator[None]:
    logger = logging.getLogger("huggingface_hub")
    handlers, propagate = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [_Retelling()], False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
