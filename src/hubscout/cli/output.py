"""Where commands write: results to standard output, as a table or as JSON; everything else to standard error."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubscout.cli.app import EXIT_WORSE_THAN_GUESSING, in_options
from hubscout.credentials import strip_credentials
from hubscout.errors import InputError
from hubscout.text_table import text_table

if TYPE_CHECKING:
    from hubscout.runs.events import Observer

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no messages.")]


@dataclass(frozen=True)
class Output:
    """How a command tells what it found."""

    as_json: JsonOption = False
    quiet: QuietOption = False

    def show(self, record: Callable[[], Any], *parts: Any) -> None:
        """The result: the record as JSON where that is wanted, else the parts as a person reads them."""
        if self.as_json:
            print_json(record())
        else:
            print_result(*parts)

    def say(self, *texts: str) -> None:
        """Messages for the person at the terminal."""
        for text in texts:
            say(text, quiet=self.quiet)


def check_out(out: Path | None, endings: Container[str], what: str, hint: str = "") -> None:
    """Refuse an --out that is not a file of one of these endings in a folder that is there."""
    if out is not None and out.suffix.lower() not in endings:
        raise InputError(f"--out must name {what}; it was {out}.{hint}")
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {out.absolute().parent}.")


def print_json(record: Any) -> None:
    """One JSON value on standard output; NaN never."""
    print(strip_credentials(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False, default=str)))


def print_result(*parts: Any) -> None:
    """Rich renderables on standard output; wide where neither a terminal nor $COLUMNS says how wide."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit() else 200)
    for part in parts:
        console.print(part, highlight=False)


def print_table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Container[str] = (), title: str = ""
) -> None:
    """A table on standard output: cells are text, never markup; columns in `right` are aligned there."""
    print_result(text_table(heads, rows, right=right, title=title))


def say_saved(run: Path, model: Path, *, by_code: bool, quiet: bool) -> None:
    """Where a run is, and what to type next: for its page, and to predict with its model."""
    allowed = " --allow-code" if by_code else ""
    page, predict = f"hubscout report {shlex.quote(str(run))}", f"hubscout predict {shlex.quote(str(model))} INPUTS"
    say(f"Saved in {run}. Next:\n  {page}\n  {predict}{allowed}", quiet=quiet)


def say(text: str, *, quiet: bool = False) -> None:
    """A message for the person at the terminal."""
    if not quiet:
        print(strip_credentials(text), file=sys.stderr)


@contextmanager
def progress(ctx: typer.Context, models: Sequence[str] = (), *, title: str = "", quiet: bool) -> Iterator[Observer]:
    """What `hubscout.runs.display.display` shows, with messages that speak of options and not of arguments."""
    from hubscout.runs.display import display
    from hubscout.runs.events import Event, Message

    with display(models, title=title, quiet=quiet) as observer:

        def translated(event: Event) -> None:
            if isinstance(event, Message):
                event = replace(event, text=in_options(event.text, ctx.command.params))
            observer(event)

        yield translated


@contextmanager
def run_folder(out: Path | None, name: str, *, quiet: bool) -> Iterator[Path]:
    """The folder of a run: `out`, or one of its own in runs/, numbered so that nothing is overwritten."""
    if out is not None:
        yield out
        return
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.")[:80]
    place = _make(stem)
    say(f"Without --out, the run goes to {place}", quiet=quiet)
    try:
        yield place
    finally:
        for folder in (place, place.parent):  # where nothing came of it, nothing stays
            with suppress(OSError):
                folder.rmdir()


def _make(stem: str) -> Path:
    try:
        Path("runs").mkdir(exist_ok=True)
        for number in count(1):
            with suppress(FileExistsError):
                (place := Path("runs") / f"{stem}-{number}").mkdir()
                return place
    except OSError as error:
        raise InputError(f"No folder can be made in runs/ here ({error.strerror}): say where with --out.") from error
    raise AssertionError("unreachable")


def warn_and_exit(ctx: typer.Context, warnings: list[str]) -> None:
    """Say what is worse than guessing, even to those who want to hear nothing, and end with a status that shows it."""
    found = [in_options(warning, ctx.command.params) for warning in warnings if warning]
    for warning in found:
        say(f"Warning: {warning}")
    if found:
        raise typer.Exit(EXIT_WORSE_THAN_GUESSING)
