"""`hubscout select`, `evaluate` and `merge` of saved rankings, and `reference`: the results to judge one by."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import Output
from hubscout.cli.values import read_settings, split_list, split_models
from hubscout.errors import InputError
from hubscout.metric_texts import metric_text
from hubscout.runs.run_folder import RANKING, check_folder
from hubscout.text_table import text_table

app = typer.Typer(add_completion=False)

SELECT_EXAMPLES = """Examples:

hubscout select run/ -k 3

hubscout select run/ -k 3 --method joint

hubscout select run/ -k 1 --max-params 10M --max-latency 20ms"""


@app.command(epilog=SELECT_EXAMPLES)
@options.described
def select(
    *,
    run: options.Run,
    k: Annotated[int, typer.Option("-k", min=1)] = 3,
    method: str = "top",
    limits: options.Limits,
    cache: str | None = None,
    device: str = "auto",
    allow_code: options.AllowCode = False,
    output: Output,
) -> None:
    """Choose teachers for tuning out of a saved ranking.

    `joint` is greedy on the LogME of the models' features side by side: a copy of a chosen model adds nothing, a weak
    model that sees something else may add a lot. It reads the feature cache of the run.

    Args:
        run: The --out folder of a rank.
        k: How many models.
        method: top: the k best. joint: the set that explains most together.
        cache: Folder or URL of the feature cache, if not that of the run.
        device: Where features that are not cached are computed.

    """
    from hubscout.ranking import Ranking, select_teachers
    from hubscout.runs.display import display

    ranking = Ranking.load(run, allow_code=allow_code)
    bounded = ranking.within(**vars(limits))
    if not len(bounded):
        raise InputError(f"None of the {len(ranking)} ranked models keeps these limits.")
    with display(bounded.identifiers if method == "joint" else (), quiet=output.quiet or method != "joint") as observer:
        teachers = select_teachers(bounded, k, method, cache=cache, device=device, observer=observer)
    if len(teachers.steps) < k:
        output.say(f"-k {k}: the ranking has no more than {len(bounded)} models to choose from.")
    record = {"method": teachers.method, "n": teachers.n, "teachers": [asdict(step) for step in teachers.steps]}
    score = "score" if teachers.method == "top" else "joint LogME"
    rows = [
        (step.identifier, f"{step.score:.4f}", "–" if step.added is None else f"{step.added:+.4f}")
        for step in teachers.steps
    ]
    output.show(lambda: record, text_table(("model", score, "added"), rows, right=(score, "added")))


EVALUATE_EXAMPLES = """Examples:

hubscout evaluate run/ accuracies.csv        # columns: model, accuracy

hubscout evaluate run/ errors.json --lower-is-better --json"""


@app.command(epilog=EVALUATE_EXAMPLES)
@options.described
def evaluate(
    *,
    run: options.Run,
    reference: Annotated[Path, typer.Argument(metavar="RESULTS")],
    lower_is_better: bool = False,
    output: Output,
) -> None:
    """Score a saved ranking against known results of fine-tuning.

    Prints the weighted tau of every metric, with its permutation p-value, and beside them the baselines that never
    looked at the data: parameters, FLOPs, source accuracy, downloads.

    Args:
        run: The --out folder of a rank.
        reference: CSV with columns model and accuracy, or JSON of model: value.
        lower_is_better: The results are errors, not accuracies.

    """
    from hubscout.ranking import Ranking
    from hubscout.ranking.evaluate_ranking import evaluation_table

    found = Ranking.load(run).evaluate(reference, better="lower" if lower_is_better else "higher")
    if found.missing:
        output.say(f"Not in {reference}: {', '.join(found.missing)}.")
    if found.unused:
        output.say(f"Not in {run}: {', '.join(found.unused)}.")
    output.show(lambda: asdict(found), evaluation_table(found))


MERGE_EXAMPLES = """Examples:

hubscout merge run-a/ run-b/ --out both/

Exit status: 0 merged, 1 the data or the settings of the runs differ, 2 bad input."""


@app.command(epilog=MERGE_EXAMPLES)
@options.described
def merge(
    *,
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS", autocompletion=options.complete_runs)],
    out: options.OutFolder,
    overwrite: bool = False,
    output: Output,
) -> None:
    """Merge rankings of the same data with the same settings into one, with every model once.

    Args:
        runs: The --out folders of two or more ranks.
        out: Folder for the merged ranking.
        overwrite: Start over and replace the run in --out.

    """
    from hubscout.ranking import Ranking
    from hubscout.ranking.journal import merge_rankings
    from hubscout.runs.ranking_storage import to_json

    check_folder(out, RANKING, resume=False, overwrite=overwrite)
    if (out / RANKING).exists() and not overwrite:
        raise InputError(f"--out {out} holds a ranking already. Choose another folder, or add --overwrite.")
    merged = merge_rankings([Ranking.load(run) for run in runs])
    merged.save(out)
    output.show(lambda: to_json(merged), merged)
    output.say(f"Saved in {out}.")


REFERENCE_EXAMPLES = """Examples:

hubscout reference flowers/ -m 'timm/resnet18.a1_in1k,timm/mobilenetv3_small_100.lamb_in1k' --out ref/

hubscout reference flowers/ -m @models.txt --learning-rates 0.1,0.01 --weight-decays 1e-4 --out ref/

hubscout evaluate run/ ref/reference.csv"""


@app.command(epilog=REFERENCE_EXAMPLES)
@options.described
def reference(
    *,
    data: options.Data,
    models: options.Models,
    out: options.OutFolder,
    existing: options.Existing,
    learning_rates: str | None = None,
    weight_decays: str | None = None,
    epochs: options.Count = None,
    batch_size: options.Count = None,
    seed: options.Seed = 0,
    limit: options.Limit = None,
    skip_bad: options.SkipBad = False,
    device: options.TuningDevice = "auto",
    data_in_memory: options.InMemory = None,
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
    best = {model: found.best(model) for model in found.models}
    record = {"metric": found.metric, "best": {model: vars(one) for model, one in best.items()}}
    told = partial(metric_text, found.metric)
    rows = [
        (model, *map(told, (one.test, one.validation)), f"{one.learning_rate:g}", f"{one.weight_decay:g}")
        for model, one in best.items()
    ]
    rows += [(model, reason, "–", "–", "–") for model, reason in found.failures.items()]
    heads = ("model", "test", "validation", "learning rate", "weight decay")
    title = f"{found.metric} of fine-tuning ({out / 'reference.csv'})"
    output.show(
        lambda: {**record, "failures": found.failures, "trials": len(found.trials)},
        text_table(heads, rows, right=heads[1:], title=title),
    )


def _numbers(text: str, argument: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in split_list([text]))
    except ValueError as error:
        raise InputError(f"{argument} must be numbers joined by commas, not {text!r}.") from error
