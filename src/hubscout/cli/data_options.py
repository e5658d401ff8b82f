"""The options that say how data is read, the same for every command that takes DATA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubscout.cli.output import say

if TYPE_CHECKING:
    from hubscout.tasks import Task

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


def check_amounts(*, limit: str | None = None, **times: str | None) -> None:
    """Raise for a limit or a time that is none, before the data are read, which can take long."""
    from hubscout.amounts import parse_limit, parse_seconds

    if limit is not None:
        parse_limit(limit)
    for name, value in times.items():
        if value is not None:
            parse_seconds(value, name)


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
    from hubscout.cli.values import split_list
    from hubscout.tasks import open_task

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
