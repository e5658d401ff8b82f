"""What the application works on: the runs, who may start what, and the rules of the door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hubscout.errors import HubscoutError, InputError, RunError
from hubscout.report.answer import shell_command
from hubscout.report.saved_run import Run
from hubscout.runs.ranking_storage import to_json
from hubscout.runs.run_folder import RANKING
from hubscout.serve.following import RunFollower
from hubscout.serve.pages.run_page import run_page
from hubscout.serve.progress import Progress
from hubscout.serve.run_index import RunIndex
from hubscout.serve.run_processes import read_log, read_note
from hubscout.serve.security import Guard
from hubscout.serve.starting import Request, Starter

LOG_BYTES = 6000


@dataclass
class Site:
    """The runs of a server (`shown` is their folder as people call it), its guard, and what it may start."""

    library: RunIndex
    guard: Guard
    starter: Starter
    shown: str
    closing: bool = False
    """Set when the server goes down, so that endless answers end."""

    def run_page(self, name: str) -> str:
        """The page of one run."""
        folder = self.library.find(name)
        summary = self.library.summary(name)
        opened: Run | None = None
        problem = ""
        try:
            opened = self.library.open(name)
        except HubscoutError as error:
            problem = " ".join(str(error).split())
        log = read_log(folder, LOG_BYTES)
        progress = Progress(printed=log.rpartition("\n")[2])
        follower = RunFollower(folder)
        while lines := follower.look()[1]:
            for file, line in lines:
                progress.take(file, line)
        if summary.state != "running":
            progress.halt()
        note = read_note(folder)
        command = ""
        if note is not None:
            try:
                command = shell_command(["hubscout", *self.starter.command(Request.read(note.request))[3:]])
            except HubscoutError:
                note = None  # a note from elsewhere: its models or data are not ours to run
        return run_page(
            summary,
            progress,
            opened=opened,
            problem="" if summary.nothing_yet else problem or summary.problem,
            log=log,
            request=note.request if note is not None else None,
            csrf=self.guard.csrf,
            command=command,
        )

    def stop(self, name: str, *, force: bool = False) -> bool:
        """Stop a run that was started here; False if it is over already."""
        note = read_note(self.library.find(name))
        if note is None:
            raise InputError(f"The run {name} was not started here; stop it where it was started.")
        return note.stop(force=force)

    def resume(self, name: str) -> None:
        """Start a run again with what was asked for the first time; finished models are taken over."""
        note = read_note(self.library.find(name))
        if note is None:
            raise InputError(f"The run {name} was not started here; run its command again where it was started.")
        request = Request.read(note.request)
        if request.name != name:
            raise RunError(f"The note in the run {name} is that of another run, {request.name}.")
        self.starter.start(request, again=True)

    def ranking_record(self, name: str) -> Any:
        """What `ranking.json` of a run holds, or None."""
        folder = self.library.find(name)
        if not (folder / RANKING).is_file():
            return None
        ranking = self.library.open(name).ranking
        return None if ranking is None else to_json(ranking)
