"""What a race leaves on disk while it goes on: the lines that it goes on from, and folders that are always whole."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hubscout.credentials import strip_credentials
from hubscout.errors import OtherRunError, RunError
from hubscout.racing.rungs import Clock, Field, Pace, Rung
from hubscout.runs.events import Observer, Raced
from hubscout.runs.files import append_line, read_lines
from hubscout.runs.race_record import Arm, Look, RaceRecord
from hubscout.runs.record_types import is_number
from hubscout.runs.run_folder import RACE, RACE_LINES
from hubscout.runs.texts import short_name

BEST = "best"
"""In the folder of an arm: its cooled-down network, as it can be used."""
EARLIER = "earlier"
"""Folder of the winner of a shorter race, while a longer one goes on."""
PROBES = "probes"
"""Folder of the linear probes of models, in use until the race is over."""
WORKING = ("arms", "folds", "lessons", "refit")
"""Folders of a race in which networks are tuned."""


@dataclass
class RaceJournal:
    """The lines of `race.jsonl`: each is on disk before the next piece of work, and the observer hears of it."""

    folder: Path
    clock: Clock
    observer: Observer
    to_deploy: str = ""
    """The model that the winners teach."""
    record: RaceRecord = field(default_factory=RaceRecord)
    """All lines together."""

    @property
    def looks(self) -> tuple[Look, ...]:
        """At the arms of the race, on its rungs."""
        return self.record.looks

    @property
    def lesson_looks(self) -> tuple[Look, ...]:
        """At the model to deploy, at each learning rate."""
        return self.record.lessons.get(self.to_deploy, ())

    @property
    def stages_done(self) -> dict[str, str]:
        """Stage after the rungs that is over → its model."""
        return {stage: m for stage, m in self.record.stages.items() if stage != "deploy" or m == self.to_deploy}

    @property
    def pace(self) -> Pace | None:
        """Of the first model, before there were looks."""
        return Pace(**self.record.pace) if self.record.pace else None

    @property
    def usual_pace(self) -> Pace | None:
        """That of the looks so far, or what the first model took before there were any."""
        return Pace.of(self.looks) or self.pace

    def resume(self, identity: Mapping[str, Any], given: Sequence[str]) -> Field | None:
        """Who started, where an earlier run left this race; None where there is none.

        Models go by the names as they were `given` now: the user has said them, not the file.
        """
        path = self.folder / RACE_LINES
        lines = read_lines(path)
        if not lines:
            return None
        start, names = starts_of(lines)[-1], {name: name for name in given}
        wanted, found = as_written(identity), start.get("identity")
        found = found if isinstance(found, dict) and isinstance(found.get("models"), list) else {"models": []}
        same = {**found, "models": []} == {**wanted, "models": []}
        if not same or any(model not in wanted["models"] for model in found["models"]):
            raise OtherRunError(
                f"{self.folder} holds another race (other data, models or arguments): choose another folder, or "
                "overwrite it (overwrite=True, --overwrite)."
            )
        try:
            self.clock.before = float(lines[-1]["elapsed"])
            for line in lines:
                if line.get("event") in ("look", "fold", "winner"):
                    line["arm"]["model"] = names[line["arm"]["model"]]
                for part in ("probe", "ended"):
                    if isinstance(line.get(part), dict):
                        line[part]["model"] = names[line[part]["model"]]
                self.record.take(line)
            told = start["field"]
            models = tuple(names[name] for name in told["models"])
            chosen = Field(models, tuple(told["factors"]), int(told["steps"]), tuple(told["widths"]))
        except (KeyError, TypeError, ValueError, AttributeError, RunError) as error:
            raise RunError(f"{path} is damaged or of another race: {error}. Remove it to start anew.") from error
        for line in lines:
            self.observer(Raced("", line))
        return chosen

    def has_more(self, budget: float | None, models: Sequence[str]) -> bool:
        """Whether there is more time, or there are more models, than when the race began."""
        return is_longer(budget, self.record.start) or set(models) > set(self.record.start["identity"]["models"])

    def note(self, text: str) -> None:
        """What the user should know, also where the race is stopped after it."""
        self._write("note", text=text)

    def stop(self) -> None:
        """Somebody has stopped the race: the time until then counts."""
        if self.record.start and not self.record.over:
            append_line(self.folder / RACE_LINES, {"event": "stopped", "elapsed": round(self.clock.spent, 3)})

    def start(self, identity: Mapping[str, Any], chosen: Field, **told: Any) -> None:
        """The first line: which race this is, and who starts."""
        self._write("race", identity=as_written(identity), field=asdict(chosen), **told)

    def look(self, look: Look, event: str = "look", **told: Any) -> None:
        """What was seen of an arm: on a rung, on a `fold` of it, or in a `lesson`."""
        self._write(event, **asdict(look), **told)

    def rung(self, rung: Rung, going_on: Sequence[Arm], p_best: Mapping[Arm, float]) -> None:
        """A rung is over: who goes on, and the chance of each to be the best at the end."""
        if rung.number not in self.record.going_on:
            chances = [{**asdict(arm), "p_best": round(chance, 4)} for arm, chance in p_best.items()]
            self._write("rung", rung=rung.number, steps=rung.steps, going_on=list(map(asdict, going_on)), arms=chances)

    def decide(self, winner: Arm) -> None:
        """The arm that is tuned to its end."""
        if winner != self.record.final:
            self._write("winner", arm=asdict(winner))

    def beside(self, model: str, probe: float, winner: float, samples: int) -> None:
        """What the winner and the linear probe of a model have on the same held-out samples."""
        self._write("beside", model=model, probe=probe, winner=winner, samples=samples)

    def deploy(self, model: str, teachers: Sequence[str]) -> None:
        """The model to deploy, and who teaches it."""
        if (self.record.deploy, self.record.taught.get(model)) != (model, tuple(teachers)):
            self._write("deploy", model=model, teachers=list(teachers))

    def stage(self, name: str, model: str) -> None:
        """A stage after the rungs is over, and what it made is in its place."""
        self._write("stage", stage=name, model=model)

    def finish(self) -> None:
        """The race is over; where it was already and nothing has been done since, there is nothing to write."""
        if not self.record.over:
            self._write("finished")

    def _write(self, event: str, **values: Any) -> None:
        line = {"event": event, **values, "elapsed": round(self.clock.spent, 3)}
        append_line(self.folder / RACE_LINES, line)
        self.record.take(line)
        self.observer(Raced("", line))


def evidence_seconds(folder: Path, budget: float | None, wanted: float | None) -> tuple[float | None, bool]:
    """What the ranking of a race is allowed, and whether that is another ranking than the one in the folder.

    It is what it was when the race began, unless the budget is longer now and that would have told more.
    """
    starts = starts_of(read_lines(folder / RACE_LINES, tolerant=True))
    if not starts:
        return wanted, False
    before = starts[-1].get("evidence_seconds", wanted)
    if before is not None and not is_number(before):
        before = wanted
    if starts[-1].get("whole_evidence", True) or not is_longer(budget, starts[-1]):
        return before, False
    return wanted, wanted != before


def starts_of(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The lines that tell who starts: one, and one more for each time that a race went on with more time or models."""
    return [line for line in lines if line.get("event") == "race"] or list(lines[:1])


def is_longer(budget: float | None, start: Mapping[str, Any]) -> bool:
    """Whether a budget is longer than that of a race's start; None is without a limit."""
    before: Any = start.get("budget")
    return is_number(before) and (budget is None or budget > before)


def as_written(values: Mapping[str, Any]) -> Any:
    """Values as they stand in a file."""
    return json.loads(strip_credentials(json.dumps(values)))


def arm_folder(arm: Arm) -> str:
    """The name of an arm's folder: the same whoever else races.

    >>> arm_folder(Arm("timm/resnet18.a1_in1k", 0.002))
    'resnet18.a1_in1k-00a6f754-0.002'
    """
    name = re.sub(r"[^\w.]+", "-", short_name(arm.model))[:40].strip("-.")
    return f"{name}-{hashlib.sha256(arm.model.encode()).hexdigest()[:8]}-{arm.learning_rate:g}"


def clear(folder: Path) -> None:
    """Remove what a race left, but for its models, which stay until there are others."""
    for name in (RACE, RACE_LINES):
        (folder / name).unlink(missing_ok=True)
    for name in (*WORKING, PROBES, EARLIER):
        shutil.rmtree(folder / name, ignore_errors=True)


def tidy(folder: Path, staying: Sequence[Path]) -> None:
    """Remove what only a race under way needs, but for the checkpoints of the arms in `staying`."""
    for name in (PROBES, EARLIER):
        shutil.rmtree(folder / name, ignore_errors=True)
    for home in {path.parent for name in WORKING for path in folder.glob(f"{name}/**/{BEST}")}:
        shutil.rmtree(home / BEST, ignore_errors=True)
    for path in [path for name in WORKING for path in folder.glob(f"{name}/**/checkpoints")]:
        if path.parent not in staying:
            shutil.rmtree(path, ignore_errors=True)


def put_in_place(source: Path, target: Path) -> None:
    """A copy of a folder under another name; a reader sees the old one or the new one."""
    restore(target)
    fresh, old = _beside(target)
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, fresh)
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def restore(target: Path) -> None:
    """Put back what a kill between the two renames left beside its place; the new one is whole by then."""
    for folder in _beside(target):
        if not target.exists() and folder.is_dir() and _beside(target)[1].is_dir():
            folder.rename(target)


def drop_checkpoints(folder: Path) -> None:
    """Remove what only a run that goes on needs; its curves stay."""
    for name in ("checkpoints", BEST):
        shutil.rmtree(folder / name, ignore_errors=True)


def drop_lessons(folder: Path, model: str) -> None:
    """Remove what a model to deploy has learnt from others than those that teach it now."""
    arms = arm_folder(Arm(model, 0.0)).removesuffix("0")
    for path in [path for name in ("lessons", "refit") for path in (folder / name).glob(f"{arms}*")]:
        shutil.rmtree(path, ignore_errors=True)


def _beside(target: Path) -> tuple[Path, Path]:
    return target.with_name(f".{target.name}.new"), target.with_name(f".{target.name}.old")
