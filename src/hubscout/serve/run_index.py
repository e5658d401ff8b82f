"""The runs in a folder: found, summarised, opened for reports."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hubscout.errors import HubscoutError, RunError
from hubscout.report import Run, open_run, render
from hubscout.serve.served_folder import DEEPEST, Folder, NotHereError, is_run, links_in, real_files
from hubscout.serve.summary import Summary, summarise

T = TypeVar("T")
MOST_RUNS = 5000
REPORTS_KEPT = 8
SUMMARIES_KEPT = 2 * MOST_RUNS


class Kept:
    """A few results by the state of the files that they were made from; each is made once, whoever asks."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made by `make` where it is not there."""
        with self._lock:
            found, ours = self._values.get(key), Future[T]()
            self._values[key] = found or ours
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)
        if found is None:
            try:
                ours.set_result(make())
            except BaseException as error:
                with self._lock:
                    self._values.pop(key, None)
                ours.set_exception(error)
        return (found or ours).result()


class RunIndex:
    """The runs below one folder. Names are paths inside it with slashes; nothing else can be named."""

    def __init__(self, path: str | Path) -> None:
        self.folder = Folder.open(path, "RUNS")
        if is_run(self.folder.path):
            raise RunError(
                f"{path} is itself a run. Give the folder that contains it: hubscout serve {Path(path).parent}"
            )
        self._summaries = Kept(SUMMARIES_KEPT)
        self._reports = Kept(REPORTS_KEPT)

    def names(self) -> list[str]:
        """The runs, by name."""
        return sorted(self.folder.name_of(path) for path in self._walk(self.folder.path, DEEPEST - 1))

    def _walk(self, folder: Path, deeper: int) -> Iterator[Path]:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return
        for entry in entries:
            # A link may lead out of the folder, or in a circle.
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                continue
            path = Path(entry.path)
            if not self.folder.holds(path):
                continue
            if is_run(path):
                yield path
            elif deeper > 0:
                yield from self._walk(path, deeper - 1)

    def find(self, name: str) -> Path:
        """The folder of a run."""
        path = self.folder.find(name)
        if not path.is_dir() or not is_run(path):
            raise NotHereError
        return path

    def summary(self, name: str) -> Summary:
        """One run in a line."""
        return self._summary(name, self.find(name))

    def _summary(self, name: str, path: Path) -> Summary:
        made = self._summaries.get((name, _state(path)), lambda: _guarded(name, path))
        # Whether a process lives is not written in any file.
        return _guarded(name, path) if made.state == "running" else made

    def summaries(self, query: str = "") -> list[Summary]:
        """The runs that hold every word of the query: those that are running, then the latest."""
        words = query.lower().split()
        found = []
        for name in self.names()[:MOST_RUNS]:
            try:
                summary = self._summary(name, self.folder.find(name))
            except (NotHereError, OSError):
                continue  # removed while we looked
            if all(word in summary.search for word in words):
                found.append(summary)
        found.sort(key=lambda summary: summary.moment, reverse=True)  # they come by name
        return sorted(found, key=lambda summary: summary.state != "running")

    def open(self, name: str) -> Run:
        """A run with everything a report needs. One that holds links is refused: its readers would follow them."""
        path = self.find(name)
        if links_in(path):
            raise RunError(f"The run {name} contains symbolic links, so it is not opened here.")
        with _as_problem(name):
            return open_run(path)

    def report(self, name: str) -> str:
        """The page that `hubscout report` writes."""
        return self._reports.get((name, _state(self.find(name))), lambda: self._render(name))

    def _render(self, name: str) -> str:
        run = self.open(name)
        with _as_problem(name):
            return render(run)


def _guarded(name: str, path: Path) -> Summary:
    """The summary of a run. Whatever is in its folder, it must not take the list of all runs down."""
    try:
        return summarise(name, path)
    except OSError:
        raise
    except Exception as error:
        return Summary(name=name, kind="ranking", state="failed", problem=_strange(error))


@contextmanager
def _as_problem(name: str) -> Iterator[None]:
    """Whatever goes wrong with one run becomes an error that names it."""
    try:
        yield
    except HubscoutError:
        raise
    except OSError as error:
        raise RunError(f"The run {name} cannot be read: {error.strerror or error}.") from error
    except Exception as error:
        raise RunError(f"The run {name} cannot be shown. {_strange(error)}") from error


def _strange(error: Exception) -> str:
    return f"Its files are damaged in an unexpected way: {type(error).__name__}: {error}"


def _state(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, times and sizes of a run's files: other content has another state."""
    found = []
    for path in real_files(folder):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)
