"""`hubscout evaluate`: how good was the ranking, given what fine-tuning really gave."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, QuietOption, print_json, print_result, say

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout evaluate run/ accuracies.csv        # columns: model, accuracy

hubscout evaluate run/ errors.json --lower-is-better --json"""


@app.command(epilog=EPILOG)
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
