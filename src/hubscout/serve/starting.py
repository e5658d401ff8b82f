"""From what a form says to a `hubscout rank`, `race` or `tune` that is allowed to run.

Whoever may use the page may run these on the data below the data folder with models of hubs. Models that are read from
files or run somebody's code are only taken if the person who started the server offered them, as teachers too.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hubscout.errors import InputError, RunError
from hubscout.runs.ranking_storage import load_ranking
from hubscout.runs.run_folder import RANKING
from hubscout.serve.data_sets import DataFolder
from hubscout.serve.run_processes import COMMANDS, Started, read_note, start
from hubscout.serve.served_folder import Folder, NotHereError, links_in, split_name

HUBS = ("timm", "torchvision", "hf", "sentence-transformers", "pypi")
_NAME = r"[A-Za-z0-9*][\w.*+-]*"
_MODEL = re.compile(rf"(?P<hub>[a-z-]+)/(?P<name>{_NAME}(?:/{_NAME})*)(?:\?(?P<options>[\w.,=&-]*))?", re.ASCII)
_COLUMN = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_WORDS = re.compile(r"[a-z0-9-]+(,[a-z0-9-]+)*")
_LIMIT = re.compile(r"[0-9]{1,9}(\.[0-9]+)?[kM]?")
_TIME = re.compile(r"[0-9]{1,6}(\.[0-9]+)? ?(s|m|min|h)")
_EPOCHS = re.compile(r"[1-9][0-9]{0,3}")
MOST_MODELS = 500
MOST_JOBS = 4
MOST_RANKINGS = 300
TEACHERS = 3
"""How many of a ranking's best models teach."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A run that is wanted: `command` on the data called `data`, into the run called `name`.

    `teachers` is the name of a run with a ranking, and `epochs` are instead of `budget`; both are for `tune`.
    """

    name: str
    data: str
    models: tuple[str, ...]
    command: str = "rank"
    teachers: str = ""
    budget: str = ""
    epochs: str = ""
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
        others["command"] = others["command"] or "rank"
        return cls(models=tuple(dict.fromkeys(word for word in words if word)), **others)


_FIELDS = ("name", "data", "command", "teachers", "budget", "epochs", "metrics", "limit", "label", "text", "image")


@dataclass(frozen=True)
class Starter:
    """Starts runs: of which data, with which models beyond those of hubs, into which folder, how many at a time."""

    runs: Folder
    data: DataFolder
    offered: tuple[str, ...] = ()
    jobs: int = MOST_JOBS
    _starting: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    def running(self) -> list[str]:
        """The runs that a server started here and that are still running, also those of an earlier server."""
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
                f"{len(running)} runs are running already ({', '.join(running[:5])}), and this server starts at "
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
        if request.command not in COMMANDS:
            raise InputError(f"Command: {', '.join(COMMANDS)} were expected, not {request.command!r}.")
        path = self.data.find(request.data)
        out = self.runs.path.joinpath(*self._name(request.name))
        command = [sys.executable, "-m", "hubscout", request.command, str(path), f"--out={out}"]
        models = self._models(request.models)
        if request.command == "tune":
            command += [f"--model={self._only(models)}", *self._teachers(request.teachers, models[0])]
            if request.epochs and request.budget:
                raise InputError("Epochs: give epochs or a budget, not both.")
            if request.epochs:
                command.append(f"--epochs={_match(_EPOCHS, request.epochs, 'Epochs', 'a whole number such as 10')}")
        else:
            command += [f"--models={model}" for model in models]
        if request.budget:
            command.append(f"--budget={_match(_TIME, request.budget, 'Budget', 'a time such as 30min or 2h')}")
        if request.command == "rank":
            command.append(f"--metrics={_match(_WORDS, request.metrics, 'Metrics', 'names joined by commas')}")
        if request.limit and request.command != "race":
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

    def rankings(self) -> list[str]:
        """The runs whose best models can teach, and the evidence of races."""
        found = [path.parent for depth in ("*", "*/*") for path in self.runs.path.glob(f"{depth}/{RANKING}")]
        names = [path.relative_to(self.runs.path).as_posix() for path in sorted(found)]
        return [name for name in names if self._is_here(name)][:MOST_RANKINGS]

    def _is_here(self, name: str) -> bool:
        try:
            self.runs.find(name)
        except NotHereError:
            return False
        return True

    def _teachers(self, name: str, model: str) -> list[str]:
        """Options for the best models of a ranking. They come out of a file: what is not allowed here is refused."""
        if not name:
            return []
        try:
            folder = self.runs.find(name)
        except NotHereError:
            raise InputError(f"Teachers: there is no run called {name!r}.") from None
        if not (folder / RANKING).is_file() or links_in(folder):
            raise InputError(f"Teachers: the run {name} has no ranking that can be read here.")
        try:
            best = load_ranking(folder).top(TEACHERS + 1)
        except RunError as error:
            raise InputError(f"Teachers: {error}") from None
        chosen = [str(one) for one in best if str(one) != model][:TEACHERS]
        if not chosen:
            raise InputError(f"Teachers: the ranking {name} has no other model than the one to tune.")
        for one in chosen:
            if one not in self.offered:
                check_model(one, "Teachers")
        return [f"--teachers={one}" for one in chosen]

    def _only(self, models: Sequence[str]) -> str:
        if len(models) != 1 or set(models[0].partition("?")[0]) & set("*["):
            raise InputError(f"Models: choose exactly one to tune, not {', '.join(models[:5])}.")
        return models[0]

    def _models(self, models: Sequence[str]) -> list[str]:
        if not models:
            raise InputError("Models: choose at least one, or name one such as timm/resnet50.a1_in1k.")
        if len(models) > MOST_MODELS:
            raise InputError(f"Models: at most {MOST_MODELS} can be taken at once; {len(models)} came.")
        for model in models:
            if model not in self.offered:
                check_model(model)
        return list(models)


def check_model(model: str, field: str = "Models") -> None:
    """Refuse a model that is not simply one of a hub; `field` of the form is named.

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
            f"{field}: {model!r} is not allowed here. Allowed are models of {', '.join(HUBS)}, written hub/NAME; "
            "models that are read from files or bring code must be offered when the server is started (--models)."
        )


def _match(pattern: re.Pattern[str], value: str, field: str, wanted: str) -> str:
    if pattern.fullmatch(value) is None:
        raise InputError(f"{field}: {wanted} was expected, not {value!r}.")
    return value


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
