"""`hubscout report`: one page to look at, from a saved run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, QuietOption, print_json, say

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout report run/                              # writes run/report.html

hubscout report run/ -o report.html --pdf figures/

hubscout report run/ --reference accuracies.csv   # columns: model, accuracy

hubscout report run/ --tuning my-model/ --tuning other-model/"""


@app.command(epilog=EPILOG)
def report(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="The --out folder of a rank, a race or a tune.", autocompletion=options.complete_runs
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write; report.html in the run folder if not given.")
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Also write the charts as PNG into this folder.")] = None,
    pdf: Annotated[Path | None, typer.Option(help="The same as PDF, for a paper.")] = None,
    svg: Annotated[Path | None, typer.Option(help="The same as SVG.")] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Known results of fine-tuning: CSV of model and accuracy, or JSON.")
    ] = None,
    tuning: Annotated[
        list[Path] | None, typer.Option(help="Also show the tuning runs of this folder; repeat it.")
    ] = None,
    lower_is_better: Annotated[
        bool, typer.Option("--lower-is-better", help="The reference holds errors, not accuracies.")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make one self-contained HTML page from a saved run.

    It starts with the answer, holds its charts, style and script inside, and makes no network requests: send it,
    keep it, open it from a file.
    """
    from hubscout.report import open_run, write_report
    from hubscout.report.pictures import write_pictures

    better: Literal["higher", "lower"] = "lower" if lower_is_better else "higher"
    opened = open_run(run, reference=reference, better=better, tuning=tuning or [])
    home = opened.folder if opened.folder is not None else Path()
    page = write_report(opened, out if out is not None else home / "report.html")
    wanted = {"png": png, "pdf": pdf, "svg": svg}
    written = [write_pictures(opened, folder, ending=end) for end, folder in wanted.items() if folder is not None]
    pictures = [path for paths in written for path in paths]
    if as_json:
        print_json({"report": str(page), "bytes": page.stat().st_size, "pictures": [str(path) for path in pictures]})
        return
    say(f"Wrote {page} ({page.stat().st_size / 1e3:.0f} kB).", quiet=quiet)
    for paths in written:
        say(f"Wrote {len(paths)} charts into {paths[0].parent if paths else 'no folder'}.", quiet=quiet)
