"""The answer of a ranking in a few sentences, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubscout.report.shell import shell_command
from hubscout.runs.paired_comparison import failed_words
from hubscout.runs.ranking import Ranking
from hubscout.runs.row import Row
from hubscout.runs.texts import human_bytes, human_count, human_seconds

TEACHERS = 3
WORTH_SAVING = 0.5
"""A smaller model is proposed if it has at most this share of the parameters of all the best ones."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a ranking says.

    `best` is where to start, where the labels are `explained` by any model; it cannot be told apart from `tied`.
    `cheapest` is the one of them that costs less than all others, where that is not `best`. `small` is the best under
    `limit` parameters, to be taught by `teachers`. `caveats` are reasons to be careful.
    """

    best: Row
    explained: bool = True
    tied: tuple[Row, ...] = ()
    cheapest: Row | None = None
    small: Row | None = None
    limit: int | None = None
    teachers: tuple[Row, ...] = ()
    caveats: tuple[str, ...] = ()


def answer(ranking: Ranking) -> Answer:
    """Read the answer off a ranking that has at least one model."""
    best = ranking.best
    tied = tuple(row for row in ranking.compared if row.tied_with_best and row.rank != best.rank)
    small, limit = _small(ranking, best, tied)
    teachers = tuple(row for row in ranking.compared if small is not None and row.rank != small.rank)[:TEACHERS]
    return Answer(
        best=best,
        explained=ranking.explains_labels is not False,
        tied=tied,
        cheapest=_cheapest(best, tied),
        small=small,
        limit=limit,
        teachers=teachers,
        caveats=tuple(_caveats(ranking)),
    )


def _cheapest(best: Row, tied: tuple[Row, ...]) -> Row | None:
    """By parameters; by latency where these are the same."""
    known = [row for row in (best, *tied) if row.params]
    if not best.params or not tied:
        return None
    first = min(known, key=lambda row: (row.params or 0, row.latency_seconds or float("inf")))
    return None if first is best else first


def cost_words(row: Row) -> str:
    """What a model costs: parameters, size on disk and the time of one sample, as far as they are known."""
    parts = [f"{human_count(row.params)} parameters"] if row.params else []
    parts += [human_bytes(row.bytes)] if row.bytes else []
    if row.latency_seconds is not None:
        parts.append(
            f"{human_seconds(row.latency_seconds)} per sample{' on a busy machine' if row.latency_busy else ''}"
        )
    return ", ".join(parts)


def _small(ranking: Ranking, best: Row, tied: tuple[Row, ...]) -> tuple[Row | None, int | None]:
    """The best model under the largest round limit that halves the parameters of all the best ones."""
    sizes = [row.params for row in (best, *tied) if row.params]
    if not sizes:
        return None, None
    for limit in _round_limits(WORTH_SAVING * min(sizes)):
        inside = [row for row in ranking.compared if row.params and row.params <= limit]
        if inside:
            return inside[0], limit
    return None, None


def _round_limits(highest: float) -> list[int]:
    limits = [factor * 10**power for power in range(12, 3, -1) for factor in (5, 2, 1)]
    return [limit for limit in limits if limit <= highest][:4]


def _caveats(ranking: Ranking) -> list[str]:
    best = ranking.best
    caveats = []
    if not ranking.complete:
        caveats.append("The run is not complete: models that were not reached are missing.")
    if ranking.failures:
        caveats.append(f"{failed_words(ranking)}; the reasons are below.")
    if best.standard_error is None:
        caveats.append("There are no error bars: the order of close models may be chance.")
    if len(ranking.compared) > 1 and len(ranking.compared) == 1 + sum(
        row.tied_with_best for row in ranking.compared[1:]
    ):
        caveats.append("All models are statistically tied on this much data; more labels would tell them apart.")
    return caveats


def budget_words(limit: int) -> str:
    """A limit as it is said.

    >>> budget_words(10_000_000)
    '10 M parameters'
    """
    words = human_count(limit)
    return f"{words[:-1]} {words[-1]} parameters" if words[-1].isalpha() else f"{words} parameters"


def command_words(environment: Mapping[str, Any]) -> list[str]:
    """The command line of a run, as it was noted; empty where it was not run by a command."""
    words = environment.get("command")
    return [str(word) for word in words] if isinstance(words, list | tuple) else []


def _source_arguments(ranking: Ranking) -> Mapping[str, Any]:
    arguments = (ranking.task.source or {}).get("arguments")
    return arguments if isinstance(arguments, Mapping) else {}


def data_argument(ranking: Ranking) -> str:
    """What the command line calls the data: the argument of the run, its source, or a placeholder."""
    command = command_words(ranking.environment)
    if "rank" in command[1:2] and len(command) > 2 and not command[2].startswith("-"):
        return command[2]
    told = _source_arguments(ranking)
    places = [told.get(name) for name in ("source", "folder", "url")]
    return next((_one_place(place) for place in places if place and _one_place(place)), "DATA")


def _one_place(place: object) -> str:
    """A place as an argument; of a file for each split their folder, where they have one in common."""
    if isinstance(place, str):
        return place
    if not isinstance(place, Mapping):
        return ""
    files = [str(file) for files in place.values() for file in (files if isinstance(files, list) else [files])]
    folders = {str(Path(file).parent) for file in files}
    return files[0] if len(files) == 1 else folders.pop() if len(folders) == 1 else ""


def data_options(ranking: Ranking) -> list[str]:
    """How the data was read, as options of `hubscout tune`, where a column or a kind was named."""
    told = _source_arguments(ranking)
    options: list[str] = []
    for name, option in (
        ("image", "--image"),
        ("text", "--text"),
        ("label", "--label"),
        ("kind", "--kind"),
        ("split", "--split"),
    ):
        value = told.get(name)
        for part in [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []:
            options += [option, str(part)]
    return options


def next_command(ranking: Ranking, found: Answer) -> str:
    """The command that puts the answer to work, ready for a shell: it tunes the model that the answer names."""
    parts = ["hubscout", "tune", data_argument(ranking), *data_options(ranking), "--model", found.best.identifier]
    return shell_command([*parts, "--method", "fine-tune", "--out", "my-model/"])


def next_commands(ranking: Ranking, folder: Path) -> list[str]:
    """What to type after a ranking that is saved in `folder`: tune what the answer names, look at the page."""
    commands = []
    if ranking.explains_labels is not False:
        commands.append(next_command(ranking, answer(ranking)))
    return [*commands, shell_command(["hubscout", "report", str(folder)])]
