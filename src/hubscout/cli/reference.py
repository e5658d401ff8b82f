"""`hubscout reference`: what fine-tuning each model would really give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import Output, print_json, print_table
from hubscout.cli.values import read_settings, split_list, split_models

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout reference flowers/ -m 'timm/resnet18.a1_in1k,timm/mobilenetv3_small_100.lamb_in1k' --out ref/

hubscout reference flowers/ -m @models.txt --learning-rates 0.1,0.01 --weight-decays 1e-4 --out ref/

hubscout evaluate run/ ref/reference.csv"""


@app.command(epilog=EPILOG)
@options.described
def reference(
    *,
    data: options.Data,
    models: options.Models,
    out: Annotated[Path, typer.Option("--out", "-o")],
    existing: options.Existing,
    learning_rates: str | None = None,
    weight_decays: str | None = None,
    epochs: options.Count = None,
    batch_size: options.Count = None,
    seed: options.Seed = 0,
    limit: options.Limit = None,
    skip_bad: options.SkipBad = False,
    device: options.TuningDevice = "auto",
    data_in_memory: Annotated[bool, typer.Option("--in-memory")] = False,
    where: options.Engine,
    settings: options.Settings = None,
    allow_code: options.AllowCode = False,
    output: Output,
) -> None:
    """Fine-tune every model over a grid and report the test metric where validation is best.

    The brute force that a ranking saves: to validate rankings, and for the last percent.

    Args:
        out: Folder of trials and table; run the same command again to resume.
        learning_rates: Joined by commas; those that suit inputs and optimiser if not given.
        weight_decays: Joined by commas; those that suit the optimiser if not given.
        epochs: Passes over the train split.
        batch_size: Samples per optimiser step.
        data_in_memory: Decode the data once and keep it in memory.

    """
    from hubscout.ranking.candidates import find_candidates
    from hubscout.runs.display import display
    from hubscout.tuning.reference_search import Grid, check_choices
    from hubscout.tuning.reference_search import reference as run

    options.check_amounts(limit=limit)
    arguments: dict[str, Any] = {"seed": seed, "device": device, "data_in_memory": data_in_memory}
    arguments |= {name: value for name, value in (("epochs", epochs), ("batch_size", batch_size)) if value is not None}
    arguments |= read_settings(settings or [])
    check_choices(out, arguments, **vars(existing))
    rates = _numbers(learning_rates, "--learning-rates") if learning_rates else None
    decays = _numbers(weight_decays, "--weight-decays") if weight_decays else None
    engine_options = where.options()
    task = data.open(limit=limit, seed=seed, quiet=output.quiet)
    grid = Grid.of(task, str(arguments.get("optimizer", "auto")))
    if rates is not None:
        grid = replace(grid, learning_rates=rates, beyond=())
    if decays is not None:
        grid = replace(grid, weight_decays=decays)
    given = find_candidates(split_models(models or [], allow_code=allow_code), task.modality, device)
    wanted = [candidate.identifier for candidate in given.models]
    with display(quiet=output.quiet, title="reference") as observer:
        found = run(
            task,
            wanted,
            out=out,
            grid=grid,
            skip_bad=skip_bad,
            engine=where.engine,
            engine_options=engine_options,
            observer=observer,
            **vars(existing),
            **arguments,
        )
    if output.as_json:
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
