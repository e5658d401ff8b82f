"""`Race`: who won, what every rung showed, and what was spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hubscout.metric_texts import metric_text
from hubscout.racing.arms import Arm, Look
from hubscout.racing.elimination import chances, scores
from hubscout.racing.race_answer import race_answer
from hubscout.runs.hooks import call
from hubscout.runs.race_record import Contestant, RaceRecord, last_comparison
from hubscout.runs.texts import human_probability, short_names
from hubscout.runs.tuning_record import tuning_run
from hubscout.text_table import text_table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from hubscout.ranking import Ranking
    from hubscout.tuning import Tuned


@dataclass(frozen=True, kw_only=True)
class Race:
    """The outcome of a race. `tuned` is the winner, tuned to its end; None while there is none yet.

    Example:
        >>> race = hubscout.race(task, ["timm/resnet18*", "timm/mobilenetv3*"], budget="10min")  # doctest: +SKIP
        >>> race.winner.model, race.tuned.metric()  # doctest: +SKIP

    """

    task_name: str
    """The name of the data."""
    metric: str
    """What arms are compared by."""
    winner: Arm
    ranking: Ranking = field(repr=False)
    """The ranking that the race began with."""
    evidence: Mapping[str, float] = field(repr=False)
    """Of each model, with what a prior added to it."""
    looks: tuple[Look, ...] = field(repr=False)
    """What every rung showed of every arm."""
    steps: int
    """Of the winner's whole run."""
    shares: Mapping[int, float] = field(repr=False)
    """Rung → its share of the steps."""
    seconds: Mapping[str, float]
    """Spent on the evidence, on the rungs, on the winner and on what came after it."""
    tuned: Tuned | None = field(default=None, repr=False)
    deployed: Tuned | None = field(default=None, repr=False)
    """The model to deploy, taught by the winners, where one was asked for."""
    notes: tuple[str, ...] = ()
    """What the user should know."""
    told: RaceRecord = field(default_factory=RaceRecord, repr=False)
    """What happened on the way."""

    @property
    def order(self) -> tuple[Contestant, ...]:
        """All models, the best first: by the rung that they reached, then by their score there, then by evidence."""
        places = {row.identifier: row.rank for row in self.ranking}
        best: dict[str, tuple[tuple[float, ...], Look]] = {}
        p_best: dict[str, float] = {}
        compared = last_comparison(self.looks)
        for rung in sorted({look.rung for look in self.looks}):
            looks = [look for look in self.looks if look.rung == rung and not self._only_a_rate(look, rung)]
            for look, score in zip(looks, scores(looks, self.evidence), strict=True):
                place = (-1.0 if look.failure else float(rung), float(look.arm == self.winner), float(score))
                if look.arm.model not in best or place > best[look.arm.model][0]:
                    best[look.arm.model] = (place, look)
            if compared is not None and rung == compared.rung:
                for look, chance in zip(looks, chances(looks, self.evidence, self.shares[rung]), strict=True):
                    p_best[look.arm.model] = p_best.get(look.arm.model, 0.0) + float(chance)
        rest = [row.identifier for row in self.ranking if row.identifier not in best]
        raced = sorted(best, key=lambda model: tuple(-part for part in best[model][0]))
        contestants = []
        # The winner may be a linear probe of a model that was not trained.
        in_order = sorted([*raced, *rest], key=lambda model: model != self.winner.model)
        for number, model in enumerate(in_order, start=1):
            one = Contestant(model=model, rank=number, evidence_rank=places.get(model), p_best=p_best.get(model))
            if model in best:
                _, seen = best[model]
                shown: dict[str, Any] = {"steps": seen.steps, "metric": seen.metric, "failure": seen.failure}
                one = replace(one, learning_rate=seen.arm.learning_rate, **shown)
            contestants.append(one)
        return tuple(contestants)

    def _only_a_rate(self, look: Look, rung: int) -> bool:
        """Whether a look was there to find the winner's rate: who has more rates is not likelier to be the best."""
        first = min(one.rung for one in self.looks)
        return rung > first and look.arm.model == self.winner.model and look.arm != self.winner

    @property
    def answer(self) -> str:
        """Which model, how good, against its linear probe and the others, and how sure that is."""
        return race_answer(self)

    def teachers(self, deploy: str, most: int = 3) -> list[str]:
        """Who teaches the model to deploy: the winner and those that are tied with it.

        Args:
            deploy: the model to deploy, which does not teach itself.
            most: how many there are at most.

        Returns:
            Identifiers, the best first.

        """
        tied = [one.model for one in self.order if one.rank == 1 or one.is_tied]
        return [model for model in tied if model != deploy][:most]

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML page; it loads nothing and opens from a file.

        Args:
            path: the page.

        Returns:
            The path.

        """
        tuned = {"winner": self.tuned, "deployed": self.deployed if self.deployed is not self.tuned else None}
        runs = [tuning_run(name, one.tuning_record(), one.curves) for name, one in tuned.items() if one is not None]
        outcome = replace(self.told, order=self.order, seconds=self.seconds, notes=self.notes, answer=self.answer)
        return call("write_report", call("Run", ranking=self.ranking, race=outcome, tuning=tuple(runs)), path)

    def table(self) -> Table:
        """One line per model.

        Returns:
            A rich table.

        """
        compared = last_comparison(self.looks)
        after = "" if compared is None else f" after {compared.steps}"
        heads = ("#", "model", "by evidence", "rate", "steps", self.metric, f"P(best){after}")
        order = [self._with_its_end(one) for one in self.order]
        rows = [
            (
                str(one.rank),
                name,
                "–" if one.evidence_rank is None else str(one.evidence_rank),
                "–" if one.learning_rate is None else f"{one.learning_rate:g}",
                str(one.steps) if one.steps else "–",
                "failed" if one.failure else "–" if one.metric is None else metric_text(self.metric, one.metric),
                human_probability(one.p_best),
            )
            for one, name in zip(order, short_names([one.model for one in order]), strict=True)
        ]
        return text_table(heads, rows, right={*heads} - {"model"})

    def _with_its_end(self, one: Contestant) -> Contestant:
        """A winner that no rung has shown, with what it has at its end on the held-out samples."""
        if one.rank > 1 or one.steps or self.tuned is None or "validation" not in self.tuned.metrics:
            return one
        rate = self.winner.learning_rate if self.tuned.best_step else None
        value = self.tuned.metric("validation").value
        return replace(one, learning_rate=rate, steps=self.tuned.best_step, metric=value)

    def record(self) -> dict[str, Any]:
        """Everything but the network, as plain values.

        Returns:
            What `race.json` holds.

        """
        deployed = None
        if (one := self.deployed) is not None:
            deployed = {"model": one.model, "teachers": list(one.teachers), "metrics": one.metrics_record()}
        return {
            "task": self.task_name,
            "metric": self.metric,
            "winner": {"model": self.winner.model, "learning_rate": self.winner.learning_rate, "steps": self.steps},
            "order": [vars(one) for one in self.order],
            "seconds": dict(self.seconds),
            "notes": list(self.notes),
            "tuned": self.tuned.metrics_record() if self.tuned is not None else None,
            "deployed": deployed,
            "answer": self.answer,
        }

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        import io

        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=120, color_system=None).print(self.table())
        return text.getvalue() + self.answer
