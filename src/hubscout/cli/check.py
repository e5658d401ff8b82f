"""`hubscout check`: a look at the data, before any model is trusted with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, QuietOption, check_out, print_json, say
from hubscout.cli.values import split_models

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout check flowers/

hubscout check flowers/ -m timm/resnet18.a1_in1k --out check.html      # mislabelled samples too, with thumbnails

hubscout check reviews.csv --label stars --json

Exit status: 0 whatever is found; 2 the data cannot be opened."""


@app.command(epilog=EPILOG)
@options.takes_data
def check(
    data: options.Data,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--models",
            "-m",
            help="Models, as for rank: the best of them says which samples are probably mislabelled.",
            autocompletion=options.complete_models,
        ),
    ] = None,
    limit: options.LimitOption = None,
    device: options.DeviceOption = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a page with thumbnails here, such as check.html.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Look at labelled data and name what is wrong with it.

    Files that cannot be read, exact and near duplicates within and across splits, the same input with different
    labels, classes with few samples, imbalance, odd file endings and, with --models, probably mislabelled samples.
    """
    from hubscout.checking import check as check_data
    from hubscout.features.precision import check_device

    check_out(out, (".html", ".htm"), "a page, such as check.html")
    options.check_amounts(limit=limit)
    if models:
        check_device(device)
    else:
        options.only_for("--models", limit=limit)
    task = data.open(quiet=quiet)
    found = check_data(task, split_models(models) if models else (), limit=limit, device=device)
    if as_json:
        print_json(found.to_json())
    else:
        # What was said when the data was opened is not said again.
        told = str(replace(found, notes=found.notes[len(task.notes) :]))
        print(told.replace("models='small'", "--models small"))
    if out is not None:
        say(f"Page written to {found.report(out)}.", quiet=quiet)
