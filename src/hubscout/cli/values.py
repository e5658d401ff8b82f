"""What people write on the command line, read: lists of models and metrics, arguments of tuning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

from hubscout.cli.app import options_by_argument
from hubscout.errors import InputError
from hubscout.file_identifiers import IdentifierFromFile


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
    from hubscout.hubs.model_identifier import read_value
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


def check_settings(context: typer.Context, pairs: list[str] | None) -> list[str] | None:
    """Refuse to `--set` what has an option of its own in the command: one of the two would be ignored."""
    options = options_by_argument(context.command.params)
    for pair in pairs or ():
        if option := options.get(pair.partition("=")[0].strip().replace("-", "_")):
            raise InputError(f"{option} is an option of its own: use it instead of --set.")
    return pairs
