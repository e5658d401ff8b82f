"""A ranking as charts and tables look at it: numbered models, short names, what to say of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from hubscout.report.names import short_names
from hubscout.runs.ranking import COSTS, Ranking
from hubscout.runs.row import Row
from hubscout.runs.texts import human_count, human_probability, human_seconds


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A price that models are weighed by. `field` is the row's attribute."""

    name: str
    field: str
    title: str

    def of(self, row: Row) -> float | None:
        """The price of a model, where it is known and positive: axes are logarithmic."""
        value = getattr(row, self.field)
        return float(value) if value and value > 0 else None

    def words(self, value: float) -> str:
        """The price as people write it."""
        if self.field == "latency_seconds":
            return human_seconds(value)
        return human_count(value) + ("B" if self.field == "bytes" else "")


PRICES = (
    Cost(name="params", field=COSTS["params"], title="Parameters"),
    Cost(name="flops", field=COSTS["flops"], title="FLOPs per sample"),
    Cost(name="latency", field=COSTS["latency"], title="Latency of one sample"),
)


GROUPS = {
    "best": "best",
    "tied": "statistically tied with the best",
    "rest": "the others",
    "dropped": "dropped early, scored on fewer samples",
}
"""The groups of models as the style sheet and people call them."""


@dataclass(frozen=True)
class View:
    """A ranking with what every section of a report asks of it. Models are numbered in the order of the ranking."""

    ranking: Ranking

    @property
    def rows(self) -> tuple[Row, ...]:
        """The models, best first."""
        return self.ranking.rows

    @property
    def metric(self) -> str:
        """The metric that orders the models."""
        return self.ranking.metrics[0]

    @cached_property
    def names(self) -> list[str]:
        """Short names, in the order of the rows."""
        return short_names([row.identifier for row in self.rows])

    @cached_property
    def short(self) -> dict[str, str]:
        """Short names by identifier."""
        return dict(zip((row.identifier for row in self.rows), self.names, strict=True))

    @property
    def costs(self) -> list[Cost]:
        """The prices that at least two models have."""
        return [cost for cost in PRICES if sum(cost.of(row) is not None for row in self.rows) > 1]

    def group(self, row: Row) -> str:
        """Where a model stands: `best`, `tied` with it, `rest`, or `dropped` on the way.

        Where no model explains the labels, none is the best.
        """
        if row.dropped is not None:
            return "dropped"
        if self.ranking.explains_labels is False:
            return "rest"
        if row.rank == 1:
            return "best"
        return "tied" if row.tied_with_best else "rest"

    def keys(self, models: Iterable[int]) -> list[tuple[str, str]]:
        """What the colours of these models mean, for a legend."""
        there = {self.group(self.rows[model]) for model in models}
        return [(group, words) for group, words in GROUPS.items() if group in there]

    def tip(self, row: Row, *more: str) -> str:
        """What is said of a model when somebody points at it: its name, its score, and `more`."""
        error = f" ± {row.standard_error:.4f}" if row.standard_error is not None else ""
        lines = [*self.naming(row), f"{self.metric} {row.score:.4f}{error}", *more]
        if row.p_best is not None:
            lines.append(f"P(best) {human_probability(row.p_best)}")
        return "\n".join(lines)

    def naming(self, row: Row) -> list[str]:
        """Rank and short name, then the whole identifier where that says more."""
        short = self.short[row.identifier]
        return [f"{row.rank}. {short}"] + ([row.identifier] if short != row.identifier else [])
