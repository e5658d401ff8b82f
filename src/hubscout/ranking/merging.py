"""Rankings of the same question, made apart, as one: on several machines, or of one list of models after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hubscout.errors import RunError
from hubscout.ranking.journal import differences
from hubscout.runs.ranking import Ranking
from hubscout.runs.row import Row


def merge_rankings(rankings: Sequence[Ranking]) -> Ranking:
    """One ranking of all the models of several rankings.

    Args:
        rankings: two or more, of the same data with the same settings.

    Returns:
        The ranking with every model once: of two rows of a model the one from more samples, else the later one.
        Probabilities are those among all models. A model that failed in one run and was ranked in another is ranked.

    Raises:
        RunError: they answer different questions, or a metric compares the models of a run with each other.

    Example:
        >>> merge_rankings([Ranking.load("a/"), Ranking.load("b/")]).save("c/")  # doctest: +SKIP

    """
    from hubscout.metrics import METRICS

    if len(rankings) < 2:
        raise RunError(f"Two rankings or more can be merged; {len(rankings)} came.")
    first = rankings[0]
    for number, other in enumerate(rankings[1:], start=2):
        if found := differences(other, first.task.fingerprint, first.settings):
            raise RunError(f"Ranking {number} answers another question than the first ({'; '.join(found)}).")
    together = [name for name in first.metrics if METRICS[name].combine is not None]
    if together:
        raise RunError(
            f"The metric {together[0]!r} compares the models of one run with each other: rank them together instead."
        )
    rows: dict[str, Row] = {}
    for row in (row for ranking in rankings for row in ranking):
        if row.identifier not in rows or row.n >= rows[row.identifier].n:
            rows[row.identifier] = row
    failures = {one.identifier: one for ranking in rankings for one in ranking.failures if one.identifier not in rows}
    notes = tuple(dict.fromkeys(note for ranking in rankings for note in ranking.task.notes))
    return replace(
        first,
        task=replace(first.task, notes=notes),
        rows=tuple(rows.values()),
        failures=tuple(failures.values()),
        stages=(),
        seconds=sum(ranking.seconds for ranking in rankings),
        complete=all(ranking.complete for ranking in rankings),
    )
