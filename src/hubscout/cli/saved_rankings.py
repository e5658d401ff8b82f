"""`hubscout select`, `evaluate` and `merge`: what can be done with rankings that are saved."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, QuietOption, print_json, print_result, print_table, say

app = typer.Typer(add_completion=False)

SELECT_EXAMPLES = """Examples:

hubscout select run/ -k 3

hubscout select run/ -k 3 --method joint

hubscout select run/ -k 1 --max-params 10M --max-latency 20ms"""


@app.command(epilog=SELECT_EXAMPLES)
def select(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The --out folder of a rank.", autocompletion=options.complete_runs)
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="How many models.")] = 3,
    method: Annotated[str, typer.Option(help="top: the k best. joint: the set that explains most together.")] = "top",
    max_params: Annotated[str | None, typer.Option(help="At most this many parameters per model, such as 10M.")] = None,
    max_flops: Annotated[str | None, typer.Option(help="At most so many operations per sample, such as 2G.")] = None,
    max_latency: Annotated[str | None, typer.Option(help="At most so much time per sample, such as 20ms.")] = None,
    cache: Annotated[
        str | None, typer.Option(help="Folder or URL of the feature cache, if not that of the run.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where features that are not cached are computed.")] = "auto",
    allow_code: options.AllowCodeOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Choose teachers for tuning out of a saved ranking.

    `joint` is greedy on the LogME of the models' features side by side: a copy of a chosen model adds nothing, a weak
    model that sees something else may add a lot. It reads the feature cache of the run.
    """
    from hubscout.errors import InputError
    from hubscout.ranking import Ranking, select_teachers
    from hubscout.runs.display import display

    ranking = Ranking.load(run, allow_code=allow_code)
    bounded = ranking.within(max_params=max_params, max_flops=max_flops, max_latency=max_latency)
    if not len(bounded):
        raise InputError(f"None of the {len(ranking)} ranked models keeps these limits.")
    with display(len(bounded) if method == "joint" else 0, quiet=quiet or method != "joint") as observer:
        teachers = select_teachers(bounded, k, method, cache=cache, device=device, observer=observer)
    if as_json:
        print_json({"method": teachers.method, "n": teachers.n, "teachers": [asdict(step) for step in teachers.steps]})
        return
    score = "score" if teachers.method == "top" else "joint LogME"
    rows = [
        (step.identifier, f"{step.score:.4f}", "–" if step.added is None else f"{step.added:+.4f}")
        for step in teachers.steps
    ]
    print_table(("model", score, "added"), rows, right=(score, "added"))


EVALUATE_EXAMPLES = """Examples:

hubscout evaluate run/ accuracies.csv        # columns: model, accuracy

hubscout evaluate run/ errors.json --lower-is-better --json"""


@app.command(epilog=EVALUATE_EXAMPLES)
def evaluate(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The --out folder of a rank.", autocompletion=options.complete_runs)
    ],
    reference: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="CSV with columns model and accuracy, or JSON of model: value.")
    ],
    lower_is_better: Annotated[
        bool, typer.Option("--lower-is-better", help="The results are errors, not accuracies.")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score a saved ranking against known results of fine-tuning.

    Prints the weighted tau of every metric, with its permutation p-value, and beside them the baselines that never
    looked at the data: parameters, FLOPs, source accuracy, downloads.
    """
    from hubscout.ranking import Ranking

    found = Ranking.load(run).evaluate(reference, better="lower" if lower_is_better else "higher")
    if found.missing:
        say(f"Not in {reference}: {', '.join(found.missing)}.", quiet=quiet)
    if found.unused:
        say(f"Not in {run}: {', '.join(found.unused)}.", quiet=quiet)
    if as_json:
        print_json(asdict(found))
        return
    from hubscout.ranking.evaluate_ranking import evaluation_table

    print_result(evaluation_table(found))


MERGE_EXAMPLES = """Examples:

hubscout merge run-a/ run-b/ --out both/

Exit status: 0 merged, 1 the data or the settings of the runs differ, 2 bad input."""


@app.command(epilog=MERGE_EXAMPLES)
def merge(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUNS", help="The --out folders of two or more ranks.", autocompletion=options.complete_runs
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the merged ranking.")],
    overwrite: options.OverwriteOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Merge rankings of the same data with the same settings into one, with every model once."""
    from hubscout.ranking import Ranking
    from hubscout.ranking.journal import merge_rankings
    from hubscout.runs.ranking_storage import to_json
    from hubscout.runs.run_folder import RANKING, check_folder

    check_folder(out, RANKING, resume=False, overwrite=overwrite)
    if (out / RANKING).exists() and not overwrite:
        from hubscout.errors import InputError

        raise InputError(f"--out {out} holds a ranking already. Choose another folder, or add --overwrite.")
    merged = merge_rankings([Ranking.load(run) for run in runs])
    merged.save(out)
    if as_json:
        print_json(to_json(merged))
    else:
        print_result(merged)
    say(f"Saved in {out}.", quiet=quiet)
