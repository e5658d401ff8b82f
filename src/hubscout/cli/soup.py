"""`hubscout soup`: several tuned runs of one model, averaged into one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hubscout.cli.output import JsonOption, QuietOption, print_json, print_result, run_folder, say, say_saved
from hubscout.cli.shared_options import (
    AllowCodeOption,
    DataArgument,
    ImageOption,
    ImageRootOption,
    KindOption,
    LabelOption,
    LimitOption,
    SeedOption,
    SplitOption,
    TextOption,
    check_amounts,
    open_data,
)

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout soup flowers/ runs/seed-0/ runs/seed-1/ runs/seed-2/ --out my-model/"""


@app.command(epilog=EPILOG)
def soup(
    data: DataArgument,
    models: Annotated[list[Path], typer.Argument(metavar="MODELS", help="Two or more --out folders of tune.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the averaged model; a new one in runs/.")
    ] = None,
    label: LabelOption = None,
    image: ImageOption = None,
    image_root: ImageRootOption = None,
    text: TextOption = None,
    kind: KindOption = None,
    split: SplitOption = None,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    allow_code: AllowCodeOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Average the weights of several tuned runs of one model, as long as validation does not fall.

    One network of the same size and speed. Give the data, --limit and --seed that the runs were tuned with: their
    validation split decides what goes in.
    """
    from hubscout.amounts import parse_limit
    from hubscout.tuning import soup as run
    from hubscout.tuning.model_soup import check_models
    from hubscout.tuning.tuned_folder import opens_by_code

    check_models(models)
    check_amounts(limit=limit)
    task = open_data(
        data, image=image, image_root=image_root, text=text, label=label, kind=kind, split=split, quiet=quiet
    )
    if limit is not None:
        task = task.subset(parse_limit(limit), seed)
    with run_folder(out, f"{task.name}-soup", quiet=quiet) as place:
        made = run(task, models, out=place, allow_code=allow_code)
    for note in made.notes:
        say(note, quiet=quiet)
    if as_json:
        print_json({**made.record(), "out": place})
    else:
        print_result(str(made))
    say_saved(place, place, by_code=opens_by_code(made, place), quiet=quiet)
