"""`hubscout reference`: what fine-tuning each model would really give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, QuietOption, print_json, print_table
from hubscout.cli.values import read_settings, split_list, split_models

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout reference flowers/ -m 'timm/resnet18.a1_in1k,timm/mobilenetv3_small_100.lamb_in1k' --out ref/

hubscout reference flowers/ -m @models.txt --learning-rates 0.1,0.01 --weight-decays 1e-4 --out ref/

hubscout evaluate run/ ref/reference.csv"""


@app.command(epilog=EPILOG)
@options.takes_data
def reference(
    data: options.Data,
    models: options.ModelsOption,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of trials and table; run the same command again to resume.")
    ],
    learning_rates: Annotated[
        str | None, typer.Option(help="Joined by commas; those that suit inputs and optimiser if not given.")
    ] = None,
    weight_decays: Annotated[
        str | None, typer.Option(help="Joined by commas; those that suit the optimiser if not given.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the train split.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1)] = None,
    seed: options.SeedOption = 0,
    limit: options.LimitOption = None,
    resume: options.ResumeOption = False,
    overwrite: options.OverwriteOption = False,
    skip_bad: options.SkipBadOption = False,
    device: options.TuningDeviceOption = "auto",
    in_memory: Annotated[bool, typer.Option("--in-memory", help="Decode the data once and keep it in memory.")] = False,
    engine: options.EngineOption = "local",
    address: options.AddressOption = None,
    settings: options.SettingsOption = None,
    allow_code: options.AllowCodeOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fine-tune every model over a grid and report the test metric where validation is best.

    The brute force that a ranking saves: to validate rankings, and for the last percent.
    """
    from hubscout.ranking.candidates import find_candidates
    from hubscout.runs.display import display
    from hubscout.tuning.reference_search import Grid, check_choices
    from hubscout.tuning.reference_search import reference as run

    options.check_amounts(limit=limit)
    arguments: dict[str, Any] = {"seed": seed, "device": device, "data_in_memory": in_memory}
    arguments |= {name: value for name, value in (("epochs", epochs), ("batch_size", batch_size)) if value is not None}
    arguments |= read_settings(settings or [])
    check_choices(out, arguments, resume=resume, overwrite=overwrite)
    rates = _numbers(learning_rates, "--learning-rates") if learning_rates else None
    decays = _numbers(weight_decays, "--weight-decays") if weight_decays else None
    options_of_engine = options.engine_options(engine, address)
    task = data.open(limit=limit, seed=seed, quiet=quiet)
    grid = Grid.of(task, str(arguments.get("optimizer", "auto")))
    if rates is not None:
        grid = replace(grid, learning_rates=rates, beyond=())
    if decays is not None:
        grid = replace(grid, weight_decays=decays)
    given = find_candidates(split_models(models or [], allow_code=allow_code), task.modality, device)
    wanted = [candidate.identifier for candidate in given.models]
    with display(quiet=quiet, title="reference") as observer:
        found = run(
            task,
            wanted,
            out=out,
            grid=grid,
            resume=resume,
            overwrite=overwrite,
            skip_bad=skip_bad,
            engine=engine,
            engine_options=options_of_engine,
            observer=observer,
            **arguments,
        )
    if as_json:
        best = {model: vars(found.best(model)) for model in found.models}
        print_json({"metric": found.metric, "best": best, "failures": found.failures, "trials": len(found.trials)})
        return
    rows = [
        (one.model, f"{one.test:.4f}", f"{one.validation:.4f}", f"{one.learning_rate:g}", f"{one.weight_decay:g}")
        for one in map(found.best, found.models)
    ]
    rows += [(model, reason, "–", "–", "–") for model, reason in found.failures.items()]
    heads = ("model", "test", "validation", "learning rate", "weight decay")
    print_table(heads, rows, right=heads[1:], title=f"{found.metric} of fine-tuning ({out / 'reference.csv'})")


def _numbers(text: str, argument: str) -> tuple[float, ...]:
    from hubscout.errors import InputError

    try:
        return tuple(float(part) for part in split_list([text]))
    except ValueError as error:
        raise InputError(f"{argument} must be numbers joined by commas, not {text!r}.") from error
