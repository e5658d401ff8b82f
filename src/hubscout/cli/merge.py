"""`hubscout merge`: rankings that were made apart, as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, QuietOption, print_json, print_result, say

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout merge run-a/ run-b/ --out both/

Exit status: 0 merged, 1 the runs answer different questions, 2 bad input."""


@app.command(epilog=EPILOG)
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
