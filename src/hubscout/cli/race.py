"""`hubscout race`: which model will be best once tuned, and that model, tuned, within a budget of time."""

from __future__ import annotations

import sys
from textwrap import indent
from typing import Annotated, Any

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.app import EXIT_SOME_FAILED
from hubscout.cli.output import Output, progress, run_folder, say_saved
from hubscout.cli.values import read_settings, split_models
from hubscout.errors import InputError
from hubscout.runs.run_folder import RACE_DEPLOYED, RACE_WINNER, check_folder

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
@options.described
def race(
    *,
    data: options.Data,
    ctx: typer.Context,
    models: options.Models = None,
    out: options.Out = None,
    existing: options.Existing,
    budget: str | None = None,
    limits: options.Limits,
    refit: bool = False,
    deploy: options.Model = None,
    folds: Annotated[int, typer.Option(min=1)] = 1,
    prior: bool = False,
    device: options.TuningDevice = "auto",
    accelerate: options.Accelerate = "auto",
    settings: options.Settings = None,
    where: options.Engine,
    skip_bad: options.SkipBad = False,
    seed: options.Seed = 0,
    allow_code: options.AllowCode = False,
    output: Output,
) -> None:
    """Find the model that will be best once tuned, and tune it, within a budget of time.

    Every model is ranked by its evidence, then tuned a little at several learning rates. Those without a chance
    are dropped, the others continue from where they are, and the winner is tuned to the end. Without --models: the
    list small on a CPU, base on a GPU.

    Args:
        out: Folder of the race, with the winner in OUT/winner; by default a new one in runs/.
        budget: Time for everything, the winner's tuning included, such as 30min.
        refit: Tune the winner again on train and validation together.
        deploy: Then tune this model with the winners as its teachers (B-Tuning; not for tags); it is in OUT/deployed.
        folds: Judge tied finalists on this many folds; for small data.
        prior: Add to the evidence what earlier races of this recipe here have shown.

    """
    from hubscout.racing import race as run
    from hubscout.racing.race_models import TRACES, arguments_of, check_wishes
    from hubscout.ranking.candidates import find_candidates
    from hubscout.report.answer import longer_race
    from hubscout.runs.race_record import more_time_may_tell
    from hubscout.runs.ranking import check_limits

    if out is None and (existing.resume or existing.overwrite):
        raise InputError("--resume and --overwrite need the folder of the race: give --out.")
    options.check_amounts(budget=budget)
    chosen: dict[str, Any] = read_settings(settings or [])
    arguments_of(chosen, device, seed, deploy)
    engine_options = where.options()
    check_wishes(where.engine, engine_options, device=device, accelerate=accelerate, deploy=deploy)
    check_limits(**vars(limits))
    check_folder(out, *TRACES, **vars(existing))
    named = split_models(models, allow_code=allow_code) if models else None
    task = data.open(quiet=output.quiet)
    candidates = find_candidates(named, task.modality, device)
    output.say(*candidates.notes)
    with (
        run_folder(out, f"{task.name}-race", quiet=output.quiet) as place,
        progress(ctx, candidates.identifiers, quiet=output.quiet, title="race") as observer,
    ):
        found = run(
            task,
            candidates.models,
            budget=budget,
            began=options.command_began(ctx),
            out=place,
            refit=refit,
            deploy=deploy,
            folds=folds,
            prior=prior,
            device=device,
            accelerate=accelerate,
            seed=seed,
            skip_bad=skip_bad,
            engine=where.engine,
            engine_options=engine_options,
            observer=observer,
            **vars(existing),
            **vars(limits),
            **chosen,
        )
    output.show(lambda: {**found.record(), "out": place}, found.table(), found.answer)
    if output.as_json:
        return
    output.say(*(f"note: {note}" for note in found.notes if note not in task.notes))  # said when the data were opened
    spent = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in found.seconds.items())
    output.say(f"Spent: {spent}.")
    from hubscout.tuning.tuned_folder import opens_by_code

    tuned, model = found.tuned, place / RACE_WINNER
    if found.deployed is not None:
        tuned, model = found.deployed, place / RACE_DEPLOYED
    say_saved(place, model, by_code=tuned is not None and opens_by_code(tuned, model), quiet=output.quiet)
    if more_time_may_tell(found.order, found.ranking.failures) and (longer := longer_race(sys.argv, place)):
        output.say(f"More time may change the answer; the race goes on from here:\n{indent(longer, '  ')}")
    if deploy is not None and found.deployed is None:
        raise typer.Exit(EXIT_SOME_FAILED)
