"""The answer of a ranking: in a few sentences, as the first card of its page, and as commands to run next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubscout.amounts import parse_seconds
from hubscout.report.markup import Markup, Section, copyable, definitions, join, tag
from hubscout.report.saved_run import View
from hubscout.runs.paired_comparison import failed_words, nothing_explained
from hubscout.runs.ranking import Ranking
from hubscout.runs.row import Row
from hubscout.runs.texts import human_bytes, human_count, human_probability, human_seconds

TEACHERS = 3
WORTH_SAVING = 0.5
"""A smaller model is proposed if it has at most this share of the parameters of all the best ones."""
NAMED_TIES = 4
LONGEST_COMMAND = 76


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
    if not best.params or not tied:
        return None
    known = [row for row in (best, *tied) if row.params]
    first = min(known, key=lambda row: (row.params or 0, row.latency_seconds or float("inf")))
    return None if first is best else first


def _small(ranking: Ranking, best: Row, tied: tuple[Row, ...]) -> tuple[Row | None, int | None]:
    """The best model under the largest round limit that halves the parameters of all the best ones."""
    sizes = [row.params for row in (best, *tied) if row.params]
    limits = [factor * 10**power for power in range(12, 3, -1) for factor in (5, 2, 1)]
    for limit in [limit for limit in limits if sizes and limit <= WORTH_SAVING * min(sizes)][:4]:
        inside = [row for row in ranking.compared if row.params and row.params <= limit]
        if inside:
            return inside[0], limit
    return None, None


def _caveats(ranking: Ranking) -> list[str]:
    caveats = []
    if not ranking.complete:
        caveats.append("The run is not complete: models that were not reached are missing.")
    if ranking.failures:
        caveats.append(f"{failed_words(ranking)}; the reasons are below.")
    if ranking.best.standard_error is None:
        caveats.append("There are no error bars: the order of close models may be chance.")
    if len(ranking.compared) > 1 and all(row.tied_with_best for row in ranking.compared[1:]):
        caveats.append("All models are statistically tied on this much data; more labels would tell them apart.")
    return caveats


def ranking_answer(view: View) -> Section:
    """What to start from, what else would do, and the command to run next."""
    found = answer(view.ranking)
    parts = [tag("p", *_sentences(view, found), class_="answer"), definitions(_facts(view, found))]
    parts += [tag("p", caveat, class_="caveat") for caveat in found.caveats]
    if found.explained:
        parts.append(copyable(next_command(view.ranking, found), "Run next"))
    return Section(anchor="answer", title="The answer", short="Answer", body=join(parts))


def _sentences(view: View, found: Answer) -> list[object]:
    """The answer in words, for a paragraph."""
    if not found.explained:
        return [nothing_explained(view.ranking.rows)]
    parts: list[object] = ["Start from ", *_priced(view, found.best)]
    if len(found.tied) == 1 and found.cheapest is not None:
        model, costs = _priced(view, found.cheapest)
        parts += [model, " is statistically tied with it and cheaper", costs]
    elif found.tied:
        are = "is" if len(found.tied) == 1 else "are"
        parts += [_models(view, found.tied), f" {are} statistically tied with it. "]
        if found.cheapest is not None:
            parts += ["The cheapest of these is ", *_priced(view, found.cheapest)]
    if found.small is not None and found.limit is not None:
        parts += [f"Under {budget_words(found.limit)} take ", _model(view, found.small)]
        parts += [", taught by ", _models(view, found.teachers), "."] if found.teachers else ["."]
    dropped = sum(row.dropped is not None for row in view.rows)
    if dropped and len(view.ranking.compared) == 1:
        parts.append("The others were dropped on the way. " if dropped > 1 else "The other was dropped on the way. ")
    return parts


def _model(view: View, row: Row) -> Markup:
    return tag("strong", view.short[row.identifier], class_="model", title=row.identifier)


def _models(view: View, rows: Sequence[Row]) -> Markup:
    names: list[object] = [_model(view, row) for row in rows[:NAMED_TIES]]
    if len(rows) > NAMED_TIES:
        names.append(f"{len(rows) - NAMED_TIES} more")
    return join([join(names[:-1], ", "), " and ", names[-1]] if len(names) > 1 else names)


def _priced(view: View, row: Row) -> tuple[Markup, str]:
    """A model and, in brackets, what it costs: parameters, size on disk and the time of one sample, where known."""
    parts = [f"{human_count(row.params)} parameters"] if row.params else []
    parts += [human_bytes(row.bytes)] if row.bytes else []
    if row.latency_seconds is not None:
        busy = " on a busy machine" if row.latency_busy else ""
        parts.append(f"{human_seconds(row.latency_seconds)} per sample{busy}")
    return _model(view, row), f" ({', '.join(parts)}). " if parts else ". "


def budget_words(limit: int) -> str:
    """A limit as it is said.

    >>> budget_words(10_000_000)
    '10 M parameters'
    """
    words = human_count(limit)
    return f"{words[:-1]} {words[-1]} parameters" if words[-1].isalpha() else f"{words} parameters"


def _facts(view: View, found: Answer) -> list[tuple[str, str, str]]:
    best, compared = found.best, len(view.ranking.compared)
    facts = []
    for expected in best.expected:
        value, interval = str(expected).split(" ", 1)
        told = f"{interval}, guessing {expected.words(expected.guess)}"
        facts.append((f"{expected.heading} on samples left out", value, told))
    if best.gain is not None:
        facts.append(("Gain over base rates", f"{best.gain:+.3f}", "nats per sample"))
    if found.explained:
        error = f"± {best.standard_error:.4f}" if best.standard_error is not None else ""
        facts.append((view.metric, f"{best.score:.4f}", error))
        if best.p_best is not None and compared > 1:
            facts.append(("P(best)", human_probability(best.p_best), f"among {compared} models"))
        if best.params:
            work = f"{human_count(best.flops)} FLOPs per sample" if best.flops else ""
            facts.append(("Parameters", human_count(best.params), work))
    return facts


def next_command(ranking: Ranking, found: Answer) -> str:
    """The command that puts the answer to work, ready for a shell: it tunes the model that the answer names."""
    parts = ["hubscout", "tune", data_argument(ranking), *data_options(ranking), "--model", found.best.identifier]
    return shell_command([*parts, "--out", "my-model/"])


def next_commands(ranking: Ranking, folder: Path) -> list[str]:
    """What to type after a ranking that is saved in `folder`: tune what the answer names, look at the page.

    Models that are tied are told apart by a race, which tunes the one that wins.
    """
    commands = []
    if ranking.explains_labels is not False:
        found = answer(ranking)
        commands = [race_command(ranking, found)] if found.tied else []
        commands.append(next_command(ranking, found))
    return [*commands, shell_command(["hubscout", "report", str(folder)])]


def race_command(ranking: Ranking, found: Answer) -> str:
    """The command that finds out which of the models that are tied will be the best once tuned."""
    models = [part for row in (found.best, *found.tied) for part in ("-m", row.identifier)]
    parts = ["hubscout", "race", data_argument(ranking), *data_options(ranking), *models]
    return shell_command([*parts, "--budget", "30min", "--out", "race/"])


def command_words(environment: Mapping[str, Any]) -> list[str]:
    """The command line of a run, as it was noted; empty where it was not run by a command."""
    words = environment.get("command")
    return [str(word) for word in words] if isinstance(words, list | tuple) else []


def data_of_command(environment: Mapping[str, Any], command: str) -> str:
    """What the command line of a run of `command` calls the data; empty where it is another, or they come later."""
    words = command_words(environment)
    return words[2] if words[1:2] == [command] and len(words) > 2 and not words[2].startswith("-") else ""


LONGER = 4
"""Times the budget of a race whose answer is open."""


def longer_race(words: Sequence[str], folder: Path | str) -> str:
    """The command of a race with four times its budget, which goes on in its folder; empty where it had no budget.

    >>> longer_race(["hubscout", "race", "pets/", "--budget", "30s", "--overwrite"], "run")
    'hubscout race pets/ --budget 2min --out run'
    """
    if "race" not in words[1:2]:
        return ""
    found, seconds, rest = ["hubscout"], None, iter(words[1:])
    for word in rest:
        name, _, value = word.partition("=")
        if name in ("--budget", "--out", "-o"):
            value = value or next(rest, "")
            seconds = parse_seconds(value) if name == "--budget" else seconds
        elif word not in ("--overwrite", "--resume"):
            found.append(word)
    if seconds is None:
        return ""
    longer = LONGER * seconds
    budget = f"{longer / 60:g}min" if longer % 60 == 0 else f"{longer:g}s"
    return shell_command([*found, "--budget", budget, "--out", str(folder)])


def data_argument(ranking: Ranking) -> str:
    """What the command line calls the data: the argument of the run, its source, or a placeholder."""
    if named := data_of_command(ranking.environment, "rank"):
        return named
    told = _source_arguments(ranking)
    return next((place for name in ("source", "folder", "url") if (place := _one_place(told.get(name)))), "DATA")


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
    """How the data was read, as options of `hubscout tune`: columns, kind and place of images, and what was skipped."""
    told = _source_arguments(ranking)
    options: list[str] = []
    for name in ("image", "image_root", "text", "label", "kind", "split", "group"):
        value = told.get(name)
        for part in [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []:
            options += [f"--{name.replace('_', '-')}", str(part)]
    return [*options, *(word for word in command_words(ranking.environment) if word == "--skip-bad")]


def _source_arguments(ranking: Ranking) -> Mapping[str, Any]:
    arguments = (ranking.task.source or {}).get("arguments")
    return arguments if isinstance(arguments, Mapping) else {}


def shell_command(words: Sequence[str]) -> str:
    r"""The words quoted for a shell: on one line, or with each option on a line of its own where that is too long.

    >>> shell_command(["hubscout", "rank", "my pets/", "--limit", "2k"])
    "hubscout rank 'my pets/' --limit 2k"
    >>> print(shell_command(["hubscout", "tune", "pets/", "--model", "timm/" + "x" * 60, "--out", "my-model/"]))
    hubscout tune pets/ \
      --model timm/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx \
      --out my-model/
    """
    whole = shlex.join(words)
    if len(whole) <= LONGEST_COMMAND:
        return whole
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("-") and len(word) > 1:
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(shlex.join(line) for line in lines if line)
