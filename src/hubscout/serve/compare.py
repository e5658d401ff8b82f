"""Two runs side by side, or many in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from hubscout.evaluation import weighted_tau
from hubscout.metric_texts import metric_text
from hubscout.report.charts.chart import Chart, Frame, drawing
from hubscout.report.charts.label_placement import text_width
from hubscout.report.markup import TAU, Markup, Section, fill, join, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.tuning_sections import tuning_section
from hubscout.runs.ranking import Ranking
from hubscout.runs.row import Row
from hubscout.runs.texts import listing, names_by_model, shorten
from hubscout.serve.pages import page
from hubscout.serve.run_facts import NONE, RESULTS, Result, differing_settings, run_facts

MOST_DRAWN = 24
LEAST_FOR_TAU = 3
LOOKS = {"Run": "names", "Score": "number", "Error": "number"}
"""Columns that are no plain text."""
ALWAYS_DIFFER = frozenset({"Time", "Started, UTC"})
ALWAYS_SHOWN = ALWAYS_DIFFER | {"Task", "Training samples", "Metrics", "Models", "Best"}
ALWAYS_SHOWN |= {"Tuned model", "Methods", "Teachers"}


def compare_page(names: tuple[str, str], runs: tuple[Run, Run]) -> str:
    """What is the same, what differs, and how the models or the methods fared in each."""
    first, second = runs
    shown, same = _facts(runs)
    of_two_kinds = (first.ranking is None) != (second.ranking is None) and not (first.tuning and second.tuning)
    note = "One of these runs is a ranking and the other a tuning, so only their settings can be compared."
    return page(
        "compare.html",
        f"{names[0]} and {names[1]}",
        names=names,
        shown=shown,
        same=same,
        models=None
        if first.ranking is None or second.ranking is None
        else _rankings(names, first.ranking, second.ranking),
        note=note if of_two_kinds else "",
        tuning=_tunings(names, runs) if first.tuning and second.tuning else None,
        query=_query(names),
    )


def _query(names: Sequence[str]) -> str:
    return urlencode([("run", name) for name in names])


def _tunings(names: tuple[str, str], runs: tuple[Run, Run]) -> Section | None:
    """The tunings of both runs in one section; methods and notes say whose they are."""
    both, leads = [], []
    for label, opened in zip(_labels(names), runs, strict=True):
        models = listing([*names_by_model(run.model for run in opened.tuning if run.model).values()])
        teachers = listing([*names_by_model(teacher for run in opened.tuning for teacher in run.teachers).values()])
        taught = f"taught by {teachers}" if teachers else "without teachers"
        leads.append(f"{label}: {models or 'a model'}, {taught}.")
        for run in opened.tuning:
            notes = tuple(f"{label}: {note}" for note in run.notes)
            # The lead says which model it is, where a run has only one.
            model = run.model if len({one.model for one in opened.tuning}) > 1 else ""
            both.append(replace(run, method=f"{run.method} ({label})", model=model, notes=notes))
    found = tuning_section(Run(tuning=tuple(both)))
    return None if found is None else replace(found, lead=" ".join(leads))


def table_page(names: Sequence[str], found: Sequence[Result]) -> str:
    """Many runs in one table: what came out, and the settings in which they differ."""
    settings = differing_settings(found)
    several = len({(one.task, one.metric) for one in found}) > 1
    lead = "Scores of different tasks or metrics cannot be compared with each other." if several else "Sorted by score."
    shown = [place for place, _ in enumerate(RESULTS) if any(one.cells[place] for one in found)]
    place = shown.index(RESULTS.index("Metric")) if RESULTS.index("Metric") in shown else None

    def told(cells: Sequence[str], number: str) -> str:
        return metric_text("" if place is None else cells[place], float(number))

    return page(
        "results.html",
        f"{len(names)} runs compared",
        lead=lead,
        heads=[*(RESULTS[place] for place in shown), *settings],
        rows=[
            [*(one.cells[place] for place in shown), *(one.settings.get(key, "") for key in settings)] for one in found
        ],
        looks=LOOKS,
        told=told,
        same=not settings,
        query=_query(names),
    )


def _labels(names: tuple[str, str]) -> tuple[str, str]:
    short = tuple(name.rpartition("/")[2] for name in names)
    return (short[0], short[1]) if short[0] != short[1] else names


Fact = tuple[str, tuple[str, str], bool]
"""A name, its values in both runs, and whether they differ."""


def _facts(runs: tuple[Run, Run]) -> tuple[list[Fact], list[Fact]]:
    """What to show of both runs, and the settings that are the same."""
    told = [run_facts(run) for run in runs]
    shown: list[Fact] = []
    same: list[Fact] = []
    for key in dict.fromkeys([*told[0], *told[1]]):
        first, second = (facts.get(key, NONE) for facts in told)
        differs = first != second and key not in ALWAYS_DIFFER
        (shown if differs or key in ALWAYS_SHOWN else same).append((key, (first, second), differs))
    return shown, same


def _rankings(names: tuple[str, str], first: Ranking, second: Ranking) -> dict[str, Any]:
    """The models of two rankings: how far their orders agree, who changed places, and every rank and score."""
    same_metric, same_data = first.metrics[0] == second.metrics[0], first.task.fingerprint == second.task.fingerprint
    here, there = ({row.identifier: row for row in ranking.rows} for ranking in (first, second))
    short = names_by_model([*here, *there])
    shared = [name for name in here if name in there]
    lead: list[object] = ["No model is in both runs."]
    if shared:
        lead = [f"{len(shared)} of {len(short)} models {'is' if len(shared) == 1 else 'are'} in both runs."]
    if len(shared) >= LEAST_FOR_TAU:
        tau = weighted_tau([here[name].score for name in shared], [there[name].score for name in shared])
        lead += [" ", TAU, f" of the two orders is {tau:.3f} (1: the same, 0: unrelated)."]
    if not (same_metric and same_data):
        why = "data is not the same" if same_metric else "metrics differ"
        lead.append(f" The {why}, so compare ranks, not scores.")
    labels = _labels(names)
    heads = [f"#, {label}" for label in labels]
    heads += [f"{ranking.metrics[0]}, {label}" for label, ranking in zip(labels, (first, second), strict=True)]
    heads += ["Change"] if same_metric and same_data else []
    rows = []
    for name in short:
        found = [here.get(name), there.get(name)]
        cells: list[object] = ["–" if row is None else str(row.rank) for row in found]
        cells += [_score(row) for row in found]
        if same_metric and same_data:
            cells.append(f"{there[name].score - here[name].score:+.4f}" if name in shared else "–")
        rows.append((name, short[name], cells, any(row is not None and row.rank == 1 for row in found)))
    moves = [(short[name], here[name].rank, there[name].rank) for name in shared]
    return {
        "lead": join(lead),
        "slopes": _slopes(labels, moves) if len(shared) > 1 else "",
        "heads": heads,
        "rows": rows,
    }


def _score(row: Row | None) -> str:
    if row is None:
        return "–"
    error = tag("small", f"± {row.standard_error:.4f}") if row.standard_error is not None else ""
    return join([f"{row.score:.4f} ", error])


def _slopes(labels: tuple[str, str], models: Sequence[tuple[str, int, int]]) -> Markup:
    """Ranks among the shared models, a line per model: lines that cross are models that changed places."""
    drawn = list(models)[:MOST_DRAWN]
    height = 50 + 27 * len(drawn)
    sides = [sorted(drawn, key=lambda model: model[1]), sorted(drawn, key=lambda model: model[2])]
    lines = [(*model, [side.index(model) for side in sides]) for model in drawn]

    def draw(frame: Frame) -> Markup:
        frame = replace(frame, height=height)
        longest = 15 if frame.narrow else 40
        widest = max(text_width(shorten(name, longest), frame.font) for name, *_ in drawn)
        places = {"left": widest + 34, "right": frame.width - widest - 34, "step": (height - 44) / max(len(drawn), 1)}
        told = {"labels": labels, "models": lines, "longest": longest, "shorten": shorten}
        parts = fill("slopes.svg", "hubscout.serve", **places, **told)
        return drawing(frame, parts, label=f"Ranks in {labels[0]} and in {labels[1]}; the table below has them")

    caption = "Ranks of the models that both runs have."
    if len(models) > MOST_DRAWN:
        caption += f" The first {MOST_DRAWN} of {len(models)} are drawn."
    return Chart(draw=draw, caption=caption, wide=Frame(width=880, height=height)).html()
