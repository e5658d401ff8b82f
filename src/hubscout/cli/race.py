"""`hubscout race`: which model will be best once tuned, and that model, tuned, within a budget of time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, QuietOption, print_json, print_result, progress, run_folder, say, say_saved
from hubscout.cli.values import read_settings, split_models

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout race flowers/ --budget 30min --out run/

hubscout race flowers/ -m 'timm/mobilenetv3*,timm/resnet50.a1_in1k' --budget 30min --out run/

hubscout race reviews.csv --text review --label stars -m @encoders.txt --budget 2h --max-params 50M --out run/

hubscout race flowers/ -m 'timm/*' --deploy timm/mobilenetv3_small_100.lamb_in1k --budget 2h --out run/

hubscout predict run/winner/ new/*.jpg

hubscout report run/

Run the same command with the same --out again to resume a race that was stopped; the best so far is in OUT/winner.
`hubscout serve` over the folder that OUT lies in shows it live."""


@app.command(epilog=EPILOG)
@options.takes_data
def race(
    data: options.Data,
    ctx: typer.Context,
    models: options.ModelsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of the race, with the winner in OUT/winner; by default a new one in runs/."
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for everything, the winner's tuning included, such as 30min.")
    ] = None,
    max_params: Annotated[
        str | None, typer.Option(help="Race only models with at most this many parameters, such as 10M.")
    ] = None,
    max_flops: Annotated[
        str | None, typer.Option(help="Race only models with at most this many operations per sample.")
    ] = None,
    max_latency: Annotated[
        str | None, typer.Option(help="Race only models that take at most this time per sample, such as 20ms.")
    ] = None,
    refit: Annotated[
        bool, typer.Option("--refit", help="Tune the winner again on train and validation together.")
    ] = False,
    deploy: Annotated[
        str | None,
        typer.Option(
            help="Then tune this model with the winners as its teachers (B-Tuning); it is in OUT/deployed.",
            autocompletion=options.complete_models,
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=1, help="Judge tied finalists on this many folds; for small data.")] = 1,
    prior: Annotated[
        bool, typer.Option("--prior", help="Add to the evidence what earlier races of this recipe here have shown.")
    ] = False,
    device: options.TuningDeviceOption = "auto",
    accelerate: options.AccelerateOption = "auto",
    settings: options.SettingsOption = None,
    engine: options.EngineOption = "local",
    address: options.AddressOption = None,
    skip_bad: options.SkipBadOption = False,
    seed: options.SeedOption = 0,
    resume: options.ResumeOption = False,
    overwrite: options.OverwriteOption = False,
    allow_code: options.AllowCodeOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the model that will be best once tuned, and tune it, within a budget of time.

    Every model is ranked by its evidence, then tuned a little at several learning rates. Those without a chance
    are dropped, the others continue from where they are, and the winner is tuned to the end.
    """
    from hubscout.errors import InputError
    from hubscout.racing import race as run
    from hubscout.racing.race_models import TRACES, arguments_of, check_wishes
    from hubscout.ranking.candidates import find_candidates
    from hubscout.runs.ranking import check_limits
    from hubscout.runs.run_folder import RACE_DEPLOYED, RACE_WINNER, check_folder

    if out is None and (resume or overwrite):
        raise InputError("--resume and --overwrite need the folder of the race: give --out.")
    options.check_amounts(budget=budget)
    chosen: dict[str, Any] = read_settings(settings or [])
    arguments_of(chosen, device, seed)
    options_of_engine = options.engine_options(engine, address)
    check_wishes(engine, options_of_engine, device=device, accelerate=accelerate, deploy=deploy)
    check_limits(max_params=max_params, max_flops=max_flops, max_latency=max_latency)
    check_folder(out, *TRACES, resume=resume, overwrite=overwrite)
    named = split_models(models, allow_code=allow_code) if models else None
    task = data.open(quiet=quiet)
    candidates = find_candidates(named, task.modality, device)
    for note in candidates.notes:
        say(note, quiet=quiet)
    with (
        run_folder(out, f"{task.name}-race", quiet=quiet) as place,
        progress(ctx, len(candidates.models), quiet=quiet, title="race") as observer,
    ):
        found = run(
            task,
            candidates.models,
            budget=budget,
            began=options.command_began(ctx),
            out=place,
            resume=resume,
            overwrite=overwrite,
            max_params=max_params,
            max_flops=max_flops,
            max_latency=max_latency,
            refit=refit,
            deploy=deploy,
            folds=folds,
            prior=prior,
            device=device,
            accelerate=accelerate,
            seed=seed,
            skip_bad=skip_bad,
            engine=engine,
            engine_options=options_of_engine,
            observer=observer,
            **chosen,
        )
    if as_json:
        print_json({**found.record(), "out": place})
        return
    print_result(found.table())
    print_result(found.answer)
    for note in found.notes:
        if note not in task.notes:  # those were said when the data were opened
            say(f"note: {note}", quiet=quiet)
    spent = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in found.seconds.items())
    say(f"Spent: {spent}.", quiet=quiet)
    from hubscout.tuning.tuned_folder import opens_by_code

    tuned, model = found.tuned, place / RACE_WINNER
    if found.deployed is not None:
        tuned, model = found.deployed, place / RACE_DEPLOYED
    say_saved(place, model, by_code=tuned is not None and opens_by_code(tuned, model), quiet=quiet)
    if deploy is not None and found.deployed is None:
        from hubscout.cli.app import EXIT_SOME_FAILED

        raise typer.Exit(EXIT_SOME_FAILED)
