"""Server-sent events: a run as it goes on, for programs (its lines) and for our page (its panel)."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from hubscout.serve.following import RunFollower
from hubscout.serve.progress import Progress
from hubscout.serve.run_processes import read_log
from hubscout.serve.served_folder import NotHereError

if TYPE_CHECKING:
    from hubscout.serve.site import Site

POLL_SECONDS = 0.3
CLOCK_SECONDS = 2.0
"""How often the panel of a run is sent again although nothing was written: it shows passing time."""
LINE_BYTES = 1000
"""Of the log, for its last line."""
SILENCE_SECONDS = 15.0
"""A comment goes out so often, so that a client that went away is noticed."""


def message(event: str, data: Any) -> str:
    """One event as it goes over the wire.

    >>> message("end", {"state": "finished"})
    'event: end\\ndata: {"state": "finished"}\\n\\n'
    """
    return f"event: {event}\ndata: {strict_json(data)}\n\n"


async def lines_stream(site: Site, name: str) -> AsyncIterator[str]:
    """Every line of the run, old ones first, until the run is over."""
    follower = RunFollower(site.library.find(name))
    spoken = time.monotonic()
    while not site.closing:
        # The state is asked for before the lines: what a run wrote last is then read even if it ended just now.
        state = await asyncio.to_thread(_state, site, name)
        anew, lines = await asyncio.to_thread(follower.look)
        if anew:
            yield message("reset", {})
        for file, line in lines:
            yield message("line", {"file": file, "line": line})
        if lines:
            spoken = time.monotonic()
            continue  # a long file comes in pieces
        if state != "running":
            yield message("end", {"state": state})
            return
        if time.monotonic() - spoken > SILENCE_SECONDS:
            spoken = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(POLL_SECONDS)


async def panel_stream(site: Site, name: str) -> AsyncIterator[str]:
    """The panel of the run's page, again whenever it changes, until the run is over."""
    follower = RunFollower(site.library.find(name))
    progress = Progress()
    shown, sent = "", 0.0
    while not site.closing:
        state = await asyncio.to_thread(_state, site, name)
        anew, lines = await asyncio.to_thread(follower.look)
        if anew:
            progress = Progress()
        for file, line in lines:
            progress.take(file, line)
        if lines or time.monotonic() - sent > CLOCK_SECONDS:
            progress.printed = read_log(follower.folder, LINE_BYTES).rpartition("\n")[2]
            markup = await asyncio.to_thread(progress.markup)
            if markup != shown:
                yield message("panel", {"html": str(markup), "status": progress.status})
                shown = markup
            else:
                yield ": still here\n\n"
            sent = time.monotonic()
        if state != "running" and not lines:
            yield message("end", {"state": state})
            return
        await asyncio.sleep(POLL_SECONDS)


def _state(site: Site, name: str) -> str:
    try:
        return site.library.summary(name).state
    except (NotHereError, OSError):
        return "gone"


def strict_json(value: Any) -> str:
    """JSON that every reader takes: Python's knows NaN and half characters, JSON does not."""
    return json.dumps(_finite(value), allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
