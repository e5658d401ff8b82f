"""`Race`: who won, what every rung showed, and what was spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hubscout.racing.arms import Arm, Look
from hubscout.racing.elimination import chances, scores

if TYPE_CHECKING:
    from rich.table import Table

    from hubscout.ranking import Ranking
    from hubscout.tuning import Tuned


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One model in the order of the race: its best arm, how far it came, and what was seen there."""

    model: str
    rank: int
    evidence_rank: int | None
    learning_rate: float | None
    steps: int
    metric: float | None
    p_best: float | None
    """Chance to be the best once tuned, of those in the last rung."""
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Race:
    """The outcome of a race. `tuned` is the winner, tuned to its end; None while there is none yet."""

    task_name: str
    metric: str
    winner: Arm
    ranking: Ranking = field(repr=False)
    looks: tuple[Look, ...] = field(repr=False)
    steps: int
    """Of the winner's whole run."""
    shares: Mapping[int, float] = field(repr=False)
    """Rung → its share of the steps."""
    seconds: Mapping[str, float]
    """Spent on the evidence, on the rungs and on the winner."""
    tuned: Tuned | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    complete: bool = True

    @property
    def order(self) -> tuple[Contestant, ...]:
        """All models, the best first: by the rung that they reached, then by their score there, then by evidence."""
        evidence = {row.identifier: row.score for row in self.ranking}
        places = {row.identifier: row.rank for row in self.ranking}
        best: dict[str, tuple[tuple[float, ...], Look]] = {}
        final: dict[Arm, float] = {}
        last = max((look.rung for look in self.looks), default=-1)
        for rung in sorted({look.rung for look in self.looks}):
            looks = [look for look in self.looks if look.rung == rung]
            found = scores(looks, evidence)
            if rung == last:
                final = dict(
                    zip((look.arm for look in looks), chances(looks, evidence, self.shares[rung]), strict=True)
                )
            for look, score in zip(looks, found, strict=True):
                place = (-1.0 if look.failure else float(rung), float(score))
                if look.arm.model not in best or place > best[look.arm.model][0]:
                    best[look.arm.model] = (place, look)
        rest = [row.identifier for row in self.ranking if row.identifier not in best]
        raced = sorted(best, key=lambda model: (model != self.winner.model, *(-part for part in best[model][0])))
        p_best: dict[str, float] = {}
        for arm, chance in final.items():
            p_best[arm.model] = p_best.get(arm.model, 0.0) + float(chance)
        contestants = []
        for number, model in enumerate([*raced, *rest], start=1):
            seen = best[model][1] if model in best else None
            contestants.append(
                Contestant(
                    model=model,
                    rank=number,
                    evidence_rank=places.get(model),
                    learning_rate=seen.arm.learning_rate if seen else None,
                    steps=seen.steps if seen else 0,
                    metric=seen.metric if seen else None,
                    p_best=p_best.get(model),
                    failure=seen.failure if seen else "",
                )
            )
        return tuple(contestants)

    @property
    def answer(self) -> str:
        """The race in one sentence."""
        first, *others = self.order
        tied = [other for other in others if other.p_best is not None and other.p_best >= 0.05]
        sure = "" if first.p_best is None else f", the best with a probability of {first.p_best:.0%}"
        text = f"{first.model} won at a learning rate of {self.winner.learning_rate:g}{sure}"
        if tied:
            text += f"; statistically tied with {', '.join(other.model for other in tied)}"
        if self.tuned is not None and self.tuned.metrics:
            split = "test" if "test" in self.tuned.metrics else next(iter(self.tuned.metrics))
            text += f". Tuned to the end it has {self.metric} {self.tuned.metric(split)} on {split}"
        return text + "."

    def table(self) -> Table:
        """One line per model."""
        from rich.table import Table
        from rich.text import Text

        from hubscout.runs.model_names import short_names

        table = Table(header_style="bold")
        for head in ("#", "model", "by evidence", "rate", "steps", self.metric, "P(best)"):
            table.add_column(head, justify="left" if head == "model" else "right")
        order = self.order
        for one, name in zip(order, short_names([one.model for one in order]), strict=True):
            cells = [
                "–" if one.evidence_rank is None else str(one.evidence_rank),
                "–" if one.learning_rate is None else f"{one.learning_rate:g}",
                str(one.steps) if one.steps else "–",
                "failed" if one.failure else "–" if one.metric is None else f"{one.metric:.4f}",
                "–" if one.p_best is None else "<1%" if one.p_best < 0.01 else f"{one.p_best:.0%}",
            ]
            table.add_row(str(one.rank), Text(name), *cells)
        return table

    def record(self) -> dict[str, Any]:
        """Everything but the network, as plain values."""
        return {
            "task": self.task_name,
            "metric": self.metric,
            "winner": {"model": self.winner.model, "learning_rate": self.winner.learning_rate, "steps": self.steps},
            "order": [vars(one) for one in self.order],
            "seconds": dict(self.seconds),
            "complete": self.complete,
            "notes": list(self.notes),
            "tuned": self.tuned.metrics_record() if self.tuned is not None else None,
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
