"""A race that goes on, for a terminal: a table of arms by rung, and lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubscout.runs.model_names import short_names
from hubscout.runs.race_record import Arm, Look, RaceRecord

if TYPE_CHECKING:
    from rich.table import Table

MOST_ARMS = 16
"""Rows of the table on a terminal: those that stand best."""
STYLES = {"racing": "", "waiting": "dim", "finishing": "bold green", "winner": "bold green", "failed": "red"}


def race_table(record: RaceRecord, most: int = MOST_ARMS) -> Table:
    """The arms that stand best, with what each rung showed of them."""
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", title=_title(record), title_justify="left", title_style="")
    for head in ("model", "rate", *rung_titles(record), "state"):
        table.add_column(head, justify="left" if head in ("model", "state") else "right", no_wrap=head != "model")
    order = record.standing()
    names = dict(zip(order, short_names_of(record), strict=True))
    for arm in order[:most]:
        seen, state = record.seen(arm), record.state(arm)
        cells = [rung_cell(seen.get(rung)) for rung in range(len(rung_titles(record)))]
        style = STYLES.get(state, "dim")
        table.add_row(Text(names[arm]), f"{arm.learning_rate:g}", *cells, state, style=style)
    if len(order) > most:
        table.add_row(f"… {len(order) - most} more", *[""] * (2 + len(rung_titles(record))), style="dim")
    return table


def rung_titles(record: RaceRecord) -> list[str]:
    """What the rungs are called; judging finalists on several folds is one more."""
    titles = [f"{steps} steps" for steps in record.rungs]
    return [*titles, "all folds"] if any(look.rung >= len(titles) for look in record.looks) else titles


def rung_cell(look: Look | None) -> str:
    """What a rung showed of an arm, in a cell."""
    if look is None:
        return ""
    return "failed" if look.metric is None else f"{look.metric:.4f}"


def short_names_of(record: RaceRecord) -> list[str]:
    """Short names of the models of `record.standing()`, in that order."""
    models = list(dict.fromkeys(arm.model for arm in record.standing()))
    short = dict(zip(models, short_names(models), strict=True))
    return [short[arm.model] for arm in record.standing()]


def race_status(record: RaceRecord) -> str:
    """Where a race stands, in a sentence."""
    if not record.arms:
        return "The evidence of the models is being found."
    first = "" if record.final is None else f"{_short(record.final.model)} at {record.final.learning_rate:g}"
    if record.complete:
        return f"The race is over: {first}."
    if record.deploy:
        return f"{first} has won; {_short(record.deploy)} is being taught."
    if first:
        return f"{first} leads and is tuned to its end."
    if not record.rungs:
        return f"{len(record.arms)} arms"
    rung = min(len(record.going_on), len(record.rungs) - 1)
    racing = len(record.going_on[rung - 1]) if rung and rung - 1 in record.going_on else len(record.arms)
    done = sum(look.rung == rung for look in record.looks)
    return f"Rung {rung + 1} of {len(record.rungs)}, {record.rungs[rung]} steps: {done} of {racing} arms seen."


def _short(model: str) -> str:
    return short_names([model])[0]


def _title(record: RaceRecord) -> str:
    metric = f" Held-out {record.metric}." if record.metric else ""
    return race_status(record) + metric


def race_line(line: Mapping[str, Any], record: RaceRecord) -> str:
    """What is printed of a line of `race.jsonl` where there is no terminal; empty for nothing."""
    event = line.get("event")
    if event == "look":
        look = record.looks[-1]
        return f"{look.arm}: {look.failure or f'{look.metric:.4f}'} after {look.steps} steps"
    if event == "rung":
        stay = record.going_on[int(line["rung"])]
        first = f", {stay[0]} first" if stay else ""
        return f"after {line['steps']} steps {len(stay)} of {len(line['arms'])} arms go on{first}"
    if event == "lesson":
        arm = Arm(**line["arm"])
        return f"{arm}, taught: {line['failure'] or format(line['metric'], '.4f')} after {line['steps']} steps"
    return race_status(record) if event in ("race", "winner", "deploy") else ""
