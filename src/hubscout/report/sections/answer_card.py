"""The answer first."""

from __future__ import annotations

from hubscout.report.answer import Answer, answer, budget_words, cost_words, next_command
from hubscout.report.markup import Markup, join, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.race_answer import race_answer
from hubscout.report.sections.section import Section, copyable
from hubscout.report.sections.tuning_answer import tuning_answer
from hubscout.report.view import View
from hubscout.runs.paired_comparison import NOTHING_EXPLAINED
from hubscout.runs.row import Row
from hubscout.runs.texts import human_count, human_probability

NAMED_TIES = 4


def answer_section(run: Run) -> Section | None:
    """What to start from, what else would do, and the command to run next."""
    if run.race is not None:
        return race_answer(run, run.race)
    if run.ranking is None:
        return tuning_answer(run) if run.tuning else None
    view = run.view
    if view is None:
        return Section(
            anchor="answer",
            title="No model could be ranked",
            short="Answer",
            body=tag("p", "Every model failed; the reasons are below."),
        )
    found = answer(run.ranking)
    next_step = []
    if found.explained:
        command = next_command(run.ranking, found)
        next_step = [tag("p", "Run next", class_="label"), copyable(command, "run next")]
    return Section(
        anchor="answer",
        title="The answer",
        short="Answer",
        body=join(
            [
                tag("p", *sentences(view, found), class_="answer"),
                _facts(view, found),
                *(tag("p", caveat, class_="caveat") for caveat in found.caveats),
                *next_step,
            ]
        ),
    )


def _model(view: View, row: object) -> Markup:
    identifier = getattr(row, "identifier", str(row))
    return tag("strong", view.short.get(identifier, identifier), class_="model", title=identifier)


def _models(view: View, rows: list[object], more: int = 0) -> Markup:
    names: list[object] = [_model(view, row) for row in rows]
    if more:
        names.append(f"{more} more")
    if len(names) == 1:
        return join(names)
    return join([join(names[:-1], ", "), " and ", names[-1]])


def sentences(view: View, found: Answer) -> list[object]:
    """The answer in words, for a paragraph."""
    if not found.explained:
        return [NOTHING_EXPLAINED]
    parts: list[object] = ["Start from ", _model(view, found.best), f"{_costs(found.best)}. "]
    if len(found.tied) == 1 and found.cheapest is not None:
        parts += [_model(view, found.cheapest), " is statistically tied with it and cheaper"]
        parts += [f"{_costs(found.cheapest)}. "]
    elif found.tied:
        shown = list(found.tied[:NAMED_TIES])
        are = "is" if len(found.tied) == 1 else "are"
        parts += [_models(view, [*shown], len(found.tied) - len(shown)), f" {are} statistically tied with it. "]
        if found.cheapest is not None:
            parts += ["The cheapest of these is ", _model(view, found.cheapest), f"{_costs(found.cheapest)}. "]
    if found.small is not None and found.limit is not None:
        parts += [f"Under {budget_words(found.limit)} take ", _model(view, found.small)]
        parts += [", taught by ", _models(view, [*found.teachers]), "."] if found.teachers else ["."]
    dropped = sum(row.dropped is not None for row in view.rows)
    if dropped and len(view.ranking.compared) == 1:
        parts.append("The others were dropped on the way. " if dropped > 1 else "The other was dropped on the way. ")
    return parts


def _costs(row: Row) -> str:
    words = cost_words(row)
    return f" ({words})" if words else ""


def _facts(view: View, found: Answer) -> Markup:
    best, ranking = found.best, view.ranking
    facts: list[tuple[str, str, str]] = []
    for expected in best.expected:
        value, interval = str(expected).split(" ", 1)
        told = f"{interval}, guessing {expected.words(expected.guess)}"
        facts.append((f"{expected.heading} on samples left out", value, told))
    if best.gain is not None:
        facts.append(("Gain over base rates", f"{best.gain:+.3f}", "nats per sample"))
    if found.explained:
        error = f"± {best.standard_error:.4f}" if best.standard_error is not None else ""
        facts.append((view.metric, f"{best.score:.4f}", error))
        if best.p_best is not None and len(ranking.compared) > 1:
            facts.append(("P(best)", human_probability(best.p_best), f"among {len(ranking.compared)} models"))
        if best.params:
            work = f"{human_count(best.flops)} FLOPs per sample" if best.flops else ""
            facts.append(("Parameters", human_count(best.params), work))
    return tag(
        "dl",
        *(tag("div", tag("dt", name), tag("dd", value, tag("small", note))) for name, value, note in facts),
        class_="facts",
    )
