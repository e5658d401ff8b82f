"""`hubscout tune`: tune a model, taught by the best-ranked ones; `hubscout soup`: average the weights of such runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import Output, progress, run_folder, say, say_saved, warn_and_exit
from hubscout.cli.values import list_arguments, read_settings, split_models
from hubscout.errors import InputError, InterruptedRunError, TuningError
from hubscout.runs.run_folder import RACE, RANKING, TUNING
from hubscout.runs.texts import short_name

if TYPE_CHECKING:
    from hubscout.tuning import Tuned
    from hubscout.tuning.method_comparison import Comparison

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout tune flowers/ --model timm/mobilenetv3_small_100.lamb_in1k --teachers run/ --top 3 --out my-model/

hubscout tune flowers/ --model timm/resnet18.a1_in1k --method fine-tune --epochs 5 --set freeze=all --out probe/

hubscout tune pets.parquet --label breed --model pypi/efficientnet-lite0 --teachers run/ --method all --seeds 3

torchrun --nproc-per-node 2 -m hubscout tune flowers/ --model ... --processes 2 --out my-model/

All other arguments: hubscout tune --list-arguments"""


@dataclass(frozen=True)
class Training:
    """The arguments of tuning that have options of their own; the others are for --set.

    Args:
        epochs: Passes over the train split.
        steps: Optimiser steps, instead of --epochs.
        budget: Time for the run, such as 20min, instead of --epochs or --steps.
        patience: Stop after this many validations without a new best.
        batch_size: Samples per optimiser step, over all processes.
        learning_rate: Learning rate of the backbone; chosen by hubscout if not given.
        lora_rank: Train low-rank adapters of this rank, merged into the weights at the end.
        trade_off: λ, the weight of the teachers' term; the method's own if not given.
        teacher_targets: When teachers answer: cached (once, first), left-out, live (each step), or views (of a few
            crops).
        processes: How many processes torchrun starts; the run warns if there are more or fewer.

    """

    epochs: options.Count = None
    steps: options.Count = None
    budget: str | None = None
    patience: options.Count = None
    batch_size: options.Count = None
    learning_rate: float | None = None
    lora_rank: Annotated[int | None, typer.Option("--lora", min=1)] = None
    trade_off: float | None = None
    teacher_targets: str | None = None
    device: options.TuningDevice = "auto"
    data_in_memory: options.InMemory = None
    processes: options.Count = None


@app.command(epilog=EPILOG)
@options.described
def tune(
    *,
    data: options.Data,
    ctx: typer.Context,
    model: Annotated[str, typer.Option("--model", "-m", autocompletion=options.complete_models)],
    teachers: list[str] | None = None,
    top: options.Count = None,
    method: str | None = None,
    out: options.Out = None,
    existing: options.Existing,
    training: Training,
    seed: options.Seed = 0,
    seeds: options.Count = None,
    engine: str | None = None,
    address: str | None = None,
    keep: options.Cache,
    limit: options.Limit = None,
    skip_bad: options.SkipBad = False,
    onnx: bool = False,
    settings: options.Settings = None,
    listing: Annotated[bool, typer.Option("--list-arguments", callback=list_arguments, is_eager=True)] = False,
    allow_code: options.AllowCode = False,
    output: Output,
) -> None:
    """Tune a model on your labelled data; better-ranked models of any architecture teach it.

    Trains on the train split, keeps the weights that are best on validation, reports test with intervals. Run the
    same command again to resume a run that was stopped, to the same result. A run that diverges restarts at a lower
    learning rate; a model whose 95% interval lies below guessing is saved, marked, and the exit status is 4.

    Args:
        model: The model to tune, such as the one that `hubscout rank` names.
        teachers: The --out folder of a rank, a race or a tune, or models, repeated or joined by commas.
        top: How many of a ranking's best models teach; 3 if not given.
        method: fine-tune, kd, logit-kd, distill-weighted, zoo or b-tuning; all compares fine-tune, kd, zoo and b-tuning
            over seeds. Without it: b-tuning for classes, with teachers or without; with teachers for several labels
            too, and for numbers, unless a short run in search of a learning rate says that they are of no use; or
            fine-tune.
        out: Folder of the tuned model, its checkpoints and its card; by default a new one in runs/.
        seeds: With --method all: how many seeds; 3 if not given.
        engine: With --method all: where the runs go, local (the default) or ray.
        address: With --engine ray: auto (a running cluster), local (a new one for this run) or HOST:PORT.
        onnx: Also export OUT/model.onnx, checked against torch.
        listing: Print everything that --set takes, with defaults, and exit.

    """
    from hubscout.features import FeatureCache
    from hubscout.optional import require_onnx
    from hubscout.tuning.arguments import TuningArguments
    from hubscout.tuning.choices import ALL, FOLLOWS_LABELS, check_choices, check_heeded

    chosen: dict[str, Any] = {**options.given(training), **read_settings(settings or [])}
    arguments = TuningArguments.of(**chosen)
    if method == "all":
        options.only_for("a single method", onnx=onnx, seed=seed or None)
    else:
        options.only_for("--method all", seeds=seeds, engine=engine, address=address)
    if not teachers:
        options.only_for("--teachers", top=top)
    if method == "all" and not teachers:
        raise InputError("--method all compares methods that learn from teachers: give --teachers.")
    checked = FOLLOWS_LABELS if method in (None, "all") else method
    check_choices(model, teachers, checked, arguments, out, **vars(existing))
    check_heeded(arguments, ALL if method == "all" else method, teachers)
    where = options.Engine(engine or "local", address)
    engine_options = where.options()
    chosen["cache"] = None if keep.no_cache else FeatureCache(keep.cache)
    output = replace(output, quiet=output.quiet or not _is_main())
    options.check_amounts(limit=limit, budget=training.budget)
    if onnx:
        require_onnx()  # said now, not after the training
    taught_by = open_teachers(teachers or [], top or 3, allow_code=allow_code)
    task = data.open(limit=limit, seed=seed, quiet=output.quiet)
    if out is None and (existing.resume or existing.overwrite or int(os.environ.get("WORLD_SIZE", "1")) > 1):
        raise InputError("--resume, --overwrite and runs of several processes need the folder of the run: give --out.")
    chosen |= {**vars(existing), "skip_bad": skip_bad}
    with run_folder(out, f"{task.name}-{short_name(model)}", quiet=output.quiet) as place:
        if method == "all":
            from hubscout.tuning.method_comparison import compare

            chosen |= {"seeds": range(seeds or 3), "engine": where.engine, "engine_options": engine_options}
            compared = partial(compare, task, model, taught_by, out=place, **chosen)
            warnings = _compare(ctx, compared, place, output)
        else:
            from hubscout.tuning import tune as run

            # Under a budget, as far as there is time for it.
            probe = {"linear_probe": True} if arguments.budget is None else {}
            chosen = {"seed": seed, **probe, "began": options.command_began(ctx), **chosen}
            tuning = partial(run, task, model, taught_by, method, out=place, **chosen)
            measured = bool(len(task.validation) or len(task.test))
            warnings = _tune(ctx, tuning, place, output, title=method or "tune", onnx=onnx, measured=measured)
    warn_and_exit(ctx, warnings)


@contextmanager
def _resumable() -> Iterator[None]:
    """Ctrl-C before the first step or after the last says how to go on; in between, training itself does."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptedRunError("run the same command again to go on.") from error


def _tune(
    ctx: typer.Context,
    run: Callable[..., Tuned],
    out: Path,
    output: Output,
    *,
    title: str,
    onnx: bool,
    measured: bool,
) -> list[str]:
    """Tune and tell; gives the warnings. `measured`: there are samples to measure the result on."""
    from hubscout.runs.evaluation_record import conclusion
    from hubscout.tuning.tuned_folder import opens_by_code

    with _resumable(), progress(ctx, quiet=output.quiet, title=title) as observer:
        tuned = run(observer=observer)
    if not _is_main():
        return []
    why = "" if measured else ": there are neither validation nor test samples"
    not_measured = f"How good it is was not measured{why}."
    told = replace(tuned, warning="")  # the warning is the last word of the command
    output.show(lambda: {**tuned.record(), "out": out}, str(told), conclusion(tuned.tuning_run()) or not_measured)
    say_saved(out, out, by_code=opens_by_code(tuned, out), quiet=output.quiet)
    if onnx:
        try:
            difference = tuned.export_onnx(out / "model.onnx")
            output.say(f"{out / 'model.onnx'}: outputs agree with torch to {difference:.1e}")
        except TuningError as error:
            if not tuned.warning:
                raise
            say(f"Error: {error}")  # the warning is the graver news: the last word and the status are its
    return [tuned.warning]


def _compare(ctx: typer.Context, run: Callable[..., Comparison], out: Path, output: Output) -> list[str]:
    """Compare and tell; gives the warnings."""
    with _resumable(), progress(ctx, quiet=output.quiet, title="compare") as observer:
        found = run(observer=observer)
    output.show(lambda: {**found.record(), "out": out}, found.table())
    output.say(f"The models are in {out}, by method and seed, such as {out / found.trials[0].folder}")
    return [f"{trial.folder}: {trial.warning}" for trial in found.trials if trial.warning]


def open_teachers(values: list[str], top: int, *, allow_code: bool = False) -> list[str]:
    """Identifiers: those named, the best of a ranking or a race whose folder is given, a tuned model by that of it."""
    from hubscout.file_identifiers import IdentifierFromFile
    from hubscout.hubs.hub_registry import check_identifier
    from hubscout.ranking import Ranking
    from hubscout.runs.race_record import read_race

    found: list[str] = []
    for value in split_models(values, allow_code=allow_code):
        if (Path(value) / RANKING).is_file() or value.endswith(RANKING):
            found += Ranking.load(value, allow_code=allow_code).top(top)
        elif (file := Path(value) / RACE).is_file():  # as for `race --deploy`: the winner, and those tied with it
            models = [one.model for one in read_race(Path(value)).order if one.rank == 1 or one.is_tied][:top]
            found += models if allow_code else [IdentifierFromFile(model, str(file)) for model in models]
        elif (Path(value) / TUNING).is_file():
            folder = f"file:{value}"
            found.append(IdentifierFromFile(folder, value.origin) if isinstance(value, IdentifierFromFile) else folder)
        else:
            try:
                check_identifier(value)
            except InputError as error:
                told = f"--teachers {value}: no folder of a ranking, a race or a tuned model."
                raise InputError(f"{told} {error}") from error
            found.append(value)
    return list(dict.fromkeys(found))


def _is_main() -> bool:
    return os.environ.get("RANK", "0") == "0"


SOUP_EXAMPLES = """Examples:

hubscout soup flowers/ runs/seed-0/ runs/seed-1/ runs/seed-2/ --out my-model/"""


@app.command(epilog=SOUP_EXAMPLES)
@options.described
def soup(
    *,
    data: options.Data,
    ctx: typer.Context,
    models: Annotated[list[Path], typer.Argument(metavar="MODELS")],
    out: options.Out = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    allow_code: options.AllowCode = False,
    output: Output,
) -> None:
    """Average the weights of several tuned runs of one model, as long as validation does not fall.

    One network of the same size and speed. Give the data, --limit and --seed that the runs were tuned with: their
    validation split decides what goes in.

    Args:
        models: Two or more --out folders of tune.
        out: Folder of the averaged model; a new one in runs/.

    """
    from hubscout.runs.tuning_record import read_tuning
    from hubscout.tuning.choices import check_souped

    if (Path(data.data) / TUNING).is_file():
        raise InputError(
            f"{data.data} is a tuned model. The data that the models were tuned on come first: "
            f"hubscout soup DATA {' '.join(map(str, (data.data, *models)))}"
        )
    check_souped(models)
    options.check_amounts(limit=limit)
    for model in models:
        read_tuning(model)  # what is not there is said before torch is imported
    task = data.open(limit=limit, seed=seed, quiet=output.quiet)
    from hubscout.tuning import soup as run
    from hubscout.tuning.tuned_folder import opens_by_code

    with run_folder(out, f"{task.name}-soup", quiet=output.quiet) as place:
        made = run(task, models, out=place, allow_code=allow_code)
    output.say(*made.notes)
    output.show(lambda: {**made.record(), "out": place}, str(made))
    say_saved(place, place, by_code=opens_by_code(made, place), quiet=output.quiet)
    warn_and_exit(ctx, [made.warning])
