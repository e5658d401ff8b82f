"""`serve`: the runs of a folder and what may be started there, behind a real socket, until Ctrl-C."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubscout.errors import HubscoutError, InputError, RunError, one_line
from hubscout.optional import require
from hubscout.report.answer import shell_command
from hubscout.report.saved_run import Run
from hubscout.runs.ranking_storage import to_json
from hubscout.runs.run_folder import RANKING
from hubscout.serve.pages import run_page
from hubscout.serve.progress import Progress
from hubscout.serve.run_index import RunIndex
from hubscout.serve.run_processes import Started, read_log, read_note
from hubscout.serve.security import Guard, guarded_protocol
from hubscout.serve.served_folder import DataFolder, Folder
from hubscout.serve.starting import MOST_JOBS, Request, Starter
from hubscout.serve.streams import RunFollower

LOG_BYTES = 6000
CLOSING_SECONDS = 2
ACCEPTED_AT_ONCE = 128
"""Connections that are taken before they are counted."""


@dataclass
class Site:
    """What the application works on: the runs of a server (`shown` is their folder as people call it), its guard,
    and what it may start.
    """

    library: RunIndex
    guard: Guard
    starter: Starter
    shown: str
    closing: bool = False
    """Set when the server goes down, so that endless answers end."""

    def run_page(self, name: str) -> str:
        """The page of one run."""
        folder, summary = self.library.find(name), self.library.summary(name)
        opened: Run | None = None
        problem = ""
        try:
            opened = self.library.open(name)
        except HubscoutError as error:
            problem = one_line(error)
        log = read_log(folder, LOG_BYTES)
        progress = Progress(printed=log.rpartition("\n")[2])
        follower = RunFollower(folder)
        while lines := follower.look()[1]:
            for file, line in lines:
                progress.take(file, line)
        if summary.state != "running":
            progress.halt()
        return run_page(
            summary,
            progress,
            opened=opened,
            problem="" if summary.nothing_yet else summary.problem or problem,
            log=log,
            csrf=self.guard.csrf,
            command=self._command(folder),
        )

    def _command(self, folder: Path) -> str:
        """The command of a run that was started here; of one from elsewhere nothing, nor where it is not allowed."""
        note = read_note(folder)
        try:
            command = self.starter.command(Request.read(note.request)) if note is not None else []
        except HubscoutError:  # a note from elsewhere: its models or data are not ours to run
            command = []
        return shell_command(["hubscout", *command[3:]]) if command else ""

    def stop(self, name: str, *, force: bool = False) -> bool:
        """Stop a run that was started here; False if it is over already."""
        return self._note(name, "stop it where it was started").stop(force=force)

    def resume(self, name: str) -> None:
        """Start a run again with what was asked for the first time; finished models are taken over."""
        request = Request.read(self._note(name, "run its command again where it was started").request)
        if request.name != name:
            raise RunError(f"The note in the run {name} is that of another run, {request.name}.")
        self.starter.start(request, again=True)

    def _note(self, name: str, instead: str) -> Started:
        note = read_note(self.library.find(name))
        if note is None:
            raise InputError(f"The run {name} was not started here; {instead}.")
        return note

    def ranking_record(self, name: str) -> Any:
        """What `ranking.json` of a run holds, or None."""
        if not (self.library.find(name) / RANKING).is_file():
            return None
        ranking = self.library.open(name).ranking
        return None if ranking is None else to_json(ranking)


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
    return Site(library, guard, Starter(library.folder, source, tuple(models), jobs), shown=str(library.folder.path))


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
