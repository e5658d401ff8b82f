"""Races on disk: the lines of `race.jsonl` while one goes on, its outcome in `race.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubscout.errors import RunError
from hubscout.runs.files import read_json, read_lines
from hubscout.runs.record_types import converted, hints, in_version, record_of, write_record
from hubscout.runs.row import BUDGET_SPENT, Failure
from hubscout.runs.run_folder import RACE, RACE_LINES

FORM = "hubscout-race"
VERSION = 1
MOST_RUNGS = 50
_PARTS = {"race": "evidence", "look": "rungs", "fold": "rungs", "rung": "rungs"}
"""Event → the part of the race that its line tells the time of; a stage has its own name."""
TIED_ABOVE = 0.05
"""An arm with at least this chance to be the best is not told apart from the winner, and worth further folds."""


@dataclass(frozen=True, order=True)
class Arm:
    """A model with a learning rate."""

    model: str
    learning_rate: float
    """That it is tuned with."""

    def __str__(self) -> str:
        return f"{self.model} at {self.learning_rate:g}"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a rung showed of an arm.

    `metric` is the task's own and `log_likelihoods` one number for each of the first held-out samples, both after a
    cool-down, so that they are those of a network that was tuned for `steps` steps. An arm that broke down has a
    `failure` and neither.
    """

    arm: Arm
    rung: int
    steps: int
    metric: float | None = None
    log_likelihoods: tuple[float, ...] = ()
    seconds: float
    """Of this look, with opening and training."""
    seconds_per_step: float = 0.0
    """Of training."""
    evaluation_seconds: float = 0.0
    """Of `seconds`: what the held-out samples took."""
    failure: str = ""
    saved: bool = False
    """Whether the network was kept, because nothing before it was better on the same samples."""


@dataclass(frozen=True, kw_only=True)
class BesideProbe:
    """The winner and the linear probe of the first model by evidence, on the same held-out samples."""

    model: str
    """That the probe is of."""
    probe: float
    winner: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One model in the order of the race: its best arm, how far it came, and what was seen there."""

    model: str
    rank: int
    evidence_rank: int | None = None
    learning_rate: float | None = None
    steps: int = 0
    metric: float | None = None
    p_best: float | None = None
    """Chance to be the best once tuned, of those on the last rung on which several were compared."""
    failure: str = ""

    @property
    def is_tied(self) -> bool:
        """Whether the race did not tell it apart from the winner."""
        return (self.p_best or 0.0) >= TIED_ABOVE


def more_time_may_tell(order: Sequence[Contestant], failures: Iterable[Failure] = ()) -> bool:
    """Whether a longer race could have another winner: models are tied with this one, not tuned, or not ranked."""
    unranked = any(one.error == BUDGET_SPENT for one in failures)
    return unranked or any(one.is_tied or (not one.steps and not one.failure) for one in order[1:])


@dataclass
class RaceRecord:
    """What the folder of a race tells; while it goes on, what is known so far.

    `going_on` has for each rung that is over the arms that stayed, the best first. `final` is the arm that is, or was,
    tuned to its end; `order` and `answer` are there when the race is over (`complete`).
    """

    task: str = ""
    metric: str = ""
    steps: int = 0
    rungs: tuple[int, ...] = ()
    """The steps after which arms are judged."""
    widths: tuple[int, ...] = ()
    """How many arms each rung has room for; a rung with room for none is passed over."""
    arms: tuple[Arm, ...] = ()
    left_out: int = 0
    """Models that did not start, because the budget was too short."""
    slow: Mapping[str, float] = field(default_factory=dict)
    """Models that did not start because they are so much slower than the others, and how many times."""
    probed: str = ""
    """The first model by evidence: a race does not end below the linear probe of its frozen features."""
    looks: tuple[Look, ...] = ()
    """At the arms of the race, on its rungs."""
    folds: Mapping[int, tuple[Look, ...]] = field(default_factory=dict)
    """Fold → looks at finalists on its held-out samples."""
    lessons: Mapping[str, tuple[Look, ...]] = field(default_factory=dict)
    """Model to deploy → looks at it, one per learning rate."""
    taught: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Model → who taught it when it was to be deployed, also in a shorter race."""
    stages: Mapping[str, str] = field(default_factory=dict)
    """Stage after the rungs that is over → its model."""
    ended: tuple[tuple[Arm, int, float | None], ...] = ()
    """Winners of shorter races: the arm, its steps, and its held-out metric."""
    pace: Mapping[str, float] = field(default_factory=dict)
    """Of the first model, before there were looks."""
    start: Mapping[str, Any] = field(default_factory=dict)
    """The last line that tells who starts."""
    going_on: Mapping[int, tuple[Arm, ...]] = field(default_factory=dict)
    final: Arm | None = None
    beside: BesideProbe | None = None
    """Where the winner was trained."""
    deploy: str = ""
    """The model that the winners teach, where one was asked for."""
    order: tuple[Contestant, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What each part of the race has taken, in the order in which they came."""
    notes: tuple[str, ...] = ()
    answer: str = ""
    complete: bool = False
    over: bool = False
    """Whether nothing came after the end of the race."""
    _told_until: float = 0.0
    """Seconds since the start of the race that are in `seconds`."""

    def take(self, line: Mapping[str, Any]) -> None:
        """Count one line of `race.jsonl` in; a `RunError` where it is none of ours."""
        try:
            self._take(line)
        except (KeyError, TypeError, ValueError, AttributeError, RunError) as error:
            told = error if isinstance(error, RunError) else f"{error!r}."
            raise RunError(f"{RACE_LINES} has a line that is no part of a race: {told}") from error

    def _take(self, line: Mapping[str, Any]) -> None:
        event = str(line.get("event"))
        part, self.over = _PARTS.get(event), event == "finished"
        if event == "race":
            self._begin(line)
        elif event == "look":
            self.looks = (*self.looks, look := _look(line))
            if look.arm not in self.arms:  # a rate that is tried for the winner alone
                self.arms = (*self.arms, look.arm)
        elif event == "fold":
            fold = _whole(line["fold"])
            self.folds = {**self.folds, fold: (*self.folds.get(fold, ()), _look(line))}
        elif event == "lesson":
            look = _look(line)
            self.lessons = {**self.lessons, look.arm.model: (*self.lessons.get(look.arm.model, ()), look)}
        elif event == "rung":
            self.going_on = {**self.going_on, _whole(line["rung"]): tuple(map(_arm, line["going_on"]))}
        elif event == "winner":
            self.final = _arm(line["arm"])
        elif event == "beside":
            self.beside = record_of(BesideProbe, line, RACE_LINES)
        elif event == "deploy":
            self.deploy, teachers = str(line["model"]), tuple(map(str, line.get("teachers", ())))
            if self.has_other_teachers(self.deploy, teachers):
                self.lessons = {**self.lessons, self.deploy: ()}
            self.taught = {**self.taught, self.deploy: teachers}
        elif event == "stage":
            part = str(line["stage"])
            self.stages = {**self.stages, part: str(line["model"])}
        elif event == "note":
            self.notes = (*self.notes, str(line["text"]))
        elif event == "finished":
            self.complete = True
        if part is not None and "elapsed" in line:
            now = float(line["elapsed"])
            self.seconds = {**self.seconds, part: round(self.seconds.get(part, 0.0) + now - self._told_until, 3)}
            self._told_until = now

    def _begin(self, line: Mapping[str, Any]) -> None:
        """Who starts: in a race that goes on with more time or models, stages are to be made again."""
        if self.steps != line["steps"]:  # with more time it may have other rungs
            self.looks, self.folds, self.lessons = (), {}, {}
        self.going_on, self.final, self.deploy, self.complete = {}, None, "", False
        self.beside, self.probed, self.stages = None, "", {}
        self.task, self.metric = str(line["task"]), str(line["metric"])
        self.steps, self.rungs = _whole(line["steps"]), tuple(map(_whole, line["rungs"]))
        self.arms = tuple(map(_arm, line["arms"]))
        self.left_out = _whole(line.get("left_out", 0))
        self.slow = self._field("slow", line.get("slow", {}))
        if probe := line.get("probe"):
            self.probed = str(probe["model"])
        self.widths = tuple(map(_whole, line.get("field", {}).get("widths", ())))
        self.start, self.pace = line, self._field("pace", line.get("pace") or self.pace)
        if one := line.get("ended"):
            self.ended = (*self.ended, (Arm(one["model"], one["learning_rate"]), _whole(one["steps"]), one["metric"]))

    def _field(self, name: str, value: Any) -> Any:
        return converted(hints(RaceRecord)[name], value, f"{RACE_LINES}: {name}")

    def has_other_teachers(self, model: str, teachers: Sequence[str]) -> bool:
        """Whether a model was taught by others before: it does not go on from there."""
        return self.taught.get(model, tuple(teachers)) != tuple(teachers)

    @property
    def rungs_run(self) -> list[int]:
        """The rungs that arms are judged on: a race may begin on a later one than the first."""
        return [rung for rung in range(len(self.rungs)) if self.widths[rung : rung + 1] != (0,)]

    def seen(self, arm: Arm) -> dict[int, Look]:
        """Rung → what it showed of an arm."""
        return {look.rung: look for look in self.looks if look.arm == arm}

    def out_after(self, arm: Arm) -> int | None:
        """The rung after which an arm was given up; None while it is racing, or waits."""
        for rung, look in sorted(self.seen(arm).items()):
            if look.failure or (rung in self.going_on and arm not in self.going_on[rung]):
                return rung
        return None

    def state(self, arm: Arm) -> str:
        """Where an arm stands, in a word or two."""
        seen, out = self.seen(arm), self.out_after(arm)
        if any(look.failure for look in seen.values()):
            return "failed"
        if arm == self.final:
            return "winner" if self.complete else "finishing"
        if out is not None:
            return f"out after {self.rungs[out]} steps" if out < len(self.rungs) else "out"
        if self.final is not None:
            return "beaten" if seen else "not trained"
        return "racing" if seen else "waiting"

    def leaderboard(self) -> list[Arm]:
        """All arms, those that came furthest first, then by what was last seen of them."""

        def place(arm: Arm) -> tuple[Any, ...]:
            seen = self.seen(arm)
            last = seen[max(seen)] if seen else None
            metric = last.metric if last is not None else None
            came = -1 if last is None else -2 if last.failure else last.rung
            return (arm != self.final, -came, -(metric if metric is not None else -1e300))

        return sorted(self.arms, key=place)


def last_comparison(looks: Sequence[Look]) -> Look | None:
    """A look on the last rung on which several models were compared: P(best) is of that; None where there is none."""
    for rung in sorted({look.rung for look in looks}, reverse=True):
        there = [look for look in looks if look.rung == rung]
        if len({look.arm.model for look in there}) > 1:
            return there[0]
    return None


def _look(line: Mapping[str, Any]) -> Look:
    """A look out of its line."""
    look: Look = record_of(Look, line, RACE_LINES)
    if not 0 <= look.rung <= MOST_RUNGS:
        raise ValueError(f"there is no rung {look.rung}")
    return look


def _arm(record: Mapping[str, Any]) -> Arm:
    return record_of(Arm, record, RACE_LINES)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 40:
        raise ValueError(f"{value!r} is no number of steps or of a rung")
    return value


def write_race(folder: Path, record: Mapping[str, Any]) -> None:
    """The outcome of a race, beside its lines."""
    write_record(folder / RACE, FORM, VERSION, record, indent=1)


def read_race(folder: Path) -> RaceRecord:
    """The race in a folder, over or going on.

    Raises:
        RunError: a file is damaged, or of another version.

    """
    found = RaceRecord()
    for line in read_lines(folder / RACE_LINES, tolerant=True):
        found.take(line)
    path = folder / RACE
    if found.complete and path.is_file():
        told = in_version(read_json(path), FORM, VERSION, origin=str(path))
        for name in ("order", "notes", "answer", "seconds"):
            if name not in told:
                raise RunError(f"{path} is no outcome of a race: it has no {name}.")
            setattr(found, name, converted(hints(RaceRecord)[name], told[name], f"{path}.{name}"))
    return found
