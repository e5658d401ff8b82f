"""`hubscout rank`: rank models on labelled data."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from shutil import rmtree
from textwrap import indent
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, QuietOption, print_json, print_result, run_folder, say
from hubscout.cli.values import split_list, split_models

app = typer.Typer(add_completion=False)

METRICS = (
    "logme",
    "etran",
    "flops",
    "gbc",
    "h-score",
    "knn",
    "laplace",
    "leep",
    "linear-probe",
    "logme-capacity",
    "n-leep",
    "nce",
    "ncti",
    "pactran",
    "params",
    "parc",
    "popularity",
    "sfda",
    "source-accuracy",
    "transrate",
)
"""Those of `hubscout.metrics.available()`, written down so that the help needs no NumPy."""

EPILOG = """Examples:

hubscout rank flowers/

hubscout rank flowers/ -m 'timm/mobilenetv3*,timm/resnet50.a1_in1k' --out run/

hubscout rank trec/ -m hf/bert-base-uncased -m sentence-transformers/all-MiniLM-L6-v2 --metrics logme,knn

hubscout rank flowers/ -m @models.txt --workers 4 --out run/

hubscout rank /nfs/flowers -m @models.txt --engine ray --address auto --cache /nfs/features --out run/

hubscout rank pets.parquet --label breed -m @models.txt --budget 10min --device cuda --json > pets.json

The same command with other models adds them to the ranking in --out; with other data or options it is refused.

Exit status: 0 all models ranked, 3 some models failed (they are listed with reasons), 1 none could be ranked,
2 bad input, 130 interrupted (what is finished is in --out; run the same command again to resume)."""


@app.command(epilog=EPILOG)
@options.takes_data
def rank(
    data: options.Data,
    models: options.ModelsOption = None,
    metrics: Annotated[
        list[str],
        typer.Option(
            help=f"Of {', '.join(METRICS)}, or of a plug-in; the first one orders the models.",
            autocompletion=options.complete_metrics,
        ),
    ] = ["logme"],  # noqa: B006  typer reads the default, nobody changes it
    limit: options.LimitOption = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time for the whole ranking, such as 10min: growing subsets, hopeless models are dropped on the way."
        ),
    ] = None,
    progressive: Annotated[
        bool,
        typer.Option("--progressive", help="As --budget, without a time limit: growing subsets, dropping on the way."),
    ] = False,
    layers: Annotated[
        list[str] | None,
        typer.Option(help="Score these layers too: 'all', 'mean' (their average), or names joined by commas."),
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="Rank by 'final' features, the 'best' layer (default for texts) or their 'mean'.")
    ] = None,
    center: Annotated[
        bool | None,
        typer.Option("--center/--no-center", help="LogME of centred features and labels; the default for regression."),
    ] = None,
    device: options.DeviceOption = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    accelerate: options.AccelerateOption = "auto",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples per batch; chosen automatically if not given.")
    ] = None,
    cache: options.CacheOption = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Keep sufficient statistics only; nothing is written but --out.")
    ] = False,
    engine: options.EngineOption = "local",
    workers: Annotated[
        int | None, typer.Option(min=0, help="With --engine local: run models in this many processes at the same time.")
    ] = None,
    address: options.AddressOption = None,
    time_limit: Annotated[
        str | None,
        typer.Option(help="With --engine ray or --workers: a model silent for longer, such as 20min, has hung."),
    ] = None,
    skip_bad: options.SkipBadOption = False,
    seed: options.SeedOption = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Run folder: every finished model is saved there at once, beside those there. Without it a new one in "
            "runs/; none with --json, --quiet or --no-cache.",
        ),
    ] = None,
    resume: options.ResumeOption = False,
    overwrite: options.OverwriteOption = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where each second goes: load, decode, forward, score, write.")
    ] = False,
    allow_code: options.AllowCodeOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rank pre-trained models by how well their features explain your labels, without fine-tuning.

    Only the train split is used. One pass of each model over the data; features are cached, so that another metric
    costs almost nothing.
    """
    from hubscout.errors import InputError, RunError
    from hubscout.features import ExtractionOptions
    from hubscout.features.precision import check_device
    from hubscout.ranking import rank as rank_models
    from hubscout.ranking.candidates import find_candidates
    from hubscout.ranking.rank_models import check_choices
    from hubscout.report.answer import next_commands
    from hubscout.runs.display import display
    from hubscout.runs.run_folder import RANKING, check_folder

    if cache is not None and no_cache:
        raise InputError("--cache and --no-cache exclude each other.")
    ExtractionOptions(accelerate=accelerate, precision=precision)
    options.check_amounts(budget=budget, limit=limit, time_limit=time_limit)
    options_of_engine = options.engine_options(engine, address, workers)
    check_choices(split_list(metrics), layer, engine, options_of_engine, time_limit=time_limit)
    check_folder(out, RANKING, resume=resume, overwrite=overwrite)
    if engine == "local" and device != "auto":
        check_device(device)  # one that is not here is one error, not a failure of every model
    named = split_models(models, allow_code=allow_code) if models else None
    task = data.open(quiet=quiet)
    found = find_candidates(named, task.modality, device if engine == "local" else "auto")
    wanted = [candidate.identifier for candidate in found.models]
    for note in found.notes:
        say(note, quiet=quiet)
    layer_names = split_list(layers or [])
    by_script = as_json or quiet or no_cache or resume or overwrite
    with (
        nullcontext(out) if by_script else run_folder(out, task.name, quiet=quiet) as place,
        display(len(wanted), quiet=quiet) as observer,
    ):
        ranking = rank_models(
            task,
            found.models,
            metrics=split_list(metrics),
            layers=layer_names or None,
            layer=layer,  # type: ignore[arg-type]  # it says itself which there are
            center=center,
            device=device,
            precision=precision,
            accelerate=accelerate,
            batch_size=batch_size,
            cache=False if no_cache else (cache if cache is not None else True),
            limit=limit,
            budget=budget,
            progressive=True if progressive else None,
            engine=engine,
            engine_options=options_of_engine,
            time_limit=time_limit,
            skip_bad=skip_bad,
            seed=seed,
            out=place,
            resume=resume,
            overwrite=overwrite,
            observer=observer,
            profile=profile,
        )
    if as_json:
        from hubscout.runs.ranking_storage import to_json

        print_json(to_json(ranking))
    else:
        print_result(ranking)
    if "not_saved" in ranking.environment:
        raise RunError(f"The ranking was {ranking.environment['not_saved']}.")
    if place is not None and out is None and not len(ranking):
        rmtree(place)  # no model could be ranked: there is nothing to come back to
        with suppress(OSError):
            place.parent.rmdir()
    elif place is not None:
        commands = indent("\n".join(next_commands(ranking, place)), "  ") if len(ranking) else ""
        say(f"Saved in {place}." + (f" Next:\n{commands}" if commands else ""), quiet=quiet)
    if ranking.explains_labels is False:
        from hubscout.runs.paired_comparison import NOTHING_EXPLAINED

        say(NOTHING_EXPLAINED, quiet=quiet or not as_json)  # the table has said it
    failed = {failure.identifier for failure in ranking.failures} & set(wanted)
    if failed:
        from hubscout.cli.app import EXIT_ERROR, EXIT_SOME_FAILED

        say(f"{len(failed)} of {len(wanted)} models failed.", quiet=quiet or not as_json)
        raise typer.Exit(EXIT_SOME_FAILED if len(failed) < len(wanted) else EXIT_ERROR)
