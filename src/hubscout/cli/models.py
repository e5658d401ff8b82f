"""`hubscout models`: what a hub has."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import Output, print_json, print_table

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout models 'timm/mobilenet*' --max-params 10M

hubscout models 'hf/*bert*' --max-params 30M --limit 1k

hubscout models 'pypi/*' --json

hubscout models '*' --local"""


@app.command(epilog=EPILOG)
@options.described
def models(
    *,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", autocompletion=options.complete_models)] = "*",
    max_params: str | None = None,
    limit: str | None = None,
    local: bool = False,
    output: Output,
) -> None:
    """List the models of a hub with size, FLOPs where known, source data, licence and downloads.

    Where a hub cannot be reached the list holds what is on this machine, and says so.

    Args:
        pattern: hub/NAME with shell wildcards.
        max_params: At most so many parameters, such as 10M.
        limit: Of the Hugging Face Hub, look at so many of the most downloaded. [200]
        local: Only models whose weights are on this machine.

    """
    from hubscout.hubs import list_models

    found = list_models(pattern, max_params=max_params, limit=limit)
    entries = [entry for entry in found if entry.on_this_machine or not local]
    output.say(*found.notes)
    if output.as_json:
        print_json({"models": [asdict(entry) for entry in entries], "notes": list(found.notes)})
        return
    if not entries:
        bounds = f" with at most {max_params} parameters" if max_params else ""
        output.say(f"No model matches {pattern!r}{bounds}.")
        return
    from hubscout.runs.texts import human_count

    heads = ("model", "params", "FLOPs", "source data", "licence", "downloads", "here")
    rows: list[tuple[str, ...]] = [
        (
            entry.identifier,
            human_count(entry.params),
            human_count(entry.flops),
            entry.source_data or "–",
            entry.licence or "–",
            human_count(entry.downloads),
            "yes" if entry.on_this_machine else "",
        )
        for entry in entries
    ]
    # Columns of which nothing is known would only take the room that the names need.
    shown = [place for place, _ in enumerate(heads) if any(row[place] not in ("–", "") for row in rows)]
    cells = ([row[place] for place in shown] for row in rows)
    print_table([heads[place] for place in shown], cells, right=("params", "FLOPs", "downloads"))
