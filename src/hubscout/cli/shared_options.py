"""The options that several commands have, said once: how data is read, which models, where they run.

Beside them what the shell offers for their values, and what they mean together.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from hubscout.cli.output import say
from hubscout.cli.values import check_settings, split_list
from hubscout.errors import InputError
from hubscout.runs.run_folder import RANKING

if TYPE_CHECKING:
    from hubscout.tasks import Task


def complete_metrics(incomplete: str) -> list[str]:
    """Names of metrics; after a comma the next one."""
    from hubscout.metrics import available

    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{name}" for name in available() if name.startswith(last)]


def complete_models(incomplete: str) -> list[str]:
    """The hubs, each with the sign that follows its name."""
    from hubscout.hubs.hub_registry import HUBS

    done, comma, last = incomplete.rpartition(",")
    starts = [f"{name}:" if name in {"file", "onnx", "python"} else f"{name}/" for name in HUBS]
    return [f"{done}{comma}{start}" for start in starts if start.startswith(last)]


def complete_runs(incomplete: str) -> list[str]:
    """Folders in sight that hold a saved ranking."""
    return sorted(str(path.parent) for path in Path().glob(f"*/{RANKING}") if str(path.parent).startswith(incomplete))


_PANELS = {
    "How models are scored": ("metrics", "layers", "layer", "center"),
    "How it runs": (
        *("device", "precision", "accelerate", "data_in_memory", "cache", "no_cache", "engine", "address", "workers"),
        *("processes", "time_limit", "seed", "profile", "allow_code"),
    ),
}
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}
"""Which part of the help an option stands in, of those that a first run does without."""

HOW_READ = "How the data is read"
Column = Annotated[str | None, typer.Option(rich_help_panel=HOW_READ)]
Columns = Annotated[list[str] | None, typer.Option(rich_help_panel=HOW_READ)]
ImageRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder that paths of images in a table start from; the table's by default.", rich_help_panel=HOW_READ
    ),
]
Count = Annotated[int | None, typer.Option(min=1)]
Model = Annotated[str | None, typer.Option(autocompletion=complete_models)]
Out = Annotated[Path | None, typer.Option("--out", "-o")]
OutFolder = Annotated[Path, typer.Option("--out", "-o")]
SomeModels = Annotated[list[str] | None, typer.Option("--models", "-m", autocompletion=complete_models)]
Run = Annotated[Path, typer.Argument(metavar="RUN", autocompletion=complete_runs)]
"""Their help is in the docstring of the command."""
Limit = Annotated[str | None, typer.Option(help="Use a stratified subset of this many training samples, such as 2k.")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        "-m",
        help="Models: identifiers or patterns, repeated or joined by commas; @FILE has one per line; small, base or "
        "large is a list of hubscout's own.",
        show_default=False,
        autocompletion=complete_models,
    ),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out samples that cannot be read.")]
Seed = Annotated[int, typer.Option(help="Random seed for splits, subsets, the order of samples and sampling.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
InMemory = Annotated[
    bool | None,
    typer.Option(
        "--in-memory/--no-in-memory",
        help="Keep prepared images on the device, and crop them there; --no-in-memory decodes each time.",
    ),
]
TuningDevice = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Accelerate = Annotated[
    str, typer.Option(help="auto, off, onnxruntime or openvino: what runs networks on a CPU in place of torch, faster.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Another argument of tuning, as name=value; see `hubscout tune --list-arguments`.",
        callback=check_settings,
    ),
]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help="Let models that a file names (a run, a model folder, @FILE) run code: python: functions and custom code.",
    ),
]


def check_amounts(*, limit: str | None = None, **times: str | None) -> None:
    """Raise for a limit or a time that is none, before the data are read, which can take long."""
    from hubscout.amounts import parse_limit, parse_seconds

    if limit is not None:
        parse_limit(limit)
    for name, value in times.items():
        if value is not None:
            parse_seconds(value, name)


def command_began(ctx: typer.Context) -> float | None:
    """When the command began, by `time.perf_counter()`, which its `--budget` counts from; None if unknown."""
    return (ctx.obj or {}).get("began")


def in_options(words: str) -> str:
    """What is said of arguments of Python, said of options of the command line.

    >>> in_options("give kind='regression'")
    'give --kind regression'
    """
    return re.sub(r"\b(kind|label|text|image|split|group)='([^']*)'", r"--\1 \2", words)


def only_for(purpose: str, **options: object) -> None:
    """Raise for an option that was given and that only something else would heed.

    >>> only_for("--method all", seeds=None)
    >>> only_for("--method all", seeds=3)
    Traceback (most recent call last):
    hubscout.errors.InputError: --seeds is for --method all.
    """
    for name, value in options.items():
        if value is not None and value is not False:
            raise InputError(f"--{name.replace('_', '-')} is for {purpose}.")


@dataclass(frozen=True)
class Data:
    """DATA and the options that say how it is read.

    Args:
        data: A folder of images or sounds with a folder per class; a CSV, JSONL or Parquet file, or a folder with one
            per split; a CoNLL file; an .npz file; hf:ID. Options of the reader may follow: pets.parquet?label=breed.
        image: Column of images (paths or bytes).
        text: Column of texts; twice, or A,B, for pairs of texts.
        label: Column of labels; repeat it, or A,B, for several.
        kind: classification, multilabel, regression or tagging, where it is not clear.
        split: Column that says train, validation or test.
        group: Column that says which rows come from one source, such as a patient: splits never divide them.

    """

    data: Annotated[str, typer.Argument(metavar="DATA")]
    image: Column = None
    image_root: ImageRoot = None
    text: Columns = None
    label: Columns = None
    kind: Column = None
    split: Column = None
    group: Column = None

    def open(self, *, limit: str | None = None, seed: int = 0, quiet: bool = False) -> Task:
        """Open DATA, say on standard error what it was taken for, and take `limit` samples of its train split."""
        from hubscout.amounts import parse_limit
        from hubscout.tasks import open_task
        from hubscout.tasks.kinds import kind_of

        if self.kind is not None:
            kind_of(self.kind)  # a wrong one is said before anything is read

        def one_or_more(values: list[str] | None) -> str | list[str] | None:
            names = split_list(values or [])
            return None if not names else (names[0] if len(names) == 1 else names)

        task = open_task(
            self.data,
            image=self.image,
            text=one_or_more(self.text),
            label=one_or_more(self.label),
            kind=self.kind,
            split=self.split,
            group=self.group,
            image_root=None if self.image_root is None else str(self.image_root),
        )
        say(in_options(task.describe()), quiet=quiet)
        return task if limit is None else task.subset(parse_limit(limit), seed)


@dataclass(frozen=True)
class Existing:
    """What becomes of a run that is in --out already.

    Args:
        resume: Resume the run in --out, and fail if there is none. Without it the same command resumes too.
        overwrite: Start over and replace the run in --out.

    """

    resume: bool = False
    overwrite: bool = False


@dataclass(frozen=True)
class Cache:
    """Where features are kept.

    Args:
        cache: Folder or URL of the feature cache; $HUBSCOUT_CACHE or a standard place.
        no_cache: Use no cache: compute features anew and keep none of them.

    """

    cache: str | None = None
    no_cache: bool = False

    def __post_init__(self) -> None:
        if self.cache is not None and self.no_cache:
            raise InputError("--cache and --no-cache exclude each other.")


@dataclass(frozen=True)
class Limits:
    """What models may cost.

    Args:
        max_params: Only models with at most this many parameters, such as 10M.
        max_flops: Only models with at most this many operations per sample, such as 2G.
        max_latency: Only models that take at most this time per sample, such as 20ms.

    """

    max_params: str | None = None
    max_flops: str | None = None
    max_latency: str | None = None


@dataclass(frozen=True)
class Engine:
    """Where the work runs.

    Args:
        engine: Where the work runs: local, or ray for a cluster of machines.
        address: With --engine ray: auto (a running cluster), local (a new one for this run) or HOST:PORT.

    """

    engine: str = "local"
    address: str | None = None

    def options(self, workers: int | None = None) -> dict[str, Any]:
        """What `--address` and `--workers` mean to the engine.

        >>> Engine("ray", "auto").options(), Engine().options(4)
        ({'address': 'auto'}, {'workers': 4})
        """
        options: dict[str, Any] = {}
        for name, value, owner in (("address", self.address, "ray"), ("workers", workers, "local")):
            if value is not None and self.engine != owner:
                raise InputError(f"--{name} is for --engine {owner}, not for {self.engine}.")
            if value is not None:
                options[name] = value
        return options


def given(group: Any) -> dict[str, Any]:
    """The options of a group that were given."""
    return {name: value for name, value in vars(group).items() if value is not None}


def described(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer takes it: every option with its help out of the docstring, groups of options spelled out.

    A parameter whose type is a dataclass is a group: its fields become options, and the command gets the dataclass.
    """
    groups: dict[str, Any] = {one.name: one.annotation for one in _parameters(command) if is_dataclass(one.annotation)}

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in _parameters(group)})
        command(**values)

    options = {one.name: one.replace(kind=one.KEYWORD_ONLY) for one in _spelled(command)}
    run.__doc__ = inspect.cleandoc(command.__doc__ or "").partition("\n\nArgs:")[0]
    run.__annotations__ = {name: one.annotation for name, one in options.items()}
    vars(run)["__signature__"] = inspect.Signature(list(options.values()))
    return run


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())


def _spelled(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a command or a group with what typer is to know of each; groups inside are spelled out."""
    told = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:")[2]
    helps = {name: " ".join(text.split()) for name, text in re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", told, re.M)}
    found: list[inspect.Parameter] = []
    for one in _parameters(function):
        kind, *known = get_args(one.annotation) if get_origin(one.annotation) is Annotated else (one.annotation,)
        group = is_dataclass(kind)
        if group:
            found += _spelled(kind)
            continue
        if kind is not typer.Context:
            option = copy(known[0]) if known else typer.Option(f"--{one.name.replace('_', '-')}")
            option.help = helps.get(one.name, option.help)
            option.rich_help_panel = option.rich_help_panel or _PANEL_OF.get(one.name)
            if option.min is not None:
                option.metavar = "N"  # `<int range>` would leave the texts of all options half of the width
            one = one.replace(annotation=Annotated[kind, option])
        found.append(one)
    return found
