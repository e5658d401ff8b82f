"""The work of a ranking as jobs of an engine: a task, a model on its rows or a slice of it, and what they need.

They are plain picklable values. A worker that performs them keeps the task open and the last model loaded.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.engines import LocalEngine
from hubscout.engines.engine import running_engine
from hubscout.engines.job import Held, remembered, report
from hubscout.errors import MissingDependencyError, NothingReadableError
from hubscout.features.precision import pick_device, warm_up
from hubscout.hubs.hub_registry import import_library, library_hub
from hubscout.optional import uncollected
from hubscout.ranking.assess import Model, Settings, assess, resources, run_model
from hubscout.ranking.candidates import Candidate, listed_params
from hubscout.runs.events import Advanced, Downloading, Event, Message, Started
from hubscout.runs.profiler import Profile, profiled, step
from hubscout.runs.row import Row

if TYPE_CHECKING:
    from hubscout.engines import Engine, Shared
    from hubscout.hubs import Backbone
    from hubscout.ranking.score_beside import LaterRow, ScoreBeside
    from hubscout.runs.events import Observer
    from hubscout.tasks.task import Task


_TASKS_KEPT = 2


@dataclass(frozen=True)
class TaskReference:
    """Opens the task where it arrives, once in each process.

    A task with a `source` is opened from its files again, which all machines must see; its fingerprint is checked.
    Data in memory is put where the engine shares values, and so are the names of images where all jobs see the files
    for certain: to read thousands of them again for their fingerprint takes each worker longer than a small model. An
    image that changes meanwhile is then not noticed, as in one process.
    """

    fingerprint: str
    source: Mapping[str, Any] | None
    value: Shared[Task] | None

    @classmethod
    def of(cls, task: Task, engine: Engine) -> TaskReference:
        """A reference for the jobs of an engine."""
        if engine.elsewhere and task.source is not None and not (_is_of_names(task.source) and engine.shares_files()):
            return cls(task.fingerprint, task.source, None)
        return cls(task.fingerprint, None, engine.share(task))

    def open(self) -> Task:
        """The task."""
        if isinstance(self.value, Held):  # it is in this process, whose memory ends with the work
            return self.value.value
        return remembered("task", self.fingerprint, self._open, most=_TASKS_KEPT)

    def _open(self) -> Task:
        from hubscout.tasks.task import Task

        if self.value is not None:
            return self.value.get()
        assert self.source is not None
        return Task.reopen(self.source)


def _is_of_names(source: Mapping[str, Any]) -> bool:
    """Whether a task holds the names of files and nothing that was in them."""
    return source.get("constructor") == "from_image_folder"


_IMPORTED = (
    *("hubscout.features.extraction", "hubscout.evidence.left_out", "hubscout.metrics", "hubscout.hubs.local_file"),
    *("torch.utils.flop_counter", "torch.fx.experimental.symbolic_shapes", "sympy", "array_api_compat.torch"),
    *("scipy.linalg", "scipy.sparse", "scipy.special", "PIL.Image"),
)
"""What is imported while the first model is opened, run and scored."""


@dataclass(frozen=True)
class ImportForModels:
    """Imports what every worker that runs models needs, and the libraries behind the models of some hubs."""

    hubs: tuple[str, ...]

    @classmethod
    def begin(cls, engine: Engine, identifiers: Iterable[str] = ()) -> None:
        """Have the workers of this machine, if that is where models run, begin with it."""
        if isinstance(engine, LocalEngine):
            engine.prepare(cls(tuple(sorted({library_hub(name) for name in identifiers}))))

    def __call__(self) -> None:
        from hubscout.light_imports import import_lightly

        import_lightly()
        with uncollected():
            for name in _IMPORTED:
                with suppress(ImportError):  # who needs it says so
                    importlib.import_module(name)
            for hub in self.hubs:
                with suppress(MissingDependencyError):
                    import_library(hub)


@contextmanager
def workers_ahead(
    engine: str | Engine, options: Mapping[str, Any] | None, models: Any
) -> Iterator[tuple[str | Engine, Mapping[str, Any] | None]]:
    """The engine and its options; where it has workers on this machine, running, with their imports begun.

    They are done while the data are opened. That is for `models` that are names: of others it is not known yet which
    libraries they need.
    """
    names = [models] if isinstance(models, str) else models
    named = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if engine != "local" or not (options or {}).get("workers") or not named:
        yield engine, options
        return
    with running_engine(engine, options) as runner:
        ImportForModels.begin(runner, names)
        yield runner, None


@dataclass(frozen=True)
class Begun(Event):
    """A process has begun with a model, or with a slice of it."""


def _start_device(settings: Settings) -> None:
    """Start a worker's GPU while it opens the data and its first model."""
    if settings.in_worker and (device := pick_device(settings.extraction.device)).startswith("cuda"):
        warm_up(device)


@dataclass(frozen=True)
class SentModel:
    """A candidate for workers: by name, or the backbone itself where the engine shares values."""

    identifier: str
    ranking: str
    """Which ranking it is sent for: a process that stays for the next one loads it anew, as it may have changed."""
    backbone: Shared[Backbone] | None = None

    def open(self, observer: Observer | None = None) -> Backbone:
        """The backbone, loaded once in each process; `observer` hears of its download."""

        def load() -> Backbone:
            return Candidate(self.identifier, None if self.backbone is None else self.backbone.get()).open(observer)

        return remembered("model", (self.ranking, self.identifier), load)


@dataclass(frozen=True)
class AssessModel:
    """Runs a model over the train rows of all `increments` (None is all rows) and scores it; `beside` may do so later.

    After slices the features are in the cache, and the progress has been told.
    """

    model: Model
    task: TaskReference
    settings: Settings
    increments: tuple[Shared[np.ndarray] | None, ...]
    after_slices: bool = False
    beside: ScoreBeside | None = None

    def __call__(self) -> Row | LaterRow:
        report(Begun(self.model.identifier))
        _start_device(self.settings)
        settings = replace(self.settings, observer=self._tell)
        increments = [None if rows is None else rows.get() for rows in self.increments]
        if self.beside is None:
            return assess(self.model, self.task.open(), settings, increments)
        ran = run_model(self.model, self.task.open(), settings, increments, quiet=self.beside.wait)
        return self.beside.score(ran)

    def _tell(self, event: Event) -> None:
        if not self.after_slices or isinstance(event, Message | Downloading):
            report(replace(event, model=self.model.identifier))  # the name that the user gave


@dataclass(frozen=True)
class SliceResult:
    """What a slice cost and said; its features are in the cache."""

    seconds: float = 0.0
    from_cache: bool = False
    messages: tuple[str, ...] = ()
    profile: Profile | None = None


@dataclass(frozen=True)
class ExtractSlice:
    """Runs a model over some shards of an increment, into the cache of the settings."""

    model: SentModel
    task: TaskReference
    settings: Settings
    increment: Shared[np.ndarray] | None
    shards: tuple[int, ...]

    def __call__(self) -> SliceResult:
        with profiled(self.settings.profile) as profiler:
            found = self._run()
            return found if profiler is None else replace(found, profile=profiler.profile())

    def _run(self) -> SliceResult:
        from hubscout.features import extract

        report(Begun(self.model.identifier))
        _start_device(self.settings)
        with step("load"):
            backbone = self.model.open(self._tell)
        try:
            found = extract(
                backbone,
                self.task.open(),
                indices=None if self.increment is None else self.increment.get(),
                shards=self.shards,
                cache=self.settings.cache,
                statistics=False,
                keep_features=False,
                observer=self._tell,
                options=self.settings.extraction,
                **resources(self.settings),
            )
        except NothingReadableError:
            return SliceResult()  # another slice may have what can be read
        return SliceResult(found.seconds, found.from_cache, found.messages)

    def _tell(self, event: Event) -> None:
        """To a person a model runs once, however many slices it has."""
        if isinstance(event, Started):
            event = Advanced(event.model, event.rows_done)
        if isinstance(event, Message | Downloading | Advanced):
            report(replace(event, model=self.model.identifier))


_SMALL_PARAMS, _MEDIUM_PARAMS = 30e6, 120e6
_BYTES_A_PARAMETER = 4


@dataclass(frozen=True)
class Needs:
    """CPUs and GPUs of one job, and a guess of its cost, in any unit."""

    cpus: float
    gpus: float
    cost: float


def guess_params(candidate: Candidate) -> int | None:
    """How many parameters a model has, where that is known without loading it."""
    if candidate.backbone is not None:
        return candidate.backbone.card.params
    scheme, _, path = candidate.identifier.partition(":")
    if scheme in ("file", "onnx"):
        try:
            return Path(path.partition("?")[0]).expanduser().stat().st_size // _BYTES_A_PARAMETER
        except OSError:
            return None
    return listed_params(candidate)


def job_needs(params: int | None, rows: int, engine: Engine, device: str) -> Needs:
    """Several small models share a GPU; where there is none, a job has one core.

    The cost grows with the parameters and the rows; a model that is not known counts as large, so as to start early.
    """
    size = float(params) if params else _MEDIUM_PARAMS
    cost = size * rows
    gpus_there = 0.0 if device in ("cpu", "mps") else engine.total("GPU")
    if gpus_there == 0.0 and not device.startswith("cuda"):
        return Needs(1.0, 0.0, cost)
    share = 1.0 if params is None or size > _MEDIUM_PARAMS else (0.25 if size <= _SMALL_PARAMS else 0.5)
    # Its share of the cores decodes for it.
    cores = engine.total("CPU") / gpus_there * share if gpus_there else 1.0
    return Needs(float(max(1, math.floor(cores))), share, cost)
