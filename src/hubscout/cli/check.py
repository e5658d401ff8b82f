"""`hubscout check`: a look at the data, before any model is trusted with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import Output, check_out, print_json
from hubscout.cli.values import split_models

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout check flowers/

hubscout check flowers/ -m timm/resnet18.a1_in1k --out check.html      # mislabelled samples too, with thumbnails

hubscout check reviews.csv --label stars --json

Exit status: 0 whatever is found; 2 the data cannot be opened."""


@app.command(epilog=EPILOG)
@options.described
def check(
    *,
    data: options.Data,
    models: Annotated[list[str] | None, typer.Option("--models", "-m", autocompletion=options.complete_models)] = None,
    limit: options.Limit = None,
    device: options.Device = "auto",
    out: options.Out = None,
    output: Output,
) -> None:
    """Look at labelled data and name what is wrong with it.

    Files that cannot be read, exact and near duplicates within and across splits, the same input with different
    labels, classes with few samples, imbalance, odd file endings and, with --models, probably mislabelled samples.

    Args:
        models: Models, as for rank: the best of them says which samples are probably mislabelled.
        out: Write a page with thumbnails here, such as check.html.

    """
    from hubscout.checking import check as check_data
    from hubscout.features.precision import check_device

    check_out(out, (".html", ".htm"), "a page, such as check.html")
    options.check_amounts(limit=limit)
    if models:
        check_device(device)
    else:
        options.only_for("--models", limit=limit)
    task = data.open(quiet=output.quiet)
    found = check_data(task, split_models(models) if models else (), limit=limit, device=device)
    if output.as_json:
        print_json(found.to_json())
    else:
        # What was said when the data was opened is not said again.
        told = str(replace(found, notes=found.notes[len(task.notes) :]))
        print(told.replace("models='small'", "--models small"))
    if out is not None:
        output.say(f"Page written to {found.report(out)}.")
