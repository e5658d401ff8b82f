"""Which classes a tuned model takes for which."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from hubscout.report.markup import Markup, join, scrolling, table, tag
from hubscout.report.names import shorten
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import Section
from hubscout.report.tuning_runs import evaluated, whose
from hubscout.runs.evaluation_record import Confusion, EvaluationRecord
from hubscout.tasks.kinds import kind_of

MATRIX_UP_TO = 100
"""Classes; the mistakes between more of them are a list only."""
LARGE_UP_TO = 14
"""Classes whose cells have room for large numbers."""
PAIRS_SHOWN = 12
LONGEST = 24


def confusion_section(run: Run) -> Section | None:
    """The confusion matrix, and the most frequent mistakes where it is too large to see them at a glance."""
    chosen = evaluated(run.tuning)
    found = chosen.evaluation if chosen is not None else None
    if chosen is None or found is None or not found.confusions or len(found.target_names) < 2:
        return None
    width, mistakes = len(found.target_names), [one for one in found.confusions if one.true != one.predicted]
    kind = kind_of(found.kind)
    matrix = width <= MATRIX_UP_TO
    lead = f"Rows are the true {kind.plural}, columns the predicted ones{whose(run.tuning, chosen)}; numbers count "
    lead += f"{found.split} {kind.unit}. The stronger the colour, the larger the share of its row."
    parts: list[Markup] = []
    if matrix:
        parts.append(scrolling(_matrix(found), "Confusion matrix"))
    if mistakes and (width > LARGE_UP_TO or not matrix):
        parts += [tag("h3", "The most frequent mistakes")] if matrix else []
        parts.append(scrolling(_pairs(found, mistakes[:PAIRS_SHOWN]), "The most frequent mistakes"))
    if not mistakes and not matrix:
        parts.append(tag("p", "There are no mistakes.", class_="note"))
    title = "Confusion matrix" if matrix else "The most frequent mistakes"
    return Section(anchor="confusion", title=title, short="Confusion", lead=lead if matrix else "", body=join(parts))


def _matrix(found: EvaluationRecord) -> Markup:
    names, seen = found.target_names, _row_sums(found)
    counts = {(one.true, one.predicted): one.count for one in found.confusions}
    large = len(names) <= LARGE_UP_TO
    places = range(len(names))
    head = [tag("th", "True \\ predicted" if large else "True", scope="col")]
    head += [tag("th", tag("span", shorten(name, LONGEST)), scope="col", title=name) for name in names]
    body = []
    for true in places:
        cells = [tag("th", shorten(names[true], LONGEST), scope="row", title=names[true])]
        for predicted in places:
            count = counts.get((true, predicted), 0)
            if not count:
                cells.append(tag("td"))
                continue
            # The root of the share is the colour: mistakes are few, and would hardly be seen.
            share = min(1.0, count / max(seen[true], 1))
            cells.append(
                tag(
                    "td",
                    f"{count:,}",
                    style=f"--heat:{sqrt(share):.2f}",
                    class_=" ".join(_looks(true == predicted, sqrt(share))) or None,
                    title=f"{names[true]} predicted to be {names[predicted]}: {count:,} ({share:.0%})",
                )
            )
        body.append(tag("tr", *cells))
    look = "heat confusion" if large else "heat confusion small"
    return tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_=look)


def _looks(right: bool, heat: float) -> list[str]:
    return [look for look, holds in (("minus", not right), ("hot", heat > 0.55)) if holds]


def _pairs(found: EvaluationRecord, mistakes: Sequence[Confusion]) -> Markup:
    names, seen = found.target_names, _row_sums(found)
    rows = [
        (names[one.true], names[one.predicted], f"{one.count:,}", f"{one.count / max(seen[one.true], 1):.0%}")
        for one in mistakes
    ]
    heads = ("True", "Predicted", "Count", "Share of the true class")
    return table(heads, rows, text_columns=(0, 1))


def _row_sums(found: EvaluationRecord) -> list[int]:
    """How many rows each class has. Of very many classes the confusions are not all there, but the targets are."""
    if [one.name for one in found.targets] == list(found.target_names):
        return [one.seen for one in found.targets]
    sums = [0] * len(found.target_names)
    for one in found.confusions:
        sums[one.true] += one.count
    return sums
