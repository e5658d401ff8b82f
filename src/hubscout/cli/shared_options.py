"""The options that several commands have, said once: how data is read, which models, where they run.

Beside them what the shell offers for their values, and what they mean together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from hubscout.cli.output import say
from hubscout.errors import InputError
from hubscout.file_identifiers import IdentifierFromFile
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


def check_settings(context: typer.Context, pairs: list[str] | None) -> list[str] | None:
    """Refuse to `--set` what has an option of its own in the command: one of the two would be ignored."""
    from hubscout.cli.app import options_by_argument
    from hubscout.errors import InputError

    options = options_by_argument(context.command.params)
    for pair in pairs or ():
        if option := options.get(pair.partition("=")[0].strip().replace("-", "_")):
            raise InputError(f"{option} is an option of its own: use it instead of --set.")
    return pairs


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder of images with a folder per class; a CSV, JSONL or Parquet file, or a folder with one per "
        "split; a CoNLL file; hf:ID. Options of the reader may follow: pets.parquet?label=breed.",
    ),
]
ImageOption = Annotated[str | None, typer.Option("--image", help="Column of images (paths or bytes).")]
ImageRootOption = Annotated[
    Path | None,
    typer.Option("--image-root", help="Folder that paths of images in a table start from; the table's by default."),
]
TextOption = Annotated[
    list[str] | None, typer.Option("--text", help="Column of texts; twice, or A,B, for pairs of texts.")
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", help="Column of labels; repeat it, or A,B, for several.")
]
LimitOption = Annotated[
    str | None, typer.Option("--limit", help="Use a stratified subset of so many train samples, such as 2k.")
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume", help="Resume the run in --out, and fail if there is none. Without it the same command resumes too."
    ),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Start anew and replace the run that is in --out.")]
KindOption = Annotated[
    str | None, typer.Option("--kind", help="classification, multilabel, regression or tagging, where it is not clear.")
]
SplitOption = Annotated[str | None, typer.Option("--split", help="Column that says train, validation or test.")]
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
    typer.Option("--address", help="With --engine ray: auto (the cluster here), local (one for this) or HOST:PORT."),
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


def only_for(purpose: str, **options: object) -> None:
    """Raise for an option that was given and that only something else would heed.

    >>> only_for("--method all", seeds=None)
    >>> only_for("--method all", seeds=3)
    Traceback (most recent call last):
    hubscout.errors.InputError: --seeds is for --method all.
    """
    from hubscout.errors import InputError

    for name, value in options.items():
        if value is not None and value is not False:
            raise InputError(f"--{name.replace('_', '-')} is for {purpose}.")


def open_data(
    data: str,
    *,
    image: str | None = None,
    text: list[str] | None = None,
    label: list[str] | None = None,
    kind: str | None = None,
    split: str | None = None,
    image_root: Path | None = None,
    quiet: bool = False,
) -> Task:
    """Open DATA, and say on standard error what it was taken for."""
    from hubscout.tasks import open_task
    from hubscout.tasks.kinds import kind_of

    if kind is not None:
        kind_of(kind)  # a wrong one is said before anything is read

    def one_or_more(values: list[str] | None) -> str | list[str] | None:
        names = split_list(values or [])
        return None if not names else (names[0] if len(names) == 1 else names)

    task = open_task(
        data,
        image=image,
        text=one_or_more(text),
        label=one_or_more(label),
        kind=kind,
        split=split,
        image_root=None if image_root is None else str(image_root),
    )
    say(task.describe(), quiet=quiet)
    return task


def engine_options(engine: str, address: str | None, workers: int | None = None) -> dict[str, Any]:
    """What `--address` and `--workers` mean to an engine.

    >>> engine_options("ray", "auto"), engine_options("local", None, 4)
    ({'address': 'auto'}, {'workers': 4})
    """
    from hubscout.errors import InputError

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


def split_list(values: Sequence[str]) -> list[str]:
    """Values that were repeated, joined by commas, or both, each once and in order.

    >>> split_list(["logme,knn", "leep", "knn"])
    ['logme', 'knn', 'leep']
    """
    parts = [part.strip() for value in values for part in value.split(",")]
    return list(dict.fromkeys(part for part in parts if part))


def split_models(values: Sequence[str], *, allow_code: bool = False) -> list[str]:
    """Models and patterns: repeated, joined by commas, or `@FILE` with one per line and `#` before comments.

    The models of a file open no code unless `allow_code` says so; those on the command line are the user's own words.

    A comma inside the options of an identifier (`?mean=0.5,0.5`) does not separate: after a question mark only a
    part that starts a new identifier (`hub/` or `kind:`) does.

    >>> split_models(["timm/a,timm/b", "file:w.pth?arch=timm/a&mean=0.5,0.5,hf/c"])
    ['timm/a', 'timm/b', 'file:w.pth?arch=timm/a&mean=0.5,0.5', 'hf/c']
    """
    found: list[str] = []
    for value in values:
        if value.startswith("@"):
            listed = _models_of_file(Path(value[1:]))
            found += listed if allow_code else [IdentifierFromFile(model, value[1:]) for model in listed]
            continue
        parts: list[str] = []
        for part in value.split(","):
            if parts and "?" in parts[-1] and not re.match(r"\s*[\w-]+[/:]", part):
                parts[-1] += "," + part
            else:
                parts.append(part)
        found += [part.strip() for part in parts if part.strip()]
    return list(dict.fromkeys(found))


def _models_of_file(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--models @{path}: cannot read the list of models: {error}.") from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def read_settings(pairs: list[str]) -> dict[str, Any]:
    """`name=value` pairs; numbers, true, false and none are read as such, lists by commas for `trackers`.

    >>> read_settings(["warmup=0.1", "freeze=all", "patience=none", "trackers=tensorboard,wandb"])
    {'warmup': 0.1, 'freeze': 'all', 'patience': None, 'trackers': ('tensorboard', 'wandb')}
    >>> read_settings(["augment=none"])  # a word that this argument knows
    {'augment': 'none'}
    """
    from hubscout.hubs.hub_registry import read_value
    from hubscout.tuning.arguments import TuningArguments

    words = get_type_hints(TuningArguments)
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}: write name=value.")
        name = name.strip().replace("-", "_")
        value = value.strip()
        if name == "trackers":
            found[name] = tuple(split_list([value]))
        else:
            found[name] = value if value in get_args(words.get(name)) else read_value(value)
    return found


def list_arguments(wanted: bool) -> None:
    """Print what `--set` takes, with defaults and meanings, and end."""
    if not wanted:
        return
    import ast
    import dataclasses
    import inspect

    from hubscout.tuning import TuningArguments

    tree = ast.parse(inspect.getsource(TuningArguments)).body[0]
    assert isinstance(tree, ast.ClassDef)
    told = {}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            told[ast.unparse(before.target)] = " ".join(str(after.value.value).split())
    for field in dataclasses.fields(TuningArguments):
        print(f"{field.name}={field.default}: {told.get(field.name, '')}")
    raise typer.Exit
