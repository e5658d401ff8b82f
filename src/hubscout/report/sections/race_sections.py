"""A race: who won and what was spent, learning curves by arm, and the order of the models before and after."""

from __future__ import annotations

from hubscout.metric_texts import metric_text
from hubscout.report.answer import command_words, longer_race
from hubscout.report.charts.chart import Chart, metric_ticks
from hubscout.report.charts.lines import COLOURS, Curve, lines
from hubscout.report.markup import (
    Markup,
    Section,
    breakable,
    copyable,
    definitions,
    join,
    scrolling,
    table,
    tag,
)
from hubscout.report.saved_run import Run
from hubscout.report.sections.tuning_sections import predict_command, result_facts
from hubscout.runs.race_display import race_status, rung_cell, rung_titles
from hubscout.runs.race_record import Arm, RaceRecord, last_comparison, more_time_may_tell
from hubscout.runs.run_folder import RACE_DEPLOYED, RACE_WINNER
from hubscout.runs.texts import counted, human_probability, human_seconds, names_by_model, short_names
from hubscout.runs.tuning_record import TuningRun

FEW_ARMS = 12
"""So many are listed below their curves; more are a table that opens."""
MOST_NAMED = 25
"""Models that have their names in the chart of places."""
STAGES = {
    "evidence": "Evidence of all models",
    "rungs": "Rungs: a little tuning of each arm",
    "winner": "The winner, to its end",
    "probe": "A linear probe in its place",
    "refit": "The winner again, on train and validation",
    "deploy": "The model to deploy",
}


def race_answer(run: Run, race: RaceRecord) -> Section:
    """The answer in a sentence; while the race goes on, where it stands."""
    parts: list[object] = [
        tag("p", race.answer or race_status(race), class_="answer"),
        definitions(_facts(race, _winner(run))),
    ]
    if race.seconds:
        total = sum(race.seconds.values()) or 1.0
        rows = [
            (STAGES.get(name, name), human_seconds(seconds), f"{seconds / total:.0%}")
            for name, seconds in race.seconds.items()
        ]
        parts.append(tag("div", table(("What was spent", "Time", "Share"), rows), style="margin-top:22px"))
    of_data = run.ranking.task.notes if run.ranking is not None else ()  # they stand where the data are told of
    if notes := [note for note in race.notes if note not in of_data]:
        parts += [tag("p", "Notes", class_="label"), tag("ul", *(tag("li", note) for note in notes))]
    if run.folder is not None and race.complete:
        name = RACE_DEPLOYED if race.deploy else RACE_WINNER
        model = race.deploy or (race.final.model if race.final is not None else "")
        parts.append(copyable(predict_command(run.folder / name, model), "Run next"))
        words = command_words(run.ranking.environment) if run.ranking is not None else []
        failures = run.ranking.failures if run.ranking is not None else ()
        if more_time_may_tell(race.order, failures) and (longer := longer_race(words, run.folder)):
            parts.append(copyable(longer, "More time may change the answer: the race goes on from here"))
    return Section(anchor="answer", title="The answer", short="Answer", body=join(parts))


def _winner(run: Run) -> TuningRun | None:
    return next((one for one in run.tuning if one.name == RACE_WINNER), None)


def _facts(race: RaceRecord, winner: TuningRun | None) -> list[tuple[str, str, str]]:
    facts = [] if winner is None else result_facts(winner)
    first = race.order[0] if race.order else None
    if (beside := race.beside) is not None and (winner is None or winner.best_step != 0):
        told = f"{metric_text(race.metric, beside.winner)} by the winner, on {beside.samples:,} held-out samples"
        facts.append(("Linear probe of the first by evidence", metric_text(race.metric, beside.probe), told))
    # Where the winner is a linear probe, what few steps of training had come to says nothing of it.
    if first is not None and first.metric is not None and (winner is None or winner.best_step != 0):
        whole = winner.steps if winner is not None else race.steps
        of = f" of {whole}" if whole >= first.steps else ""  # where time was short the run may have ended earlier
        value = metric_text(race.metric, first.metric)
        facts.append((f"Held-out {race.metric}", value, f"after {first.steps}{of} steps"))
    if first is not None and first.p_best is not None:
        raced = len({look.arm.model for look in race.looks})
        told = f"{counted(raced, 'model')} raced"
        compared = last_comparison(race.looks)
        told += "" if compared is None else f", compared after {compared.steps} steps"
        facts.append(("P(best once tuned)", human_probability(first.p_best), told))
    facts.append(("Arms", str(len(race.arms)), counted(len(race.looks), "look")))
    if race.seconds:
        facts.append(("Time", human_seconds(sum(race.seconds.values())), "in all"))
    return facts


def race_section(run: Run) -> Section | None:
    """How the arms went, when each was given up, and how far the evidence was right."""
    race = run.race
    if race is None or not race.looks:
        return None
    rungs = {look.rung for look in race.looks if look.metric is not None}
    drawn = len(rungs) > 1 or (bool(rungs) and _end(_winner(run), race.metric) is not None)
    parts = [tag("h3", "Learning curves"), _curves(race, run)] if drawn else []
    if len(race.arms) <= FEW_ARMS or not drawn:
        parts.append(scrolling(_table(race), "Arms of the race"))
    if len(race.order) > 1:
        parts += [tag("h3", "Places by evidence and in the race"), _places(race)]
    return Section(
        anchor="race",
        title="The race",
        short="Race",
        lead="An arm is a model with a learning rate. On each rung all arms are cooled down and judged on the same "
        "held-out samples; those with little chance of being the best are dropped, the others continue from where "
        "they are.",
        body=join(parts),
    )


def race_panel(race: RaceRecord) -> Markup:
    """The arms by rung, for a page that follows a race."""
    if not race.arms:
        return tag("p", "The evidence of the models is being found.", class_="note")
    seen = sum(look.rung < len(race.rungs) for look in race.looks)
    bar = "" if race.complete else tag("progress", value=seen, max=max(_looks_to_come(race), 1), aria_label="Looks")
    return join([bar, scrolling(_table(race), "Arms of this race")])


def _looks_to_come(race: RaceRecord) -> int:
    """About how many looks the rungs take in all; one arm in three goes on."""
    total, alive = 0, len(race.arms)
    for rung in race.rungs_run:
        total += alive
        alive = len(race.going_on[rung]) if rung in race.going_on else -(-alive // 3)
    return total


def arm_names(race: RaceRecord) -> dict[Arm, str]:
    """What the arms are called: by model and rate."""
    short = names_by_model(arm.model for arm in race.arms)
    return {arm: f"{short[arm.model]} · {arm.learning_rate:g}" for arm in race.arms}


def _curves(race: RaceRecord, run: Run) -> Markup:
    """The metric by rung; a grey curve ends at the moment at which its arm went out."""
    names = arm_names(race)
    last = max((look.rung for look in race.looks if look.rung < len(race.rungs)), default=0)
    finalists = [arm for arm in race.leaderboard() if last in race.seen(arm)][:COLOURS]
    steps = dict(enumerate(race.rungs))
    end = _end(_winner(run), race.metric)
    curves: list[Curve] = []
    for arm in reversed(race.leaderboard()):
        looks = [look for look in race.seen(arm).values() if look.rung < len(race.rungs)]
        points = [(look.rung, float(look.metric)) for look in looks if look.metric is not None]
        if arm == race.final and end is not None:
            steps[last + 1] = end[0]
            points.append((last + 1, end[1]))
        if not points:
            continue
        tips = [f"{names[arm]}\n{race.metric} {metric_text(race.metric, y)} after {steps[x]} steps" for x, y in points]
        tips[-1] += f"\n{race.state(arm)}"
        curves.append(
            Curve(
                name=names[arm],
                x=[float(x) for x, _ in points],
                y=[y for _, y in points],
                tips=tips,
                colour=finalists.index(arm) if arm in finalists else None,
                named=arm in finalists,
            )
        )
    return Chart(
        draw=lambda frame: lines(
            frame,
            curves,
            label=f"Held-out {race.metric} of {len(curves)} arms by rung",
            x_title="Steps of tuning",
            y_title=f"Held-out {race.metric}",
            y_format=metric_ticks(race.metric),
            x_format=lambda x: str(steps.get(int(x), "")) if x == int(x) else "",
            whole_x=True,
        ),
        caption="Each point is the network after a cool-down. A curve ends where its arm was dropped; grey are those "
        "that did not reach the last rung.",
        numbers=_table(race) if len(race.arms) > FEW_ARMS else None,
    ).html()


def _end(winner: TuningRun | None, metric: str) -> tuple[int, float] | None:
    """Where the winner ended: its steps and its metric on the held-out samples; a linear probe is no end of them."""
    if winner is None or winner.best_step == 0:
        return None
    found = winner.metrics.get("validation", {}).get(metric)
    return (winner.steps, found[0]) if found is not None else None


def _table(race: RaceRecord) -> Markup:
    names, titles = arm_names(race), rung_titles(race)
    # A race may begin on a later rung: those before have nothing to show.
    shown = [rung for rung in range(len(titles)) if any(rung in race.seen(arm) for arm in race.arms)]
    rows = [
        (
            tag("span", breakable(names[arm]), title=arm.model),
            *(rung_cell(race.seen(arm).get(rung), race.metric) or "–" for rung in shown),
            race.state(arm),
        )
        for arm in race.leaderboard()
    ]
    failures = {look.arm: look.failure for look in race.looks if look.failure}
    told = [tag("p", f"{names.get(arm, str(arm))}: {why}", class_="note") for arm, why in failures.items()]
    heads = ("Arm", *(titles[rung] for rung in shown), "State")
    return join([table(heads, rows, text_columns=(0, len(heads) - 1), class_="models"), *told])


def _places(race: RaceRecord) -> Markup:
    """A line per model from its place by evidence to its place in the race."""
    known = [(one, one.evidence_rank) for one in race.order if one.evidence_rank is not None]
    short = short_names([one.model for one, _ in known])
    curves, rows = [], []
    for name, (one, before) in zip(short, known, strict=True):
        moved = before - one.rank
        how = f"{abs(moved)} {'up' if moved > 0 else 'down'}" if moved else "the same"
        tip = f"{name}\n{before} by evidence, {one.rank} in the race ({how})"
        rows.append((one.model, str(before), str(one.rank), "–" if one.p_best is None else f"{one.p_best:.1%}"))
        curves.append(
            Curve(
                name=name,
                x=[0.0, 1.0],
                y=[-float(before), -float(one.rank)],
                tips=[tip, tip],
                colour=one.rank - 1 if one.rank <= COLOURS else None,
                named=one.rank <= MOST_NAMED,
            )
        )
    return Chart(
        draw=lambda frame: lines(
            frame,
            curves[::-1],
            label=f"Places of {len(curves)} models by evidence and in the race",
            x_title="By evidence, on the left; in the race, on the right",
            y_title="Place",
            x_format=lambda x: {0.0: "evidence", 1.0: "race"}.get(x, ""),
            whole_x=True,
            y_format=lambda y: f"{-y:g}" if y < 0 and y == round(y) else "",
        ),
        numbers=table(("Model", "By evidence", "In the race", "P(best)"), rows),
    ).html()
