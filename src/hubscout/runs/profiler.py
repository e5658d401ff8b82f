"""Where the seconds of a run go: steps with names, timed in the thread that runs them.

A step inside another one is taken off it, so the steps of one thread never count a second twice. Work of other threads
goes on at the same time and is kept apart. Nothing is measured unless a `Profiler` is on; then a `step` costs a
microsecond or two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hubscout.runs.texts import short_names

if TYPE_CHECKING:
    from hubscout.runs.ranking import Ranking


STEPS = (
    "start",
    "load",
    "export",
    "decode",
    "transfer",
    "resize",
    "forward",
    "statistics",
    "latency",
    "score",
    "write",
)
"""In the order in which they happen. "start" is what comes before the first model; "decode" in the main thread is
waiting for samples that others prepare."""
OTHER = "other"
_NOTHING = nullcontext()

_active: Profiler | None = None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Seconds by step. Those of `main` add up to `seconds`, the time that went by; `beside` ran at the same time, in
    other threads.
    """

    seconds: float = 0.0
    main: Mapping[str, float] = field(default_factory=dict)
    beside: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Profile) -> Profile:
        def total(one: Mapping[str, float], two: Mapping[str, float]) -> dict[str, float]:
            return {name: one.get(name, 0.0) + two.get(name, 0.0) for name in (*STEPS, OTHER) if name in {*one, *two}}

        return Profile(
            seconds=self.seconds + other.seconds,
            main=total(self.main, other.main),
            beside=total(self.beside, other.beside),
        )

    def less(self, seconds: float) -> Profile:
        """The rest, where `seconds` of the main thread belong to something that has a profile of its own."""
        main = {**self.main, OTHER: max(0.0, self.main.get(OTHER, 0.0) - seconds)}
        return Profile(seconds=max(0.0, self.seconds - seconds), main=main, beside=self.beside)


def together(profiles: Iterable[Profile | None]) -> Profile | None:
    """The sum of those that were measured; None where none was."""
    measured = [profile for profile in profiles if profile is not None]
    return sum(measured[1:], measured[0]) if measured else None


class Profiler:
    """Times the steps of all threads from its making on; its own is the main one.

    >>> with profiled() as profiler:
    ...     with step("load"):
    ...         pass
    >>> list(profiler.profile().main)
    ['load', 'other']
    """

    def __init__(self, since: float | None = None) -> None:
        now = time.perf_counter()
        self._started = now if since is None else since
        self._main = threading.get_ident()
        self._lock = threading.Lock()
        self._open = threading.local()
        self._spent = {} if since is None else {(True, "start"): now - since}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count the time of the block to `name`, less that of steps within it."""
        outer: list[float] | None = getattr(self._open, "inner", None)
        inner = self._open.inner = [0.0]
        began = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self._open.inner = outer
            if outer is not None:
                outer[0] += took
            key = (threading.get_ident() == self._main, name)
            with self._lock:
                self._spent[key] = self._spent.get(key, 0.0) + took - inner[0]

    def profile(self) -> Profile:
        """What was measured until now."""
        seconds = time.perf_counter() - self._started
        with self._lock:
            spent = dict(self._spent)
        main = {name: spent[True, name] for name in STEPS if (True, name) in spent}
        main[OTHER] = max(0.0, seconds - sum(main.values()))
        beside = {name: spent[False, name] for name in STEPS if (False, name) in spent}
        return Profile(seconds=seconds, main=main, beside=beside)


@contextmanager
def profiled(wanted: bool = True, *, since: float | None = None) -> Iterator[Profiler | None]:
    """Measure the block; None where it is not `wanted`. The time from `since` to the block is the start."""
    global _active
    if not wanted:
        yield None
        return
    before, _active = _active, Profiler(since)
    try:
        yield _active
    finally:
        _active = before


def step(name: str) -> AbstractContextManager[None]:
    """A context manager that counts its block to a step of the run, where one is being measured."""
    return _NOTHING if _active is None else _active.step(name)


def is_profiling() -> bool:
    """Whether steps are measured now."""
    return _active is not None


EXPLAINED = (
    "Seconds of the main thread, which add up to the time that went by; with a plus, work of other threads at the same "
    "time. Decoding in the main thread is waiting for it."
)
ELSEWHERE = "Models that ran in other processes did so at the same time: the sum is more than the time that went by."
BETWEEN = "between models"
NOTHING = "–"


def profile_lines(ranking: Ranking) -> list[tuple[str, Profile]]:
    """What was measured, in the order of the ranking: each model, the rest of the run, the sum."""
    rows = [row for row in ranking.rows if row.profile is not None]
    measured = [(name, row.profile) for name, row in zip(short_names([r.identifier for r in rows]), rows, strict=True)]
    found: list[tuple[str, Profile]] = [(name, profile) for name, profile in measured if profile is not None]
    rest = ranking.environment.get("profile")
    if rest is not None:
        found.append((BETWEEN, Profile(**rest)))
    whole = together(profile for _, profile in found)
    return [*found, ("sum", whole)] if whole is not None else []


def profile_cells(ranking: Ranking) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table; steps that nothing went into are left out."""
    found = profile_lines(ranking)
    used = [name for name in (*STEPS, OTHER) if any(_cell(one, name) != NOTHING for _, one in found)]
    texts = [[name, *(_cell(profile, one) for one in used), f"{profile.seconds:.2f}"] for name, profile in found]
    return ["seconds", *used, "in all"], texts


def _cell(profile: Profile, name: str) -> str:
    main, beside = profile.main.get(name, 0.0), profile.beside.get(name, 0.0)
    text = f"{main:.2f}" if main >= 0.005 else "" if beside >= 0.005 else NOTHING
    return f"{text} +{beside:.2f}".strip() if beside >= 0.005 else text


def profile_notes(ranking: Ranking) -> list[str]:
    """How the table is to be read."""
    *_, (_, whole) = profile_lines(ranking)
    # Half a second for what comes after the profile was taken.
    return [EXPLAINED, ELSEWHERE] if whole.seconds > ranking.seconds + 0.5 else [EXPLAINED]


def profile_renderables(ranking: Ranking) -> list[Any]:
    """For a rich console; nothing where nothing was measured."""
    heads, texts = profile_cells(ranking)
    if not texts:
        return []
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text("Where the time went"), title_justify="left", header_style="bold")
    for head in heads:
        first = head == heads[0]  # the models: a name in several lines is better than the beginning of one
        table.add_column(Text(head), justify="left" if first else "right", no_wrap=not first, overflow="fold")
    for index, line in enumerate(texts):
        table.add_row(*map(Text, line), end_section=index == len(texts) - 2)
    return [table, *map(Text, profile_notes(ranking))]
