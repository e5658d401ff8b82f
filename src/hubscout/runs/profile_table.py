"""The table of `rank --profile`: where each second went, for each model and in sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hubscout.runs.model_names import short_names
from hubscout.runs.profiler import OTHER, STEPS, Profile, together

if TYPE_CHECKING:
    from hubscout.runs.ranking import Ranking

EXPLAINED = (
    "Seconds of the main thread, which add up to the time that went by; with a plus, work of other threads at the same "
    "time. Decoding in the main thread is waiting for it."
)
ELSEWHERE = "Models that ran in other processes did so at the same time: the sum is more than the time that went by."
BETWEEN = "between models"


def lines(ranking: Ranking) -> list[tuple[str, Profile]]:
    """What was measured, in the order of the ranking: each model, the rest of the run, the sum."""
    rows = [row for row in ranking.rows if row.profile is not None]
    measured = [(name, row.profile) for name, row in zip(short_names([r.identifier for r in rows]), rows, strict=True)]
    found: list[tuple[str, Profile]] = [(name, profile) for name, profile in measured if profile is not None]
    rest = ranking.environment.get("profile")
    if rest is not None:
        found.append((BETWEEN, Profile(**rest)))
    whole = together(profile for _, profile in found)
    return [*found, ("sum", whole)] if whole is not None else []


def cells(ranking: Ranking) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table; steps that nothing went into are left out."""
    found = lines(ranking)
    used = [name for name in (*STEPS, OTHER) if any(name in {**one.main, **one.beside} for _, one in found)]
    texts = [[name, *(_cell(profile, step) for step in used), f"{profile.seconds:.2f}"] for name, profile in found]
    return ["seconds", *used, "in all"], texts


def _cell(profile: Profile, step: str) -> str:
    main, beside = profile.main.get(step, 0.0), profile.beside.get(step, 0.0)
    text = f"{main:.2f}" if main >= 0.005 else "" if beside >= 0.005 else "–"
    return f"{text} +{beside:.2f}".strip() if beside >= 0.005 else text


def notes(ranking: Ranking) -> list[str]:
    """How the table is to be read."""
    *_, (_, whole) = lines(ranking)
    # Half a second for what comes after the profile was taken.
    return [EXPLAINED, ELSEWHERE] if whole.seconds > ranking.seconds + 0.5 else [EXPLAINED]


def profile_renderables(ranking: Ranking) -> list[Any]:
    """For a rich console; nothing where nothing was measured."""
    heads, texts = cells(ranking)
    if not texts:
        return []
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text("Where the time went"), title_justify="left", header_style="bold")
    for head in heads:
        table.add_column(Text(head), justify="left" if head == heads[0] else "right", no_wrap=head != heads[0])
    for index, line in enumerate(texts):
        table.add_row(*map(Text, line), end_section=index == len(texts) - 2)
    return [table, *map(Text, notes(ranking))]
