"""`hubscout rank`: rank models on labelled data."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from shutil import rmtree
from textwrap import indent
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.app import EXIT_ERROR, EXIT_SOME_FAILED
from hubscout.cli.output import Output, run_folder, say
from hubscout.cli.values import split_list, split_models
from hubscout.errors import RunError
from hubscout.runs.run_folder import RANKING, check_folder

app = typer.Typer(add_completion=False)

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
@options.described
def rank(
    *,
    data: options.Data,
    models: options.Models = None,
    metrics: Annotated[list[str], typer.Option(autocompletion=options.complete_metrics)] = ["logme"],  # noqa: B006
    limit: options.Limit = None,
    budget: str | None = None,
    limits: options.Limits,
    progressive: bool = False,
    layers: list[str] | None = None,
    layer: str | None = None,
    center: Annotated[bool | None, typer.Option("--center/--no-center")] = None,
    device: options.Device = "auto",
    precision: str = "auto",
    accelerate: options.Accelerate = "auto",
    batch_size: options.Count = None,
    keep: options.Cache,
    where: options.Engine,
    workers: Annotated[int | None, typer.Option(min=0)] = None,
    time_limit: str | None = None,
    skip_bad: options.SkipBad = False,
    seed: options.Seed = 0,
    out: options.Out = None,
    existing: options.Existing,
    profile: bool = False,
    allow_code: options.AllowCode = False,
    output: Output,
) -> None:
    """Rank pre-trained models by how well their features explain your labels, without fine-tuning.

    Only the train split is used. One pass of each model over the data; features are cached, so that another metric
    costs almost nothing. Without --models: the list small on a CPU, base on a GPU.

    Args:
        metrics: Of logme, etran, flops, gbc, h-score, knn, laplace, leep, linear-probe, logme-capacity, n-leep, nce,
            ncti, pactran, params, parc, popularity, sfda, source-accuracy, transrate, or of a plug-in; the first one
            orders the models.
        budget: Time for the whole ranking, such as 10min: growing subsets, hopeless models are dropped on the way.
        progressive: As --budget, without a time limit: growing subsets, dropping on the way.
        layers: Score these layers too: 'all', 'mean' (their average), or names joined by commas.
        layer: Rank by 'final' features, the 'best' layer (default for texts) or their 'mean'.
        center: LogME of centred features and labels; the default for regression.
        precision: auto, float32, bfloat16 or float16.
        batch_size: Samples per batch; chosen automatically if not given.
        workers: With --engine local: run models in this many processes at the same time.
        time_limit: With --engine ray or --workers: a model silent for longer, such as 20min, has hung.
        out: Run folder: every finished model is saved there at once, beside those there. Without it a new one in runs/;
            none with --json, --quiet or --no-cache.
        profile: Say where each second goes: load, decode, forward, score, write.

    """
    from hubscout.features import ExtractionOptions
    from hubscout.features.precision import check_device, refuse_device
    from hubscout.ranking import rank as rank_models
    from hubscout.ranking.candidates import find_candidates
    from hubscout.ranking.jobs import workers_ahead
    from hubscout.ranking.rank_models import check_choices, open_ahead
    from hubscout.report.answer import next_commands
    from hubscout.runs.display import display
    from hubscout.runs.paired_comparison import nothing_explained, over_limit
    from hubscout.runs.ranking import check_limits
    from hubscout.runs.ranking_storage import to_json

    ExtractionOptions(accelerate=accelerate, precision=precision)
    options.check_amounts(budget=budget, limit=limit, time_limit=time_limit)
    engine_options = where.options(workers)
    names = split_list(metrics)
    check_choices(names, layer, where.engine, engine_options, time_limit=time_limit)
    check_limits(**vars(limits))
    check_folder(out, RANKING, **vars(existing))
    if where.engine == "local":
        refuse_device(device)
    named = split_models(models, allow_code=allow_code) if models else None
    elsewhere = where.engine != "local" or bool(workers)
    with workers_ahead(where.engine, engine_options, named) as (engine, running_options):
        here = None if elsewhere or limit is not None else device
        task = open_ahead(data.data, lambda: data.open(quiet=output.quiet), here, elsewhere=elsewhere)
        if where.engine == "local":
            check_device(device)  # one that is not here is one error, not a failure of every model
        found = find_candidates(named, task.modality, device if where.engine == "local" else "auto")
        wanted = found.identifiers
        output.say(*found.notes)
        by_script = output.as_json or output.quiet or keep.no_cache or existing.resume or existing.overwrite
        with (
            nullcontext(out) if by_script else run_folder(out, task.name, quiet=output.quiet) as place,
            display(wanted, quiet=output.quiet) as observer,
        ):
            ranking = rank_models(
                task,
                found.models,
                metrics=names,
                layers=split_list(layers or []) or None,
                layer=layer,  # type: ignore[arg-type]  # it says itself which there are
                center=center,
                device=device,
                precision=precision,
                accelerate=accelerate,
                batch_size=batch_size,
                cache=False if keep.no_cache else (keep.cache if keep.cache is not None else True),
                limit=limit,
                budget=budget,
                progressive=True if progressive else None,
                engine=engine,
                engine_options=running_options,
                time_limit=time_limit,
                skip_bad=skip_bad,
                seed=seed,
                out=place,
                observer=observer,
                profile=profile,
                **vars(limits),
                **vars(existing),
            )
    output.show(lambda: to_json(ranking), ranking)
    if "not_saved" in ranking.environment:
        raise RunError(f"The ranking was {ranking.environment['not_saved']}.")
    if place is not None and out is None and not len(ranking):
        rmtree(place)  # no model could be ranked: there is nothing to come back to
        with suppress(OSError):
            place.parent.rmdir()
    elif place is not None:
        commands = indent("\n".join(next_commands(ranking, place)), "  ") if len(ranking) else ""
        output.say(f"Saved in {place}." + (f" Next:\n{commands}" if commands else ""))
    if ranking.explains_labels is False:
        say(nothing_explained(ranking.rows), quiet=output.quiet or not output.as_json)  # the table has said it
    over = {failure.identifier for failure in over_limit(ranking.failures)}
    failed = ({failure.identifier for failure in ranking.failures} - over) & set(wanted)
    if failed or over >= set(wanted):
        if failed:
            say(f"{len(failed)} of {len(wanted)} models failed.", quiet=output.quiet or not output.as_json)
        raise typer.Exit(EXIT_SOME_FAILED if len(ranking) else EXIT_ERROR)
