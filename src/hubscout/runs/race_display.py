"""Where a race stands, in a terminal: a table of its arms, a sentence, a line for each thing that happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubscout.metric_texts import metric_text
from hubscout.runs.race_record import Arm, Look, RaceRecord
from hubscout.runs.texts import LONGEST_IN_A_LINE, names_by_model, short_name

if TYPE_CHECKING:
    from rich.table import Table

MOST_ARMS = 16
"""Rows of the table on a terminal: those that stand best."""
STYLES = {"racing": "", "waiting": "dim", "finishing": "bold green", "winner": "bold green", "failed": "red"}


def race_table(record: RaceRecord) -> Table:
    """The arms that stand best, with what each rung showed of them."""
    from rich.table import Table
    from rich.text import Text

    rungs = rung_titles(record)
    title = race_status(record) + (f" Held-out {record.metric}." if record.metric else "")
    table = Table(header_style="bold", title=title, title_justify="left", title_style="")
    for head in ("model", "rate", *rungs, "state"):
        table.add_column(head, justify="left" if head in ("model", "state") else "right", no_wrap=head != "model")
    order = record.leaderboard()
    names = names_by_model(arm.model for arm in order)
    for arm in order[:MOST_ARMS]:
        seen, state = record.seen(arm), record.state(arm)
        cells = [rung_cell(seen.get(rung), record.metric) for rung in range(len(rungs))]
        table.add_row(Text(names[arm.model]), f"{arm.learning_rate:g}", *cells, state, style=STYLES.get(state, "dim"))
    if len(order) > MOST_ARMS:
        table.add_row(f"… {len(order) - MOST_ARMS} more", *[""] * (2 + len(rungs)), style="dim")
    return table


def rung_titles(record: RaceRecord) -> list[str]:
    """What the rungs are called; judging finalists on several folds is one more."""
    titles = [f"{steps} steps" for steps in record.rungs]
    return [*titles, "all folds"] if any(look.rung >= len(titles) for look in record.looks) else titles


def rung_cell(look: Look | None, metric: str) -> str:
    """What a rung showed of an arm, in a cell."""
    return "" if look is None else "failed" if look.metric is None else metric_text(metric, look.metric)


def race_status(record: RaceRecord) -> str:
    """Where a race stands, in a sentence."""
    if not record.arms:
        return "The evidence of the models is being found."
    first = "" if record.final is None else f"{short_name(record.final.model)} at {record.final.learning_rate:g}"
    if record.complete:
        return f"The race is over: {first}."
    if record.deploy:
        return f"{first} has won; {short_name(record.deploy)} is being tuned."
    if first:
        return f"{first} leads and is tuned to its end."
    if not record.rungs_run:
        best = short_name(record.arms[0].model)
        return f"There is no time to compare models by training: {best} is first by evidence."
    before = max(record.going_on, default=-1)
    rung = next((rung for rung in record.rungs_run if rung > before), len(record.rungs) - 1)
    racing = len(record.going_on[before]) if before in record.going_on else len(record.arms)
    if rung < len(record.widths):
        racing = min(racing, record.widths[rung]) or racing
    done = sum(look.rung == rung for look in record.looks)
    return f"Rung {rung + 1} of {len(record.rungs)}, {record.rungs[rung]} steps: {done} of {racing} arms seen."


def called(arm: Arm, record: RaceRecord) -> str:
    """An arm by the name that lines of progress have for its model."""
    names = names_by_model((one.model for one in (*record.arms, arm)), room=LONGEST_IN_A_LINE)
    return f"{names[arm.model]} at {arm.learning_rate:g}"


def race_line(line: Mapping[str, Any], record: RaceRecord) -> str:
    """What is printed of a line of `race.jsonl` where there is no terminal; empty for nothing."""
    event = line.get("event")
    if event == "look":
        look = record.looks[-1]
        # The steps are those of the rung, which an arm that failed did not come to.
        told = look.failure or f"{rung_cell(look, record.metric)} after {look.steps} steps"
        return f"{called(look.arm, record)}: {told}"
    if event == "rung":
        stay = record.going_on[int(line["rung"])]
        first = f", {called(stay[0], record)} first" if stay else ""
        return f"after {line['steps']} steps {len(stay)} of {len(line['arms'])} arms go on{first}"
    if event == "lesson":
        arm = Arm(**line["arm"])
        said = line["failure"] or f"{metric_text(record.metric, line['metric'])} after {line['steps']} steps"
        return f"{called(arm, record)}, to be deployed: {said}"
    if event == "note":
        return str(line["text"])
    return race_status(record) if event in ("race", "winner", "deploy") else ""
