"""`hubscout tune`: tune a model on labelled data, with the best-ranked models as its teachers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import (
    JsonOption,
    QuietOption,
    print_json,
    print_result,
    progress,
    run_folder,
    say,
    say_saved,
    warn_and_exit,
)
from hubscout.cli.values import list_arguments, read_settings, split_models

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout tune flowers/ --model timm/mobilenetv3_small_100.lamb_in1k --teachers run/ --top 3 --out my-model/

hubscout tune flowers/ --model timm/resnet18.a1_in1k --method fine-tune --epochs 5 --set freeze=all --out probe/

hubscout tune pets.parquet --label breed --model pypi/efficientnet-lite0 --teachers run/ --method all --seeds 3

torchrun --nproc-per-node 2 -m hubscout tune flowers/ --model ... --processes 2 --out my-model/

All other arguments: hubscout tune --list-arguments"""


@app.command(epilog=EPILOG)
@options.takes_data
def tune(
    data: options.Data,
    ctx: typer.Context,
    model: Annotated[
        str, typer.Option("--model", "-m", help="The model to tune.", autocompletion=options.complete_models)
    ],
    teachers: Annotated[
        list[str] | None, typer.Option(help="The --out folder of a rank, or models, repeated or joined by commas.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="How many of a ranking's best models teach; 3 if not given.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="fine-tune, kd, logit-kd, distill-weighted, zoo, b-tuning, or all: compare them over seeds. Without "
            "it: b-tuning where there are teachers, fine-tune where there are none."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the tuned model, its checkpoints and its card; by default a new one in runs/.",
        ),
    ] = None,
    resume: options.ResumeOption = False,
    overwrite: options.OverwriteOption = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the train split.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimiser steps, instead of --epochs.")] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for the run, such as 20min, instead of --epochs or --steps.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many validations without a new best.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples per optimiser step, over all processes.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Learning rate of the backbone; chosen by hubscout if not given.")
    ] = None,
    lora: Annotated[
        int | None,
        typer.Option(min=1, help="Train low-rank adapters of this rank, merged into the weights at the end."),
    ] = None,
    trade_off: Annotated[
        float | None, typer.Option(help="λ, the weight of the teachers' term; the method's own if not given.")
    ] = None,
    teacher_targets: Annotated[
        str | None,
        typer.Option(
            help="When teachers answer: cached (once, first), left-out, live (each step), or views (of a few crops)."
        ),
    ] = None,
    seed: options.SeedOption = 0,
    seeds: Annotated[int | None, typer.Option(min=1, help="With --method all: how many seeds; 3 if not given.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="With --method all: where the runs go, local (the default) or ray.")
    ] = None,
    device: options.TuningDeviceOption = "auto",
    in_memory: Annotated[
        bool, typer.Option("--in-memory", help="Decode the data once and keep it in memory, images on the device.")
    ] = False,
    address: options.AddressOption = None,
    cache: options.CacheOption = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Do not use cached features: compute them again.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="How many processes torchrun starts; the run warns if there are more or fewer."),
    ] = None,
    limit: options.LimitOption = None,
    skip_bad: options.SkipBadOption = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also export OUT/model.onnx, checked against torch.")] = False,
    settings: options.SettingsOption = None,
    listing: Annotated[
        bool,
        typer.Option(
            "--list-arguments",
            callback=list_arguments,
            is_eager=True,
            help="Print everything that --set takes, with defaults, and exit.",
        ),
    ] = False,
    allow_code: options.AllowCodeOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Tune a model on your labelled data; better-ranked models of any architecture teach it.

    Trains on the train split, keeps the weights that are best on validation, reports test with intervals. Run the
    same command again to resume a run that was stopped, to the same result. A run that diverges restarts at a lower
    learning rate; a model that is worse than guessing is saved, marked, and the exit status is 4.
    """
    from hubscout.errors import InputError
    from hubscout.features import FeatureCache
    from hubscout.optional import require_onnx
    from hubscout.runs.texts import short_names
    from hubscout.tuning.arguments import TuningArguments
    from hubscout.tuning.choices import check_choices

    if cache is not None and no_cache:
        raise InputError("--cache and --no-cache exclude each other.")
    chosen: dict[str, Any] = {
        "epochs": epochs,
        "steps": steps,
        "budget": budget,
        "patience": patience,
        "lora_rank": lora,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "trade_off": trade_off,
        "teacher_targets": teacher_targets,
        "processes": processes,
    }
    chosen = {name: value for name, value in chosen.items() if value is not None}
    chosen |= {"device": device, "data_in_memory": in_memory, **read_settings(settings or [])}
    arguments = TuningArguments.of(**chosen)
    method = method or ("b-tuning" if teachers else "fine-tune")
    if method == "all":
        options.only_for("a single method", onnx=onnx, seed=seed or None)
    else:
        options.only_for("--method all", seeds=seeds, engine=engine, address=address)
    if not teachers:
        options.only_for("--teachers", top=top, trade_off=trade_off, teacher_targets=teacher_targets)
    checked = "b-tuning" if method == "all" else method
    check_choices(model, teachers, checked, arguments, out, resume=resume, overwrite=overwrite)
    options_of_engine = options.engine_options(engine or "local", address)
    chosen["cache"] = None if no_cache else FeatureCache(cache)
    quiet = quiet or not _is_main()
    options.check_amounts(limit=limit, budget=budget)
    if onnx:
        require_onnx()  # said now, not after the training
    taught_by = open_teachers(teachers or [], top or 3, allow_code=allow_code)
    task = data.open(limit=limit, seed=seed, quiet=quiet)
    if out is None and (resume or overwrite or int(os.environ.get("WORLD_SIZE", "1")) > 1):
        raise InputError("--resume, --overwrite and runs of several processes need the folder of the run: give --out.")
    chosen |= {"resume": resume, "overwrite": overwrite, "skip_bad": skip_bad}
    with run_folder(out, f"{task.name}-{short_names([model])[0]}", quiet=quiet) as place:
        if method == "all":
            warnings = _compare(
                ctx,
                task,
                model,
                taught_by,
                seeds or 3,
                place,
                (engine or "local", options_of_engine),
                chosen,
                as_json=as_json,
                quiet=quiet,
            )
        else:
            chosen = {"seed": seed, "linear_probe": True, "began": options.command_began(ctx), **chosen}
            warnings = _tune(
                ctx, task, model, taught_by, method, place, chosen, onnx=onnx, as_json=as_json, quiet=quiet
            )
    warn_and_exit(ctx, warnings)


def _tune(
    ctx: typer.Context,
    task: Any,
    model: str,
    teachers: list[str],
    method: str,
    out: Path,
    chosen: dict[str, Any],
    *,
    onnx: bool,
    as_json: bool,
    quiet: bool,
) -> list[str]:
    """Tune and tell; gives the warnings."""
    from hubscout.errors import TuningError
    from hubscout.runs.evaluation_record import conclusion
    from hubscout.tuning import tune as run
    from hubscout.tuning.tuned_folder import opens_by_code

    with progress(ctx, quiet=quiet, title=method) as observer:
        tuned = run(task, model, teachers, method, out=out, observer=observer, **chosen)
    if not _is_main():
        return []
    if as_json:
        print_json({**tuned.record(), "out": out})
    else:
        print_result(str(replace(tuned, warning="")))  # it is the last word of the command
        print_result(conclusion(tuned.tuning_run()))
    say_saved(out, out, by_code=opens_by_code(tuned, out), quiet=quiet)
    if onnx:
        try:
            difference = tuned.export_onnx(out / "model.onnx")
            say(f"{out / 'model.onnx'}: outputs agree with torch to {difference:.1e}", quiet=quiet)
        except TuningError as error:
            if not tuned.warning:
                raise
            say(f"Error: {error}")  # the warning is the graver news: the last word and the status are its
    return [tuned.warning]


def _compare(
    ctx: typer.Context,
    task: Any,
    model: str,
    teachers: list[str],
    seeds: int,
    out: Path,
    engine: tuple[str, dict[str, Any]],
    chosen: dict[str, Any],
    *,
    as_json: bool,
    quiet: bool,
) -> list[str]:
    """Compare and tell; gives the warnings."""
    from hubscout.tuning.method_comparison import compare

    with progress(ctx, quiet=quiet, title="compare") as observer:
        found = compare(
            task,
            model,
            teachers,
            seeds=range(seeds),
            out=out,
            engine=engine[0],
            engine_options=engine[1],
            observer=observer,
            **chosen,
        )
    if as_json:
        print_json({**found.record(), "out": out})
    else:
        print_result(found.table())
    say(f"The models are in {out}, by method and seed, such as {out / found.trials[0].folder}", quiet=quiet)
    return [f"{trial.folder}: {trial.warning}" for trial in found.trials if trial.warning]


def open_teachers(values: list[str], top: int, *, allow_code: bool = False) -> list[str]:
    """Identifiers: those named, the best of a ranking where its folder is given, a tuned model where that one's is."""
    from hubscout.errors import InputError
    from hubscout.file_identifiers import IdentifierFromFile
    from hubscout.hubs.hub_registry import check_identifier
    from hubscout.ranking import Ranking
    from hubscout.runs.run_folder import RANKING, TUNING

    found: list[str] = []
    for value in split_models(values, allow_code=allow_code):
        if (Path(value) / RANKING).is_file() or value.endswith(RANKING):
            found += Ranking.load(value, allow_code=allow_code).top(top)
        elif (Path(value) / TUNING).is_file():
            folder = f"file:{value}"
            found.append(IdentifierFromFile(folder, value.origin) if isinstance(value, IdentifierFromFile) else folder)
        else:
            try:
                check_identifier(value)
            except InputError as error:
                raise InputError(f"--teachers {value}: no folder of a ranking or a tuned model. {error}") from error
            found.append(value)
    return list(dict.fromkeys(found))


def _is_main() -> bool:
    return os.environ.get("RANK", "0") == "0"
