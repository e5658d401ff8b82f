"""A model opened by its name, with its download told as the rest of the work is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from hubscout.hubs.downloading import Downloaded, listening
from hubscout.runs.events import Downloading, Message, Observer

if TYPE_CHECKING:
    from hubscout.hubs import Backbone


def open_backbone(identifier: str, observer: Observer | None = None) -> Backbone:
    """What `hubscout.hubs.load` opens; `observer` hears of bytes that are fetched, and of trouble on the way."""
    from hubscout.hubs import load

    with downloads_told(identifier, observer):
        return load(identifier)


def downloads_told(model: str, observer: Observer | None) -> AbstractContextManager[None]:
    """In a `with` block, `observer` hears of downloads as events of `model`."""

    def hear(news: Downloaded | str) -> None:
        if observer is None:
            return
        if isinstance(news, str):
            observer(Message(model, news))
        else:
            observer(Downloading(model, news.bytes_done, news.bytes_total))

    return listening(None if observer is None else hear)
