"""What is said above and below the table of a ranking."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from hubscout.credentials import strip_credentials
from hubscout.features.backend import ONNXRUNTIME
from hubscout.runs.paired_comparison import NOTHING_EXPLAINED, failed_words
from hubscout.runs.texts import listing
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.runs.ranking import Ranking

Reason = TypeVar("Reason", bound=Hashable)
Who = TypeVar("Who")

MOST_NAMES = 8
"""In one footnote; a hub of hundreds would fill the screen with what went as expected."""


def title(ranking: Ranking) -> str:
    """What was ranked on what."""
    task = ranking.task
    n = max((row.n for row in ranking.rows), default=ranking.task.rows.get("train", 0))
    kind = kind_of(task.kind)
    return f"{task.name}: {task.kind}, {kind.count_targets(len(task.target_names))}, {n:,} training {kind.unit}"


def footnotes(ranking: Ranking, names: Mapping[str, str] | None = None, *, without: Collection[str] = ()) -> list[str]:
    """What must be said below the table. `names` are what it calls the models, `without` the columns it lacks."""
    called = dict(names or {})

    def name(identifier: str) -> str:
        return called.get(identifier) or strip_credentials(identifier)

    lines = []
    if ranking.explains_labels is False:
        lines.append(NOTHING_EXPLAINED)
    lines += _expected(ranking)
    tied = ranking.tied_with_best
    if len(tied) > 1 and ranking.explains_labels is not False:
        above = ranking.identifiers[: ranking.identifiers.index(tied[-1]) + 1]
        told_apart = [name(identifier) for identifier in above if identifier not in tied]
        # No line is drawn below the last row.
        which = "All models" if len(above) == len(ranking.rows) else "The models above the line"
        but = f", except {listing(told_apart, MOST_NAMES)}" if told_apart else ""
        lines.append(f"{which} are statistically tied with the best{but}: P(better than the best) ≥ 5%.")
    lines += [f"Dropped: {text}" for text in _dropped(ranking, name)]
    if any(row.latency_busy for row in ranking.rows) and "latency" not in without:
        lines.append("Latency with ~ was measured while the machine had other work; it may be shorter.")
    if accelerated := [name(row.identifier) for row in ranking.rows if row.backend == ONNXRUNTIME]:
        lines.append(f"Run by ONNX Runtime: {listing(accelerated, MOST_NAMES)}.")
    if ranking.failures:
        lines.append(f"{failed_words(ranking)}.")
    lines += [
        f"Failed: {listing(who)}: {reason}"
        for reason, who in _grouped((failure.reason, name(failure.identifier)) for failure in ranking.failures)
    ]
    lines += [
        f"Note: {listing(who, MOST_NAMES)}: {note}"
        for note, who in _grouped((note, name(row.identifier)) for row in ranking.rows for note in row.notes)
    ]
    if not ranking.complete:
        lines.append("Interrupted: this ranking is not complete.")
    return lines


def _expected(ranking: Ranking) -> list[str]:
    """What the metric of the task beside the score is, and what guessing gets."""
    best = next((row for row in ranking.rows if row.expected), None)
    if best is None:
        return []
    main, *others = best.expected
    text = (
        f"{main.title}: of a linear model on the frozen features, on samples left out of its fit, with a 95% interval. "
        f"Guessing gets {main.words(main.guess)}."
    )
    for other in others:
        text += f" {other.heading}: {other} for the best, {other.words(other.guess)} by guessing."
    return [text]


def _dropped(ranking: Ranking, name: Callable[[str], str]) -> list[str]:
    """A line for each subset and leader, with the probabilities."""
    found = _grouped(
        ((row.dropped.n, row.dropped.leader), (name(row.identifier), row.dropped.chance))
        for row in ranking.rows
        if row.dropped is not None
    )
    lines = []
    for (n, leader), who in found:
        each = listing([f"{short} {chance}" for short, chance in who], MOST_NAMES)
        lines.append(f"on {n:,} samples P(better than {name(leader)}) was too low: {each}.")
    return lines


def _grouped(pairs: Iterable[tuple[Reason, Who]]) -> list[tuple[Reason, list[Who]]]:
    """Those of the same reason together, in the order in which the reasons came."""
    groups: dict[Reason, list[Who]] = {}
    for reason, who in pairs:
        groups.setdefault(reason, []).append(who)
    return list(groups.items())
