"""Connections that never finish a request must not keep others out.

uvicorn waits for a request as long as the client likes. Here a connection has some seconds to send one, there are only
so many of them, and where all places are taken the one that has kept us waiting longest makes room.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hubscout.optional import require

MOST_CONNECTIONS = 512
REQUEST_SECONDS = 15.0
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"


def guarded_protocol(most: int | None = None, seconds: float = REQUEST_SECONDS) -> type[asyncio.Protocol]:
    """The HTTP protocol of uvicorn with at most `most` connections, each with `seconds` to send a request."""
    implementation = require("uvicorn.protocols.http.h11_impl", extra="serve", purpose="hubscout serve")
    limit = most_connections() if most is None else most
    waiting: dict[Any, asyncio.TimerHandle] = {}
    """Connections whose request is not whole, the one that waits longest first."""

    class Guarded(implementation.H11Protocol):  # type: ignore[name-defined]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            if len(self.connections) > limit:
                if not waiting:
                    transport.write(_BUSY)
                    transport.close()
                    return
                next(iter(waiting)).drop()
            self.wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self.stop_waiting()
            super().connection_lost(exc)

        def handle_events(self) -> None:
            super().handle_events()
            if self.conn.their_state in (implementation.h11.IDLE, implementation.h11.SEND_BODY):
                self.wait()
            else:
                self.stop_waiting()

        def wait(self) -> None:
            if self not in waiting:
                waiting[self] = self.loop.call_later(seconds, self.drop)

        def stop_waiting(self) -> None:
            timer = waiting.pop(self, None)
            if timer is not None:
                timer.cancel()

        def drop(self) -> None:
            self.stop_waiting()
            self.connections.discard(self)
            self.transport.abort()

    return Guarded


def most_connections() -> int:
    """At most half of the files that this process may have open: runs are files too."""
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return MOST_CONNECTIONS
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if allowed < 0 else max(16, min(MOST_CONNECTIONS, allowed // 2))
