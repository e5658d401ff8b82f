"""`hubscout models` and `hubscout cache`: what hubs have, and what is cached of it."""

from __future__ import annotations

import fnmatch
from dataclasses import asdict
from typing import Annotated, Any

import typer

from hubscout.amounts import parse_seconds
from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, Output, print_json, print_result, print_table, say
from hubscout.errors import InputError
from hubscout.runs.texts import human_count, names_by_model, short_names

app = typer.Typer(add_completion=False)

MODELS_EXAMPLES = """Examples:

hubscout models 'timm/mobilenet*' --max-params 10M

hubscout models 'hf/*bert*' --max-params 30M --limit 1k

hubscout models 'pypi/*' --json

hubscout models '*' --local"""


@app.command(epilog=MODELS_EXAMPLES)
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


cache = typer.Typer(no_args_is_help=True, help="Look at the cache of features and make room.")
app.add_typer(cache, name="cache")

RootOption = Annotated[
    str | None,
    typer.Option("--cache", help="Folder or URL of the cache, where it is not the default one.", show_default=False),
]
_UNITS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "min": 60.0}


@cache.command("ls")
def list_entries(root: RootOption = None, as_json: JsonOption = False) -> None:
    """List what is cached: model, task, layer, samples, size, age.

    Example:  [bold]hubscout cache ls --json[/bold]
    """
    from hubscout.features.feature_cache import FeatureCache
    from hubscout.features.storage import megabytes

    kept = FeatureCache(root)
    entries = kept.entries()
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    if not entries:
        print_result(f"The cache at {kept} is empty.")
        return
    from rich.table import Table
    from rich.text import Text

    names = names_by_model(entry.model for entry in entries)
    table = Table(box=None, pad_edge=False)
    for head in ("model", "task", "split", "layer", "samples", "size", "age", "name"):
        # The name of the folder is the one that a narrow terminal may cut.
        table.add_column(head, no_wrap=head != "name", overflow="ellipsis")
    for entry in entries:
        texts = (
            names[entry.model] or "(unreadable)",
            entry.task,
            entry.split,
            entry.layer or "final",
            f"{entry.rows}" if entry.complete else f"{entry.rows} (unfinished)",
            megabytes(entry.bytes),
            _age(entry.age_seconds),
            entry.name,
        )
        table.add_row(*map(Text, texts))
    print_result(table, f"{len(entries)} entries, {megabytes(sum(entry.bytes for entry in entries))} at {kept}")


@cache.command("size")
def show_size(root: RootOption = None, as_json: JsonOption = False) -> None:
    """Print how much disk space the cache takes, and where it is."""
    from hubscout.features.feature_cache import FeatureCache
    from hubscout.features.storage import megabytes

    kept = FeatureCache(root)
    size = kept.size_bytes()
    record = {"folder": str(kept), "bytes": size}
    Output(as_json).show(lambda: {**record, "entries": len(kept.entries())}, f"{megabytes(size)} at {kept}")


@cache.command("rm")
@options.described
def remove(
    patterns: Annotated[list[str] | None, typer.Argument(metavar="[PATTERN]...")] = None,
    everything: Annotated[bool, typer.Option("--all")] = False,
    older_than: Annotated[str | None, typer.Option(metavar="TIME")] = None,
    dry_run: bool = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove cached features. They are made again when a run needs them.

    Examples:  [bold]hubscout cache rm 'timm/vit*'[/bold]   [bold]hubscout cache rm --older-than 30d[/bold]

    Args:
        patterns: Models, tasks or names as `ls` shows them; * and ? match.
        everything: Remove everything.
        older_than: Only what is older: 12h, 30d, 8w.
        dry_run: Say what would go, and keep it.

    """
    from hubscout.features.feature_cache import FeatureCache
    from hubscout.features.storage import megabytes

    if not patterns and not everything and older_than is None:
        raise InputError("Say what to remove: a PATTERN, --older-than TIME, or --all.")
    kept = FeatureCache(root)
    oldest = 0.0 if older_than is None else parse_seconds(older_than, "--older-than")
    chosen = [
        entry for entry in kept.entries() if entry.age_seconds >= oldest and (not patterns or _matches(entry, patterns))
    ]
    if patterns and not chosen:
        raise InputError(f"Nothing in the cache at {kept} matches {', '.join(patterns)}.")
    busy = [] if dry_run else kept.remove([entry.name for entry in chosen])
    gone = [entry for entry in chosen if entry.name not in busy]
    freed = sum(entry.bytes for entry in gone)
    if as_json:
        print_json({"removed": [entry.name for entry in gone], "busy": busy, "bytes": freed, "dry_run": dry_run})
        return
    for name in busy:
        say(f"{name} is in use by a run and was kept.")
    for entry in gone if dry_run else ():
        print_result(f"{entry.name}  {megabytes(entry.bytes)}")
    print_result(f"{'Would remove' if dry_run else 'Removed'} {len(gone)} entries, {megabytes(freed)}.")


def _matches(entry: Any, patterns: list[str]) -> bool:
    texts = (entry.name, entry.model, *short_names([entry.model]), entry.task)
    return any(fnmatch.fnmatchcase(text, pattern) for text in texts for pattern in patterns)


def _age(seconds: float) -> str:
    for unit, length in _UNITS.items():
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
