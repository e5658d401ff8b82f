"""Where a run goes for which no folder was named: a new one in runs/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from hubscout.cli.output import say
from hubscout.errors import InputError


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
