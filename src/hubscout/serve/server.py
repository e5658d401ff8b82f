"""`serve`: the application behind a real socket, until Ctrl-C."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hubscout.errors import InputError
from hubscout.optional import require
from hubscout.serve.connections import guarded_protocol
from hubscout.serve.data_sets import DataFolder
from hubscout.serve.run_index import RunIndex
from hubscout.serve.security import Guard
from hubscout.serve.served_folder import Folder
from hubscout.serve.site import Site
from hubscout.serve.starting import MOST_JOBS, Starter

CLOSING_SECONDS = 2
ACCEPTED_AT_ONCE = 128
"""Connections that are taken before they are counted."""


def open_site(
    runs: str | Path,
    *,
    guard: Guard,
    data: str | Path = ".",
    models: Sequence[str] = (),
    jobs: int = MOST_JOBS,
) -> Site:
    """A site over the folder `runs`, which is made if it is not there."""
    Path(runs).expanduser().mkdir(parents=True, exist_ok=True)
    library = RunIndex(runs)
    source = DataFolder(Folder.open(data, "--data"), without=library.folder.path)
    starter = Starter(library.folder, source, tuple(models), jobs)
    return Site(library, guard, starter, shown=str(library.folder.path))


def listen(host: str, port: int) -> socket.socket:
    """A socket for the server; port 0 finds a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except socket.gaierror as error:
        raise InputError(f"--host: {host!r} is not an address of this machine: {error.strerror}.") from error
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise InputError(
                f"--port: {port} is taken by another program. Choose another, or 0 for a free one."
            ) from error
        raise InputError(f"Cannot listen on {host}:{port}: {error}.") from error


def serve(
    runs: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    data: str | Path = ".",
    models: Sequence[str] = (),
    jobs: int = MOST_JOBS,
    ready: Callable[[str, str | None], None] | None = None,
) -> None:
    """Serve the folder until interrupted. `ready` is told the address and the token once requests are answered.

    At most `jobs` runs that were started from the page go on at a time.
    """
    uvicorn = require("uvicorn", extra="serve", purpose="hubscout serve")
    require("fastapi", extra="serve", purpose="hubscout serve")
    require("psutil", extra="serve", purpose="hubscout serve")
    from hubscout.serve.application import create_app

    Guard.make(host, port, token)  # a token that is too short is said before anything is opened
    bound = listen(host, port)
    try:
        guard = Guard.make(host, bound.getsockname()[1], token)
        site = open_site(runs, guard=guard, data=data, models=models, jobs=jobs)
        config = uvicorn.Config(
            create_app(site),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            http=guarded_protocol(),
            ws="none",
            backlog=ACCEPTED_AT_ONCE,
            timeout_graceful_shutdown=CLOSING_SECONDS,
        )

        class Server(uvicorn.Server):  # type: ignore[name-defined]
            """Tells when it is ready, and lets endless answers end when it is told to stop."""

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets=sockets)
                if ready is not None:
                    ready(_address(host, guard.port), guard.token)

            def handle_exit(self, sig: int, frame: Any) -> None:
                site.closing = True
                super().handle_exit(sig, frame)

        Server(config).run(sockets=[bound])
    finally:
        bound.close()


def _address(host: str, port: int) -> str:
    name = socket.gethostname() if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/"
