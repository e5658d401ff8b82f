"""A model opened by its name, with its download told as the rest of the work is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubscout.features.progress import Downloading, Message, Observer

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.hubs.downloading import Downloaded


def open_backbone(identifier: str, observer: Observer | None = None) -> Backbone:
    """What `hubscout.hubs.load` opens; `observer` hears of bytes that are fetched, and of trouble on the way."""
    from hubscout.hubs import load
    from hubscout.hubs.downloading import listening

    def hear(news: Downloaded | str) -> None:
        if observer is None:
            return
        if isinstance(news, str):
            observer(Message(identifier, news))
        else:
            observer(Downloading(identifier, news.bytes_done, news.bytes_total))

    with listening(None if observer is None else hear):
        return load(identifier)
