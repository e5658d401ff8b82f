"""`hubscout select`, `evaluate` and `merge`: what can be done with rankings that are saved."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import Output, print_json, print_table

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
    from hubscout.errors import InputError
    from hubscout.ranking import Ranking, select_teachers
    from hubscout.runs.display import display

    ranking = Ranking.load(run, allow_code=allow_code)
    bounded = ranking.within(**vars(limits))
    if not len(bounded):
        raise InputError(f"None of the {len(ranking)} ranked models keeps these limits.")
    with display(len(bounded) if method == "joint" else 0, quiet=output.quiet or method != "joint") as observer:
        teachers = select_teachers(bounded, k, method, cache=cache, device=device, observer=observer)
    if output.as_json:
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
    out: Annotated[Path, typer.Option("--out", "-o")],
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
    from hubscout.runs.run_folder import RANKING, check_folder

    check_folder(out, RANKING, resume=False, overwrite=overwrite)
    if (out / RANKING).exists() and not overwrite:
        from hubscout.errors import InputError

        raise InputError(f"--out {out} holds a ranking already. Choose another folder, or add --overwrite.")
    merged = merge_rankings([Ranking.load(run) for run in runs])
    merged.save(out)
    output.show(lambda: to_json(merged), merged)
    output.say(f"Saved in {out}.")
