"""Two runs side by side, or many in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlencode

from hubscout.evaluation import weighted_tau
from hubscout.report.charts.chart import Chart, Frame, drawing
from hubscout.report.charts.label_placement import text_width
from hubscout.report.markup import TAU, Markup, breakable, details, join, scrolling, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.tuning import tuning_section
from hubscout.runs.ranking import Ranking
from hubscout.runs.row import Row
from hubscout.runs.texts import listing, short_names, shorten
from hubscout.runs.tuning_record import TuningRun
from hubscout.serve.pages import address, page
from hubscout.serve.run_facts import NONE, RESULTS, Result, differing_settings, run_facts

MOST_DRAWN = 24
LEAST_FOR_TAU = 3
NUMBERS = ("Score", "Error")
ALWAYS_DIFFER = frozenset({"Time", "Started, UTC"})
ALWAYS_SHOWN = ALWAYS_DIFFER | {"Task", "Training samples", "Metrics", "Models", "Best"}
ALWAYS_SHOWN |= {"Tuned model", "Methods", "Teachers"}


def compare_page(names: tuple[str, str], runs: tuple[Run, Run]) -> str:
    """What is the same, what differs, and how the models or the methods fared in each."""
    first, second = runs
    parts: list[object] = [_facts(names, runs)]
    if first.ranking is not None and second.ranking is not None:
        parts += _rankings(names, first.ranking, second.ranking)
    elif (first.ranking is None) != (second.ranking is None) and not (first.tuning and second.tuning):
        words = "One of these runs is a ranking and the other a tuning, so only their settings can be compared."
        parts.append(tag("p", words, class_="note"))
    if first.tuning and second.tuning:
        labels = _labels(names)
        both = []
        for label, opened in zip(labels, runs, strict=True):
            for run in opened.tuning:
                notes = tuple(f"{label}: {note}" for note in run.notes)
                # The lead says which model it is, where a run has only one.
                model = run.model if len({one.model for one in opened.tuning}) > 1 else ""
                both.append(replace(run, method=f"{run.method} ({label})", model=model, notes=notes))
        found = tuning_section(Run(tuning=tuple(both)))
        lead = " ".join(_lead(label, opened.tuning) for label, opened in zip(labels, runs, strict=True))
        parts.append(Markup(str(replace(found, lead=lead))) if found is not None else "")
    heading = join([breakable(names[0]), tag("span", " and ", class_="between"), breakable(names[1])])
    return page(f"{names[0]} and {names[1]}", *parts, download(names), heading=heading)


def _lead(label: str, runs: Sequence[TuningRun]) -> str:
    """What a run tuned and what taught it."""
    models = short_names(list(dict.fromkeys(run.model for run in runs if run.model)))
    teachers = short_names(list(dict.fromkeys(teacher for run in runs for teacher in run.teachers)))
    words = f"{label}: {listing(models) or 'a model'}"
    return f"{words}, taught by {listing(teachers)}." if teachers else f"{words}, without teachers."


def download(names: Sequence[str]) -> Markup:
    """The link to the comparison as CSV."""
    link = f"/compare.csv?{urlencode([('run', name) for name in names])}"
    return tag("p", tag("a", "Download as CSV", href=link, class_="button"), class_="actions")


def table_page(names: Sequence[str], found: Sequence[Result]) -> str:
    """Many runs in one table: what came out, and the settings in which they differ."""
    settings = differing_settings(found)
    several = len({(one.task, one.metric) for one in found}) > 1
    lead = "Scores of different tasks or metrics cannot be compared with each other." if several else "Sorted by score."
    looks = {"Run": "names"} | dict.fromkeys(NUMBERS, "number")
    shown = [place for place, _ in enumerate(RESULTS) if any(one.cells[place] for one in found)]
    heads = []
    for title in (*(RESULTS[place] for place in shown), *settings):
        button = tag("button", title, tag("i", aria_hidden="true"), type="button")
        heads.append(tag("th", button, scope="col", aria_sort="none", class_=looks.get(title)))
    table = tag(
        "table",
        tag("thead", tag("tr", *heads)),
        tag("tbody", *(_line(one, shown, settings) for one in found)),
        class_="models compared sortable",
    )
    same = "" if settings else tag("p", "All settings are the same.", class_="note")
    lead = tag("p", f"{lead} Click a heading to sort by it.", class_="lead")
    content = tag("section", lead, scrolling(table, "Runs"), same, class_="close")
    return page(f"{len(names)} runs compared", content, download(names))


def _line(one: Result, shown: Sequence[int], settings: Sequence[str]) -> Markup:
    """A run in the columns of `RESULTS` at the places `shown`, then in those of the settings."""
    run = tag("th", tag("a", breakable(one.run), href=address("/run", one.run)), scope="row", data_value=one.run)
    results: list[Markup] = []
    for place in shown[1:]:
        cell = one.cells[place]
        if RESULTS[place] in NUMBERS:
            text = f"{float(cell):.4f}" if cell else NONE
            results.append(tag("td", text, class_="number", data_value=cell or None))
        else:
            results.append(_cell(cell))
    return tag("tr", run, *results, *(_cell(one.settings.get(key, "")) for key in settings))


def _cell(value: str) -> Markup:
    return tag("td", breakable(value or NONE), data_value=value or None)


def _labels(names: tuple[str, str]) -> tuple[str, str]:
    short = tuple(name.rpartition("/")[2] for name in names)
    return (short[0], short[1]) if short[0] != short[1] else names


def _facts(names: tuple[str, str], runs: tuple[Run, Run]) -> Markup:
    told = [run_facts(run) for run in runs]
    shown: list[Markup] = []
    same: list[Markup] = []
    for key in dict.fromkeys([*told[0], *told[1]]):
        first, second = (facts.get(key, NONE) for facts in told)
        differs = first != second and key not in ALWAYS_DIFFER
        row = tag(
            "tr",
            tag("th", key, tag("span", "differs", class_="badge") if differs else "", scope="row"),
            *(tag("td", breakable(value)) for value in (first, second)),
            class_="differs" if differs else None,
        )
        (shown if differs or key in ALWAYS_SHOWN else same).append(row)
    links = (tag("th", tag("a", breakable(name), href=address("/run", name)), scope="col") for name in names)
    head = tag("thead", tag("tr", tag("td"), *links))
    table = tag("table", head, tag("tbody", *shown), class_="facts-table", id="facts")
    more = tag("table", head, tag("tbody", *same), class_="facts-table")
    return tag(
        "section",
        tag("h2", "What was run"),
        scrolling(table, "What was run"),
        details(f"{len(same)} more settings, the same in both", more) if same else "",
        class_="close",
    )


def _rankings(names: tuple[str, str], first: Ranking, second: Ranking) -> list[object]:
    """The models of two rankings: how far their orders agree, who changed places, and every rank and score."""
    same_metric, same_data = first.metrics[0] == second.metrics[0], first.task.fingerprint == second.task.fingerprint
    here, there = ({row.identifier: row for row in ranking.rows} for ranking in (first, second))
    order = list(dict.fromkeys([*here, *there]))
    short = dict(zip(order, short_names(order), strict=True))
    shared = [name for name in here if name in there]
    lead: list[object] = ["No model is in both runs."]
    if shared:
        lead = [f"{len(shared)} of {len(order)} models {'is' if len(shared) == 1 else 'are'} in both runs."]
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
    body = []
    for name in order:
        rows = [here.get(name), there.get(name)]
        cells = ["–" if row is None else str(row.rank) for row in rows] + [_score(row) for row in rows]
        if same_metric and same_data:
            cells.append(f"{there[name].score - here[name].score:+.4f}" if name in shared else "–")
        title = tag("th", tag("span", breakable(short[name]), title=name), scope="row")
        best = "best" if any(row is not None and row.rank == 1 for row in rows) else None
        body.append(tag("tr", title, *(tag("td", cell, class_="number") for cell in cells), class_=best))
    head = [tag("th", "Model", scope="col", class_="names")]
    head += [tag("th", words, scope="col", class_="number") for words in heads]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_="models compared", id="models")
    content: list[object] = [tag("h2", "Models"), tag("p", *lead, class_="lead")]
    if len(shared) > 1:
        content.append(_slopes(labels, [(short[name], here[name].rank, there[name].rank) for name in shared]))
    return [tag("section", *content, scrolling(table, "Models of both runs"))]


def _score(row: Row | None) -> str:
    if row is None:
        return "–"
    error = tag("small", f"± {row.standard_error:.4f}") if row.standard_error is not None else ""
    return join([f"{row.score:.4f} ", error])


def _slopes(labels: tuple[str, str], models: Sequence[tuple[str, int, int]]) -> Markup:
    """Ranks among the shared models, a line per model: lines that cross are models that changed places."""
    drawn = list(models)[:MOST_DRAWN]
    height = 50 + 27 * len(drawn)
    orders = (sorted(drawn, key=lambda model: model[1]), sorted(drawn, key=lambda model: model[2]))
    places = [{name: place for place, (name, *_) in enumerate(order)} for order in orders]

    def draw(frame: Frame) -> Markup:
        frame = replace(frame, height=height)
        longest = 15 if frame.narrow else 40
        widest = max(text_width(shorten(name, longest), frame.font) for name, *_ in drawn)
        left, right = widest + 34, frame.width - widest - 34
        step = (frame.height - 44) / max(len(drawn), 1)
        parts = [
            tag("text", shorten(labels[0], longest), x=left, y=10, class_="end axis-title"),
            tag("text", shorten(labels[1], longest), x=right, y=10, class_="axis-title"),
        ]
        for name, *ranks in drawn:
            y = [38 + step * places[side][name] for side in (0, 1)]
            moved = "same" if places[0][name] == places[1][name] else "moved"
            short = shorten(name, longest)
            parts.append(
                tag(
                    "g",
                    tag("path", d=f"M{left:.1f} {y[0]:.1f}L{right:.1f} {y[1]:.1f}", class_="slope"),
                    tag("circle", cx=left, cy=y[0], r=3.5),
                    tag("circle", cx=right, cy=y[1], r=3.5),
                    tag("text", f"{short}  {ranks[0]}", x=left - 9, y=y[0], class_="end"),
                    tag("text", f"{ranks[1]}  {short}", x=right + 9, y=y[1]),
                    class_=f"model-slope {moved}",
                )
            )
        return drawing(frame, *parts, label=f"Ranks in {labels[0]} and in {labels[1]}; the table below has them")

    caption = "Ranks of the models that both runs have."
    if len(models) > MOST_DRAWN:
        caption += f" The first {MOST_DRAWN} of {len(models)} are drawn."
    return Chart(draw=draw, caption=caption, wide=Frame(width=880, height=height)).html()
