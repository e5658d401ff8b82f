"""Data that may be ranked on: what lies below the data folder and can be read as a task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from hubscout.errors import InputError, TaskError
from hubscout.runs.run_folder import GROWING, REFERENCES, SCORES
from hubscout.serve.served_folder import Folder, NotHereError, is_run

DEEPEST = 2
MOST = 300
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
        return list(islice(self._walk(self.folder.path, DEEPEST, count()), MOST))

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
    from hubscout.tasks.opening import which_constructor
    from hubscout.tasks.reading import table_format

    if path.is_file():
        return table_format(path) is not None and path.suffix != ".json"
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
    """Whether at least two folders in it, or in its `train`, hold images themselves."""
    from hubscout.tasks.images import EXTENSIONS

    home = path / "train" if (path / "train").is_dir() else path
    classes = 0
    for child in home.iterdir():
        if child.is_dir() and not child.is_symlink():
            with os.scandir(child) as entries:
                names = [entry.name for entry, _ in zip(entries, range(20), strict=False)]
            classes += any(Path(name).suffix.lower() in EXTENSIONS for name in names)
        if classes >= 2:
            return True
    return False
