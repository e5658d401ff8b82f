"""The folders that may be read, of runs and of data: names from the outside become paths inside them, or nothing.

A link below the folder is never followed, wherever it leads: what a link says may change between the look and the
reading, and a run folder has no need of links.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from hubscout.errors import HubscoutError, InputError, RunError, TaskError, one_line
from hubscout.runs.files import parse_json, parse_lines
from hubscout.runs.record_types import is_number
from hubscout.runs.run_folder import GROWING, RACE_EVIDENCE, RACE_LINES, RANKING, REFERENCES, SCORES, TUNING
from hubscout.runs.run_folder import NOTE as HOLDER

LONGEST_NAME = 400
MOST_BYTES = 1 << 24
"""Of one file, for a line in the list of runs or a panel; reports read all of it."""
DEEPEST = 4
NOTE = "serve.json"
"""In a run folder: what a server started."""
MARKS = frozenset({RANKING, TUNING, *GROWING, NOTE})
"""A folder that holds one of these is a run."""


class NotHereError(HubscoutError):
    """A name that is no place in the folder. It does not say why: that would tell what lies outside."""

    def __init__(self) -> None:
        super().__init__("There is no such run in this folder.")


def split_name(name: str) -> tuple[str, ...]:
    r"""The parts of a relative name, each a plain word; anything else is an error.

    >>> split_name("team/pets 2")
    ('team', 'pets 2')
    >>> split_name("../etc")
    Traceback (most recent call last):
    hubscout.serve.served_folder.NotHereError: There is no such run in this folder.
    """
    parts = tuple(name.split("/"))
    if not name or len(name) > LONGEST_NAME or len(parts) > DEEPEST or not all(map(_is_plain, parts)):
        raise NotHereError
    return parts


def _is_plain(part: str) -> bool:
    """Whether a part of a name is the name of a file on every system: `..`, `C:`, NUL and the like are not."""
    return bool(part) and not part.startswith(".") and part.isprintable() and not set(part) & set('\\:*?"<>|')


@dataclass(frozen=True)
class Folder:
    """A folder by its real path."""

    path: Path

    @classmethod
    def open(cls, path: str | Path, argument: str) -> Folder:
        """The folder at `path`, which must be there; the path itself may be a link."""
        given = Path(path).expanduser()
        if not given.is_dir():
            raise InputError(f"{argument}: {str(path)!r} is not a folder.")
        return cls(given.resolve())

    def find(self, name: str) -> Path:
        """The folder or file called `name` (relative, with slashes); an error where it is not inside or a link."""
        path = self.path
        for part in split_name(name):
            path = path / part
            if not _is_real(path):
                raise NotHereError
        if not path.resolve().is_relative_to(self.path):
            raise NotHereError
        return path

    def name_of(self, path: Path) -> str:
        """The inverse of `find`."""
        return path.relative_to(self.path).as_posix()

    def holds(self, path: Path) -> bool:
        """Whether a path in the folder can be asked for: no link, no odd name such as one with a backslash."""
        try:
            return self.find(self.name_of(path)) == path
        except NotHereError:
            return False


def _is_real(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)


def real_files(folder: Path, deepest: int = DEEPEST) -> Iterator[Path]:
    """The regular files in a folder and below, hidden ones and links left out, in the order of their names."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file(follow_symlinks=False):
            yield Path(entry.path)
        elif deepest > 0 and entry.is_dir(follow_symlinks=False):
            yield from real_files(Path(entry.path), deepest - 1)


def links_in(folder: Path, deepest: int = DEEPEST) -> list[Path]:
    """The links in a folder and below: readers that follow links must not be let into it."""
    found: list[Path] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                found.append(Path(entry.path))
            elif deepest > 0 and entry.is_dir(follow_symlinks=False):
                found += links_in(Path(entry.path), deepest - 1)
    return found


def open_real(path: Path) -> int:
    """A file descriptor for reading a regular file; a link at its place is refused by the system itself."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def read_real(path: Path, *, last_bytes: int = MOST_BYTES) -> bytes:
    """The content of a regular file, of a large one the last bytes; empty where there is none."""
    try:
        descriptor = open_real(path)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - last_bytes))
        return file.read(last_bytes)


def json_lines(path: Path, *, last_bytes: int = MOST_BYTES) -> list[dict[str, Any]]:
    """The JSON objects of a file, one per line, or those of its last bytes; broken lines are passed over."""
    return parse_lines(read_real(path, last_bytes=last_bytes))


def json_record(path: Path) -> tuple[dict[str, Any], str]:
    """What a record holds, and what is wrong with it. A file that is not there holds nothing, and that is fine."""
    if not os.path.lexists(path):
        return {}, ""
    try:
        if path.lstat().st_size > MOST_BYTES:
            return {}, f"{path.name} is too large to be shown here: {path.lstat().st_size:,} bytes."
        record = parse_json(read_real(path), origin=path.name)
    except RunError as error:
        return {}, one_line(error)
    return (record, "") if isinstance(record, dict) else ({}, f"{path.name} is not the record of a run.")


def as_dict(value: Any) -> dict[str, Any]:
    """What a file holds where an object should be; of anything else nothing."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The same of a list."""
    return value if isinstance(value, list) else []


def as_number(value: Any) -> float | None:
    """The same of a number."""
    return value if is_number(value) else None


def last_written(folder: Path) -> float:
    """When a file of a run was last written, in seconds since 1970."""
    return max((path.stat().st_mtime for path in real_files(folder)), default=folder.stat().st_mtime)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a file of a run itself."""
    if any((folder / mark).is_file() and not (folder / mark).is_symlink() for mark in MARKS):
        return True
    return is_race(folder)


def is_race(folder: Path) -> bool:
    """Whether a folder is that of a race; one that is still finding the evidence has only its ranking, and a holder."""
    if (folder / RACE_LINES).is_file():
        return True
    evidence = folder / RACE_EVIDENCE
    return (folder / HOLDER).is_file() and evidence.is_dir() and not evidence.is_symlink()


DATA_DEEPEST = 2
MOST_DATA = 300
MOST_LOOKED_AT = 3000
NO_DATA = frozenset({"node_modules", "__pycache__", "site-packages", "venv", SCORES, *GROWING, *REFERENCES})
"""Folders of programs, and files that hubscout itself writes."""
CACHE_MARK = "CACHEDIR.TAG"
"""What a folder of caches holds, ours and others'."""


@dataclass(frozen=True)
class DataFolder:
    """The folder whose data may be ranked; `without` (the runs) is not looked into."""

    folder: Folder
    without: Path

    def names(self) -> list[str]:
        """What can be ranked: folders and tables, by their names inside the folder."""
        return list(islice(self._walk(self.folder.path, DATA_DEEPEST, count()), MOST_DATA))

    def _walk(self, folder: Path, deeper: int, looked: Iterator[int]) -> Iterator[str]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            if next(looked) >= MOST_LOOKED_AT:
                return
            path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
            if entry.is_symlink() or entry.name.startswith(".") or entry.name in NO_DATA or path == self.without:
                continue
            if is_folder and (is_run(path) or (path / CACHE_MARK).exists()):
                continue
            if _is_data(path):
                yield self.folder.name_of(path)
            elif deeper > 0 and is_folder:
                yield from self._walk(path, deeper - 1, looked)

    def find(self, name: str) -> Path:
        """The data of a name."""
        try:
            path = self.folder.find(name)
        except NotHereError:
            raise InputError(f"Data: {name!r} is not in the data folder of this server.") from None
        if path == self.without or path.is_relative_to(self.without):
            raise InputError(f"Data: {name!r} is a folder of runs.")
        return path


def _is_data(path: Path) -> bool:
    """Whether a file or folder looks like a task, by names alone: opening would read all of it."""
    from hubscout.tasks.conll import is_conll_name
    from hubscout.tasks.npz import is_npz_name
    from hubscout.tasks.opening import which_constructor
    from hubscout.tasks.reading import table_format

    if path.is_file():
        return is_npz_name(path) or (table_format(path) is not None and path.suffix != ".json")
    try:
        constructor = which_constructor(path)
    except (TaskError, OSError):
        return False
    if constructor == "from_conll":
        return any(is_conll_name(entry) and "train" in entry.name for entry in path.iterdir())
    if constructor == "from_table":
        return any("train" in entry.name for entry in path.iterdir())
    return constructor == "from_hf" or _has_class_folders(path)


def _has_class_folders(path: Path) -> bool:
    """Whether at least two folders in it, or in its `train`, hold images or sounds themselves."""
    from hubscout.tasks.audio import is_sound_path
    from hubscout.tasks.images import is_image_name

    home = path / "train" if (path / "train").is_dir() else path
    classes = 0
    for child in home.iterdir():
        if child.is_dir() and not child.is_symlink():
            with os.scandir(child) as entries:
                names = [entry.name for entry, _ in zip(entries, range(20), strict=False)]
            classes += any(is_image_name(name) or is_sound_path(name) for name in names)
        if classes >= 2:
            return True
    return False
