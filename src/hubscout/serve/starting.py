"""From what a form says to a `hubscout rank`, `race` or `tune` that is allowed to run.

Whoever may use the page may run these on the data below the data folder with models of hubs. Models that are read from
files or run somebody's code are only taken if the person who started the server offered them, as teachers too.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hubscout.errors import InputError, RunError
from hubscout.runs.ranking_storage import load_ranking
from hubscout.runs.run_folder import RANKING
from hubscout.serve.run_processes import COMMANDS, Started, read_note, start
from hubscout.serve.served_folder import DataFolder, Folder, NotHereError, links_in, split_name

HUBS = ("timm", "torchvision", "hf", "sentence-transformers", "pypi")
METHODS = ("fine-tune", "b-tuning", "kd", "logit-kd", "distill-weighted", "zoo", "all")
"""Of tuning; `all` compares them. All but the first two need teachers."""
MOST_MODELS = 500
MOST_JOBS = 4
MOST_RANKINGS = 300
TEACHERS = 3
"""How many of a ranking's best models teach."""
_NAME = r"[A-Za-z0-9*][\w.*+-]*"
_MODEL = re.compile(rf"(?P<hub>[a-z-]+)/(?P<name>{_NAME}(?:/{_NAME})*)(?:\?(?P<options>[\w.,=&-]*))?", re.ASCII)
_COLUMN = r"[^\x00-\x1f\x7f]{1,200}", "the name of a column"
_RATE = r"(?=[\d.]*[1-9])\d{0,6}\.?\d{1,9}(e-?\d\d?)?", "a number such as 0.001"
_OPTIONS = (
    ("method", "Method", "|".join(METHODS), f"one of {', '.join(METHODS)}", ("tune",)),
    ("learning_rate", "Learning rate", *_RATE, ("tune",)),
    ("epochs", "Epochs", r"[1-9]\d{0,3}", "a whole number such as 10", ("tune",)),
    ("budget", "Budget", r"\d{1,6}(\.\d+)? ?(s|m|min|h)", "a time such as 30min or 2h", COMMANDS),
    ("metrics", "Metrics", r"[a-z0-9-]+(,[a-z0-9-]+)*", "names joined by commas", ("rank",)),
    ("limit", "Samples", r"\d{1,9}(\.\d+)?[kM]?", "a number such as 500 or 2k", ("rank", "tune")),
    ("label", "Label", *_COLUMN, COMMANDS),
    ("text", "Text", *_COLUMN, COMMANDS),
    ("image", "Image", *_COLUMN, COMMANDS),
)
"""Fields that are options of a command: name, what people call it, what it must look like, that in words, where."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A run that is wanted: `command` on the data called `data`, into the run called `name`.

    `deploy` is for `race`: the model that the winners teach. `teachers` (the name of a run with a ranking), `method`,
    `learning_rate` and `epochs`, which are instead of `budget`, are for `tune`.
    """

    name: str
    data: str
    models: tuple[str, ...]
    command: str = "rank"
    deploy: str = ""
    teachers: str = ""
    method: str = ""
    learning_rate: str = ""
    budget: str = ""
    epochs: str = ""
    metrics: str = "logme"
    limit: str = ""
    label: str = ""
    text: str = ""
    image: str = ""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Request:
        """From the fields of a form or of a JSON object; models are a list, or one per line."""
        models = given.get("models")
        lines = [models] if isinstance(models, str) else models if isinstance(models, list | tuple) else []
        words = [word.strip() for line in lines for word in str(line).splitlines()]
        told = {part.name: str(given.get(part.name) or "").strip() for part in fields(cls) if part.name != "models"}
        others = {"name": "", "data": "", **{name: value for name, value in told.items() if value}}
        return cls(models=tuple(dict.fromkeys(word for word in words if word)), **others)


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
        folder = self._folder(request.name)
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
                shutil.rmtree(folder)
            raise

    def command(self, request: Request) -> list[str]:
        """The command line. Values are joined to their options, so that none can be taken for an option."""
        if request.command not in COMMANDS:
            raise InputError(f"Command: {', '.join(COMMANDS)} were expected, not {request.command!r}.")
        path = self.data.find(request.data)
        out = self._folder(request.name)
        command = [sys.executable, "-m", "hubscout", request.command, str(path), f"--out={out}"]
        models = self._models(request.models)
        if request.command == "tune":
            command += [f"--model={self._only(models)}", *self._teachers(request.teachers, models[0])]
            if request.epochs and request.budget:
                raise InputError("Epochs: give epochs or a budget, not both.")
            if request.method in METHODS[2:] and not request.teachers:
                raise InputError(f"Method: {request.method} needs teachers; choose a ranking, or fine-tune.")
        else:
            command += [f"--models={model}" for model in models]
        if request.command == "race" and request.deploy:
            self._check(request.deploy, "Model to deploy")
            if is_pattern(request.deploy):
                raise InputError(f"Model to deploy: give one model, not a pattern: {request.deploy!r}.")
            command.append(f"--deploy={request.deploy}")
        for name, words, pattern, wanted, commands in _OPTIONS:
            value = getattr(request, name)
            if value and request.command in commands:
                if re.fullmatch(pattern, value, re.ASCII) is None:
                    raise InputError(f"{words}: {wanted} was expected, not {value!r}.")
                command.append(f"--{name.replace('_', '-')}={value}")
        return command

    def _folder(self, name: str) -> Path:
        try:
            parts = split_name(name)
        except NotHereError:
            parts = ()
        if len(parts) != 1 or name != name.strip() or name.startswith("-"):
            raise InputError("Name: give a plain name without slashes that does not begin with a dot.")
        return self.runs.path / name

    def rankings(self) -> list[str]:
        """The runs whose best models can teach, and the evidence of races."""
        found = [path.parent for depth in ("*", "*/*") for path in self.runs.path.glob(f"{depth}/{RANKING}")]
        return [self.runs.name_of(path) for path in sorted(found) if self.runs.holds(path)][:MOST_RANKINGS]

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
            self._check(one, "Teachers")
        return [f"--teachers={one}" for one in chosen]

    def _only(self, models: Sequence[str]) -> str:
        if len(models) != 1 or is_pattern(models[0]):
            raise InputError(f"Models: choose exactly one to tune, not {', '.join(models[:5])}.")
        return models[0]

    def _models(self, models: Sequence[str]) -> list[str]:
        if not models:
            raise InputError("Models: choose at least one, or name one such as timm/resnet50.a1_in1k.")
        if len(models) > MOST_MODELS:
            raise InputError(f"Models: at most {MOST_MODELS} can be taken at once; {len(models)} came.")
        for model in models:
            self._check(model, "Models")
        return list(models)

    def _check(self, model: str, field: str) -> None:
        if model not in self.offered:
            check_model(model, field)


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


def is_pattern(model: str) -> bool:
    """Whether an identifier stands for several models.

    >>> is_pattern("timm/mobilenetv3*"), is_pattern("timm/resnet50?pooling=*")
    (True, False)
    """
    return bool(set(model.partition("?")[0]) & set("*["))
