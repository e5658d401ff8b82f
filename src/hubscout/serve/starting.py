"""From what a form says to a `hubscout rank` that is allowed to run.

Whoever may use the page may rank the data below the data folder with models of hubs. Models that are read from files
or run somebody's code are only taken if the person who started the server offered them.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hubscout.errors import InputError
from hubscout.serve.data_sets import DataFolder
from hubscout.serve.run_processes import Started, read_note, start
from hubscout.serve.served_folder import Folder, NotHereError, split_name

HUBS = ("timm", "torchvision", "hf", "sentence-transformers", "pypi")
_NAME = r"[A-Za-z0-9*][\w.*+-]*"
_MODEL = re.compile(rf"(?P<hub>[a-z-]+)/(?P<name>{_NAME}(?:/{_NAME})*)(?:\?(?P<options>[\w.,=&-]*))?", re.ASCII)
_COLUMN = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_WORDS = re.compile(r"[a-z0-9-]+(,[a-z0-9-]+)*")
_LIMIT = re.compile(r"[0-9]{1,9}(\.[0-9]+)?[kM]?")
MOST_MODELS = 500
MOST_JOBS = 4


@dataclass(frozen=True, kw_only=True)
class Request:
    """A ranking that is wanted: of the data called `data`, into the run called `name`."""

    name: str
    data: str
    models: tuple[str, ...]
    metrics: str = "logme"
    limit: str = ""
    label: str = ""
    text: str = ""
    image: str = ""

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Request:
        """From the fields of a form or of a JSON object; models are a list, or one per line."""
        models = fields.get("models")
        lines = [models] if isinstance(models, str) else models if isinstance(models, list | tuple) else []
        words = [word.strip() for line in lines for word in str(line).splitlines()]
        others = {key: str(fields.get(key) or "").strip() for key in _FIELDS}
        others["metrics"] = others["metrics"] or "logme"
        return cls(models=tuple(dict.fromkeys(word for word in words if word)), **others)


_FIELDS = ("name", "data", "metrics", "limit", "label", "text", "image")


@dataclass(frozen=True)
class Starter:
    """Starts rankings: of which data, with which models beyond those of hubs, into which folder, how many at a time."""

    runs: Folder
    data: DataFolder
    offered: tuple[str, ...] = ()
    jobs: int = MOST_JOBS
    _starting: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    def running(self) -> list[str]:
        """The rankings that a server started here and that are still running, also those of an earlier server."""
        notes = ((folder.name, read_note(folder)) for folder in sorted(self.runs.path.iterdir()))
        return [name for name, note in notes if note is not None and note.running]

    def start(self, request: Request, *, again: bool = False) -> Started:
        """Check the request and start it. `again` goes on with a run that was interrupted."""
        with self._starting:  # two who ask at the same time are counted one after the other
            return self._start(request, again)

    def _start(self, request: Request, again: bool) -> Started:
        command = self.command(request)
        folder = self.runs.path.joinpath(*self._name(request.name))
        running = self.running()
        if len(running) >= self.jobs and request.name not in running:
            raise InputError(
                f"{len(running)} rankings are running already ({', '.join(running[:5])}), and this server starts at "
                f"most {self.jobs} at a time. Wait for one, stop one, or start the server with a higher --jobs."
            )
        if again:
            note = read_note(folder)
            if note is not None and note.running:
                raise InputError(f"The run {request.name} is still running.")
        else:
            try:
                folder.mkdir()  # of two who ask for the same name, one gets it
            except FileExistsError:
                raise InputError(
                    f"Name: a folder called {request.name!r} already exists; choose another name."
                ) from None
        try:
            return start(command, folder, asdict(request))
        except BaseException:
            if not again:
                _remove(folder)
            raise

    def command(self, request: Request) -> list[str]:
        """The command line. Values are joined to their options, so that none can be taken for an option."""
        path = self.data.find(request.data)
        out = self.runs.path.joinpath(*self._name(request.name))
        command = [sys.executable, "-m", "hubscout", "rank", str(path), f"--out={out}"]
        command += [f"--models={model}" for model in self._models(request.models)]
        command.append(f"--metrics={_match(_WORDS, request.metrics, 'Metrics', 'names joined by commas')}")
        if request.limit:
            command.append(f"--limit={_match(_LIMIT, request.limit, 'Samples', 'a number such as 500 or 2k')}")
        for option in ("label", "text", "image"):
            value = getattr(request, option)
            if value:
                command.append(f"--{option}={_match(_COLUMN, value, option.capitalize(), 'the name of a column')}")
        return command

    def _name(self, name: str) -> tuple[str, ...]:
        try:
            parts = split_name(name)
        except NotHereError:
            parts = ()
        if len(parts) != 1 or name != name.strip() or name.startswith("-"):
            raise InputError("Name: give a plain name without slashes that does not begin with a dot.")
        return parts

    def _models(self, models: Sequence[str]) -> list[str]:
        if not models:
            raise InputError("Models: choose at least one, or name one such as timm/resnet50.a1_in1k.")
        if len(models) > MOST_MODELS:
            raise InputError(f"Models: at most {MOST_MODELS} can be ranked at once; {len(models)} came.")
        for model in models:
            if model not in self.offered:
                check_model(model)
        return list(models)


def check_model(model: str) -> None:
    """Refuse a model that is not simply one of a hub.

    >>> check_model("timm/resnet50.a1_in1k?input_size=128")
    >>> check_model("@/etc/passwd")
    Traceback (most recent call last):
    hubscout.errors.InputError: Models: '@/etc/passwd' is not allowed here. ...
    """
    found = _MODEL.fullmatch(model)
    options = (found["options"] or "") if found else ""
    keys = {pair.partition("=")[0] for pair in options.split("&")}
    if found is None or found["hub"] not in HUBS or "trust_remote_code" in keys or Path(found["name"]).exists():
        raise InputError(
            f"Models: {model!r} is not allowed here. Allowed are models of {', '.join(HUBS)}, written hub/NAME; models "
            "that are read from files or bring code must be offered when the server is started (--models)."
        )


def _match(pattern: re.Pattern[str], value: str, field: str, wanted: str) -> str:
    if pattern.fullmatch(value) is None:
        raise InputError(f"{field}: {wanted} was expected, not {value!r}.")
    return value


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
