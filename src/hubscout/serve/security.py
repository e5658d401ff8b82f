"""Who may talk to the server, for how long, and what a browser may do with its pages.

- The `Host` header must be a name of this server, so that a foreign site whose name suddenly leads here (DNS
  rebinding) gets nothing.
- Bound to anything but this machine, or given a token, the server wants the token: `Authorization: Bearer TOKEN`, or
  the cookie that `/?token=TOKEN` or the login form sets. Comparisons take the same time whatever is wrong.
- A request that changes something must come from one of our pages: `Origin` and `Sec-Fetch-Site`, where a browser
  sends them, must say so, and it must bring the server's form token (field `csrf` or header `X-CSRF-Token`).
- Connections that never finish a request must not keep others out. uvicorn waits for a request as long as the client
  likes. Here a connection has some seconds to send one, there are only so many of them, and where all places are taken
  the one that has kept us waiting longest makes room.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hubscout.errors import InputError
from hubscout.optional import require

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SHORTEST_TOKEN = 16
OPEN_PATHS = frozenset({"/login", "/assets/report.css", "/assets/serve.css", "/assets/serve.js"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # under no-referrer browsers would send our own forms with Origin: null
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
}


def is_local(host: str) -> bool:
    """Whether only this machine can reach a server that is bound to `host`.

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("::1"), is_local("0.0.0.0"), is_local("10.0.0.5")
    (True, True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Guard:
    """The rules of one server. `token` is None where none is wanted."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @classmethod
    def make(cls, host: str, port: int, token: str | None = None) -> Guard:
        """The guard of a server bound to `host`: other machines need a token, which is made up where none is given."""
        if token is not None and len(token) < SHORTEST_TOKEN:
            raise InputError(f"--token must have at least {SHORTEST_TOKEN} characters, not {len(token)}.")
        if token is None and not is_local(host):
            token = secrets.token_urlsafe(32)
        return cls(host=host, port=port, token=token)

    @property
    def cookie_name(self) -> str:
        """Cookies are shared by all ports of a host, so the port is part of the name."""
        return f"hubscout-{self.port}"

    @property
    def cookie(self) -> str:
        """What a browser that knows the token gets: it proves that and does not tell it."""
        return hmac.new((self.token or "").encode(), b"hubscout session", hashlib.sha256).hexdigest()

    def knows_host(self, header: str) -> bool:
        """Whether a `Host` header names this server."""
        try:
            parts = urlsplit(f"//{header}")
            name, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            return False
        if not name or parts.username is not None or parts.path:
            return False
        if port is not None and port != self.port:
            # A tunnel may have another port at its other end; only this machine's names are taken there.
            return is_local(name) or self._everywhere
        own = not is_local(self.host) and name == socket.gethostname().lower()
        return is_local(name) or name == self.host.lower() or self._everywhere or own

    @property
    def _everywhere(self) -> bool:
        """Bound to all addresses, the server cannot know its names; there it always has a token."""
        return self.host in {"0.0.0.0", "::", ""} and self.token is not None

    def is_token(self, given: str) -> bool:
        """Compare with the token in constant time."""
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether a request brings what is needed to be answered."""
        if self.token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        from starlette.requests import cookie_parser

        given = cookie_parser(headers.get("cookie", "")).get(self.cookie_name, "")
        return hmac.compare_digest(given.encode(), self.cookie.encode())

    def is_csrf(self, given: str) -> bool:
        """Compare with the form token in constant time."""
        return hmac.compare_digest(given.encode(), self.csrf.encode())

    @staticmethod
    def comes_from_here(headers: Mapping[str, str]) -> bool:
        """Whether a request that changes something was made by a page of this server, as far as browsers tell."""
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return False
        origin = headers.get("origin")
        if origin is None:
            return True
        parts = urlsplit(origin)
        return parts.scheme in {"http", "https"} and parts.netloc.lower() == headers.get("host", "").lower()


class Protect:
    """The guard before an application. It is plain ASGI, so that endless answers pass through it unbuffered."""

    def __init__(self, application: Application, guard: Guard, refuse: Callable[[int, str, Scope], Any]) -> None:
        self.application = application
        self.guard = guard
        self.refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse with a status and a reason."""
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        from starlette.datastructures import Headers, MutableHeaders

        application: Any = self._answer(scope, Headers(scope=scope)) or self.application

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                there = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    there.setdefault(name, value)
            await send(message)

        await application(scope, receive, guarded)

    def _answer(self, scope: Scope, headers: Mapping[str, str]) -> Any:
        """A refusal, or None."""
        if not self.guard.knows_host(headers.get("host", "")):
            return self.refuse(421, "This server does not go by that name. Use the address it printed.", scope)
        if scope["method"] not in {"GET", "HEAD"} and not self.guard.comes_from_here(headers):
            return self.refuse(403, "This request was made by another site.", scope)
        if scope["path"] in OPEN_PATHS or self.guard.admits(headers):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["method"] == "GET" and given and self.guard.is_token(given):
            return None  # the application sets the cookie and takes the token out of the address
        return self.refuse(401, "This server wants its token.", scope)


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
