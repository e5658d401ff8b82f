"""How well a tuned model does by class, label, type of entity or number, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hubscout.report.markup import Markup, details, join, scrolling, table, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import Section
from hubscout.report.tuning_runs import evaluated, whose
from hubscout.runs.evaluation_record import EvaluationRecord, TargetOutcome
from hubscout.tasks.kinds import kind_of

ALL_SHOWN = 20
WORST_SHOWN = 12
"""Of more targets than `ALL_SHOWN`; the others are folded away."""
Column = tuple[str, Callable[[TargetOutcome], object]]


def outcome_by_target_section(run: Run) -> Section | None:
    """A table with one line per target."""
    chosen = evaluated(run.tuning)
    if chosen is None or chosen.evaluation is None or not chosen.evaluation.targets:
        return None
    found = chosen.evaluation
    kind = kind_of(found.kind)
    entities = kind.rows_are_words and [one.name for one in found.targets] != list(found.target_names)
    noun, plural = ("type of entity", "types of entities") if entities else (kind.noun, kind.plural)
    measure, heading, columns = _columns(found, "Entities" if entities else kind.unit.capitalize())
    order = sorted(found.targets, key=lambda one: (measure(one) is None, measure(one) or 0.0, one.name))
    lead = f"{found.samples:,} {found.split} samples{whose(run.tuning, chosen)}, the worst first."
    parts = [_table(noun, columns, order if len(order) <= ALL_SHOWN else order[:WORST_SHOWN])]
    if len(order) > ALL_SHOWN:
        lead += f" These are the worst {WORST_SHOWN} of {len(order)} {plural}."
        parts.append(details(f"All {len(order)} {plural}", _table(noun, columns, order)))
    return Section(anchor="by-target", title=f"{heading} by {noun}", short=f"By {noun}", lead=lead, body=join(parts))


def _columns(
    found: EvaluationRecord, unit: str
) -> tuple[Callable[[TargetOutcome], float | None], str, Sequence[Column]]:
    """What the targets are sorted by, what that is called, and the columns."""
    kind = kind_of(found.kind)
    if kind.is_real_valued:
        return (
            lambda one: one.r2,
            "R²",
            [("R²", lambda one: _number(one.r2)), ("RMSE", lambda one: "–" if one.rmse is None else f"{one.rmse:.4g}")],
        )
    shares: list[Column] = [("Precision", lambda one: _number(one.precision)), ("F1", lambda one: _number(one.f1))]
    count: Column = (unit, lambda one: f"{one.seen:,}")
    if kind.classes_of_samples:
        accuracy: Column = ("Accuracy", lambda one: _share(one.recall))
        return lambda one: one.recall, "Accuracy", [accuracy, count, *shares]
    recall: Column = ("Recall", lambda one: _number(one.recall))
    return lambda one: one.f1, "F1", [("F1", lambda one: _share(one.f1)), count, shares[0], recall]


def _table(noun: str, columns: Sequence[Column], targets: Sequence[TargetOutcome]) -> Markup:
    rows = [(one.name, *(make(one) for _, make in columns)) for one in targets]
    heads = (noun.capitalize(), *(name for name, _ in columns))
    return scrolling(table(heads, rows, class_="outcomes"), f"By {noun}")


def _share(value: float | None) -> Markup:
    bar = tag("i", class_="share", style=f"--share:{value:.2f}", aria_hidden="true") if value is not None else ""
    return join([bar, _number(value)])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
