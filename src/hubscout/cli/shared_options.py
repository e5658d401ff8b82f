"""The options that several commands have, said once: how data is read, which models, where they run.

Beside them what the shell offers for their values, and what they mean together.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


HOW_READ = "How the data is read"
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder of images with a folder per class; a CSV, JSONL or Parquet file, or a folder with one per "
        "split; a CoNLL file; hf:ID. Options of the reader may follow: pets.parquet?label=breed.",
    ),
]
ImageOption = Annotated[str | None, typer.Option(help="Column of images (paths or bytes).", rich_help_panel=HOW_READ)]
ImageRootOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder that paths of images in a table start from; the table's by default.", rich_help_panel=HOW_READ
    ),
]
TextOption = Annotated[
    list[str] | None, typer.Option(help="Column of texts; twice, or A,B, for pairs of texts.", rich_help_panel=HOW_READ)
]
LabelOption = Annotated[
    list[str] | None, typer.Option(help="Column of labels; repeat it, or A,B, for several.", rich_help_panel=HOW_READ)
]
LimitOption = Annotated[
    str | None, typer.Option("--limit", help="Use a stratified subset of this many training samples, such as 2k.")
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume", help="Resume the run in --out, and fail if there is none. Without it the same command resumes too."
    ),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Start over and replace the run in --out.")]
KindOption = Annotated[
    str | None,
    typer.Option(
        help="classification, multilabel, regression or tagging, where it is not clear.", rich_help_panel=HOW_READ
    ),
]
SplitOption = Annotated[
    str | None, typer.Option(help="Column that says train, validation or test.", rich_help_panel=HOW_READ)
]
ModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        "-m",
        help="Models: identifiers or patterns, repeated or joined by commas; @FILE has one per line; small, base or "
        "large is a list of hubscout's own (where none is named: small on a CPU, base on a GPU).",
        show_default=False,
        autocompletion=complete_models,
    ),
]
SkipBadOption = Annotated[bool, typer.Option("--skip-bad", help="Leave out samples that cannot be read.")]
SeedOption = Annotated[
    int, typer.Option("--seed", help="Random seed for splits, subsets, the order of samples and sampling.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")]
TuningDeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
AccelerateOption = Annotated[
    str,
    typer.Option("--accelerate", help="auto, off or onnxruntime: rank with networks in ONNX Runtime, faster on a CPU."),
]
CacheOption = Annotated[
    str | None, typer.Option("--cache", help="Folder or URL of the feature cache; $HUBSCOUT_CACHE or a standard place.")
]
EngineOption = Annotated[
    str, typer.Option("--engine", help="Where the work runs: local, or ray for a cluster of machines.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address", help="With --engine ray: auto (a running cluster), local (a new one for this run) or HOST:PORT."
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Another argument of tuning, as name=value; see `hubscout tune --list-arguments`.",
        callback=check_settings,
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
    """DATA and the options that say how it is read."""

    data: DataArgument
    image: ImageOption = None
    image_root: ImageRootOption = None
    text: TextOption = None
    label: LabelOption = None
    kind: KindOption = None
    split: SplitOption = None

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
            image_root=None if self.image_root is None else str(self.image_root),
        )
        # What notes say of arguments is said of options here.
        say(re.sub(r"\b(kind|label|text|image|split)='([^']*)'", r"--\1 \2", task.describe()), quiet=quiet)
        return task if limit is None else task.subset(parse_limit(limit), seed)


def takes_data(command: Callable[..., None]) -> Callable[..., None]:
    """Spell the fields of `data: Data`, the first parameter, out as arguments of a command: typer knows no groups."""
    group = inspect.signature(Data, eval_str=True).parameters
    _, *rest = inspect.signature(command, eval_str=True).parameters.values()

    @wraps(command)
    def run(**values: Any) -> None:
        command(Data(**{name: values.pop(name) for name in group}), **values)

    spelled = [one.replace(kind=one.KEYWORD_ONLY) for one in (*group.values(), *rest)]
    vars(run)["__signature__"] = inspect.Signature(spelled)
    return run


def engine_options(engine: str, address: str | None, workers: int | None = None) -> dict[str, Any]:
    """What `--address` and `--workers` mean to an engine.

    >>> engine_options("ray", "auto"), engine_options("local", None, 4)
    ({'address': 'auto'}, {'workers': 4})
    """
    options: dict[str, Any] = {}
    for name, value, owner in (("address", address, "ray"), ("workers", workers, "local")):
        if value is not None and engine != owner:
            raise InputError(f"--{name} is for --engine {owner}, not for {engine}.")
        if value is not None:
            options[name] = value
    return options


AllowCodeOption = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help="Let models that a file names (a run, a model folder, @FILE) run code: python: functions and custom code.",
    ),
]
