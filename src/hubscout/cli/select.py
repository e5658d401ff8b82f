"""`hubscout select`: which models should teach, or which one to take under a budget."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, QuietOption, print_json, print_table
from hubscout.cli.shared_options import AllowCodeOption

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout select run/ -k 3

hubscout select run/ -k 3 --method joint

hubscout select run/ -k 1 --max-params 10M --max-latency 20ms"""


@app.command(epilog=EPILOG)
def select(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The --out folder of a rank.", autocompletion=options.complete_runs)
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="How many models.")] = 3,
    method: Annotated[str, typer.Option(help="top: the k best. joint: the set that explains most together.")] = "top",
    max_params: Annotated[str | None, typer.Option(help="At most so many parameters per model, such as 10M.")] = None,
    max_flops: Annotated[str | None, typer.Option(help="At most so many operations per sample, such as 2G.")] = None,
    max_latency: Annotated[str | None, typer.Option(help="At most so much time per sample, such as 20ms.")] = None,
    cache: Annotated[
        str | None, typer.Option(help="Folder or URL of the feature cache, if not that of the run.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where features that are not cached are computed.")] = "auto",
    allow_code: AllowCodeOption = False,
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
