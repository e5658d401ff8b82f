"""`Ranking`: the models in order, with uncertainty and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hubscout.amounts import parse_count, parse_seconds
from hubscout.errors import InputError, UnknownNameError, check_choice, check_least
from hubscout.optional import require
from hubscout.runs.hooks import call
from hubscout.runs.paired_comparison import Comparison, any_explains, in_order
from hubscout.runs.row import Failure, Row, Stage, TaskSummary
from hubscout.runs.texts import counted

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console, ConsoleOptions, RenderResult

    from hubscout.evaluation.correlation import Better
    from hubscout.ranking.evaluate_ranking import Evaluation, MetricAgreement
    from hubscout.report.charts.chart import Chart

CostName = Literal["params", "flops", "latency", "bytes"]
COSTS: dict[str, str] = {"params": "params", "flops": "flops", "latency": "latency_seconds", "bytes": "bytes"}


class UnknownModelError(UnknownNameError):
    """A model that is not in the ranking."""

    what = "model"


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Models in the order of their score on one task.

    Make one with `hubscout.rank` or open one with `Ranking.load`. It is a sequence of rows: `ranking[0]`,
    `ranking["timm/resnet50"]`, `for row in ranking`. `settings` are the arguments that the scores depend on,
    `environment` what they were computed with. A ranking that was interrupted is not `complete`.

    Example:
        >>> ranking = hubscout.rank(task, ["timm/resnet18*", "hf/facebook/dinov2-small"])  # doctest: +SKIP
        >>> ranking.best.identifier, ranking.top(3)  # doctest: +SKIP

    """

    task: TaskSummary
    metrics: tuple[str, ...]
    """Their names; the first orders the models."""
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...] = ()
    """Models that could not be ranked."""
    stages: tuple[Stage, ...] = ()
    """Of a progressive ranking."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    """How long it took."""
    complete: bool = True
    seed: int = 0
    """Of every random choice."""

    def __post_init__(self) -> None:
        twice = sorted(name for name, count in Counter(row.identifier for row in self.rows).items() if count > 1)
        if twice:
            raise InputError(f"rows: each model may occur once; twice came {', '.join(twice)}.")
        rows, comparison = in_order(self.rows, self.seed)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "_comparison", comparison)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, key: int | str) -> Row:
        if isinstance(key, int):
            return self.rows[key]
        for row in self.rows:
            if row.identifier == key:
                return row
        raise UnknownModelError(key, self.identifiers)

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The models, best first."""
        return tuple(row.identifier for row in self.rows)

    @property
    def best(self) -> Row:
        """The model of the highest score."""
        if not self.rows:
            reasons = "; ".join(f"{failure.identifier}: {failure.reason}" for failure in self.failures[:3])
            raise InputError(f"This ranking has no model that could be scored. {reasons}".strip())
        return self.rows[0]

    @property
    def tied_with_best(self) -> tuple[str, ...]:
        """The models that cannot be told apart from the best, itself first."""
        return tuple(row.identifier for row in self.rows if row.tied_with_best)

    @property
    def explains_labels(self) -> bool | None:
        """Whether any model knows more of the labels than base rates do; None where no gains are known.

        See `hubscout.runs.paired_comparison` for what counts.
        """
        return any_explains([row.odds for row in self.rows], len(self.task.target_names))

    @property
    def compared(self) -> tuple[Row, ...]:
        """The rows that were judged on the same data as the best: all but those dropped on the way."""
        return tuple(row for row in self.rows if row.dropped is None)

    def top(self, k: int) -> list[str]:
        """Identifiers of the `k` best models, or of all where there are fewer.

        Args:
            k: how many.

        Returns:
            The identifiers, the best first.

        Raises:
            InputError: `k` is less than 1.

        Example:
            >>> hubscout.tune(task, "timm/resnet18.a1_in1k", teachers=ranking.top(3))  # doctest: +SKIP

        """
        check_least("k", k)
        return list(self.identifiers[:k])

    def pairwise(self) -> np.ndarray:
        """How probable it is that one model is better than another.

        Where the first metric has no block scores there is no uncertainty to tell: 1, 0, or one half for equal scores.
        See `hubscout.runs.paired_comparison` for what the number means.

        Returns:
            (K, K): entry i, j is P(row i better than row j), of the rows of `compared` in their order.

        """
        comparison: Comparison | None = vars(self)["_comparison"]
        if comparison is not None:
            return comparison.pairwise
        scores = np.array([row.score for row in self.compared])
        return 0.5 + 0.5 * np.sign(scores[:, None] - scores[None, :])

    def within(
        self,
        *,
        max_params: float | str | None = None,
        max_flops: float | str | None = None,
        max_latency: float | str | None = None,
        max_bytes: float | str | None = None,
    ) -> Ranking:
        """The models that keep every limit, ranked among themselves.

        A model whose cost is not known does not keep a limit on it.

        Args:
            max_params: parameters, a number or a text such as "10M".
            max_flops: operations per sample, such as "2G".
            max_latency: seconds per sample, or a text such as "20ms".
            max_bytes: bytes of the weights, such as "100M".

        Returns:
            A ranking of those models.

        Raises:
            InputError: a limit is no such number or time.

        Example:
            >>> ranking.within(max_params="10M", max_latency="20ms").best.identifier  # doctest: +SKIP

        """
        wanted = check_limits(max_params=max_params, max_flops=max_flops, max_latency=max_latency, max_bytes=max_bytes)

        def keeps(row: Row) -> bool:
            costs = {name: getattr(row, name) for name in wanted}
            return all(costs[name] is not None and costs[name] <= wanted[name] for name in wanted)

        return replace(self, rows=tuple(row for row in self.rows if keeps(row)))

    def pareto(self, cost: CostName = "params") -> Ranking:
        """The models that no other beats in both score and `cost`; the cheapest is last.

        Args:
            cost: "params", "flops", "latency" or "bytes".

        Returns:
            A ranking of those models.

        Raises:
            InputError: there is no such cost.

        """
        check_choice("cost", cost, COSTS)
        known = [row for row in self.compared if getattr(row, COSTS[cost]) is not None]
        cheapest = float("inf")
        front = []
        for row in sorted(known, key=lambda row: (-row.score, getattr(row, COSTS[cost]))):
            price = getattr(row, COSTS[cost])
            if price < cheapest:
                front.append(row)
                cheapest = price
        return replace(self, rows=tuple(front))

    def agreement(self) -> MetricAgreement:
        """How far the metrics of this ranking order the models alike.

        Returns:
            A rank correlation for each pair of metrics.

        """
        return call("metric_agreement", self)

    def evaluate(self, reference: Mapping[str, float] | str | Path, *, better: Better = "higher") -> Evaluation:
        """Compare with known results of fine-tuning.

        Args:
            reference: results by identifier, or a CSV or JSON file of them.
            better: whether "higher" or "lower" results are better.

        Returns:
            How well each metric, and each baseline that never looked at the data, predicts the results.

        Raises:
            InputError: the results cannot be read, or fewer than two of the models have one.

        """
        return call("evaluate_ranking", self, reference, better=better)

    def to_frame(self) -> pd.DataFrame:
        """One line per model as a pandas data frame: scores as `score:NAME`, what the hub says as `card:NAME`.

        Returns:
            The data frame, the best model first.

        Raises:
            MissingDependencyError: pandas is not installed.

        """
        pandas = require("pandas", extra="tables", purpose="Ranking.to_frame")
        from hubscout.runs.ranking_storage import flatten

        return pandas.DataFrame([flatten(row) for row in self.rows])

    def save(self, folder: str | Path) -> Path:
        """Write `ranking.json` (and `scores.parquet` where pandas and pyarrow are installed) into `folder`.

        Args:
            folder: is made where it is not there.

        Returns:
            The path of `ranking.json`.

        Example:
            >>> ranking.save("run/")  # doctest: +SKIP

        """
        from hubscout.runs.ranking_storage import save_ranking

        return save_ranking(self, Path(folder))

    @classmethod
    def load(cls, path: str | Path, *, allow_code: bool = False) -> Ranking:
        """Open what `save` wrote.

        Args:
            path: the folder, or its `ranking.json`.
            allow_code: let the models that this file names run code (`python:` functions, `trust_remote_code`) when
                they are opened later, as teachers for instance; otherwise they open data only.

        Returns:
            The ranking.

        Raises:
            RunError: there is no ranking, it is damaged, or of another version.

        """
        from hubscout.runs.ranking_storage import load_ranking

        return load_ranking(Path(path), allow_code=allow_code)

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML page; it makes no network requests and opens from a file.

        Args:
            path: of the page.

        Returns:
            The path.

        Example:
            >>> ranking.report("report.html")  # doctest: +SKIP

        """
        return call("write_report", call("Run", ranking=self), path)

    def plot(self, what: str = "scores") -> Chart:
        """A chart for a notebook or a file: "scores", "cost", "metrics", "targets", "layers" or "convergence".

        Args:
            what: Which chart.

        Returns:
            A chart. A notebook shows it; `chart.save("cost.pdf")` writes it as SVG, PNG or PDF.

        Raises:
            InputError: No chart of this name, or the ranking has nothing to draw for it.
        """
        return call("draw", call("Run", ranking=self), what)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from call("renderables", self, options.max_width)

    def __repr__(self) -> str:
        first = f", first {self.rows[0].identifier!r}" if self.rows else ""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"Ranking({self.task.name!r}: {counted(len(self.rows), 'model')} by {self.metrics[0]}{first}{failed})"

    def __str__(self) -> str:
        return call("as_text", self)

    def _repr_html_(self) -> str:
        return call("as_html", self)


def check_limits(**limits: float | str | None) -> dict[str, float]:
    """The limits that were given, by the field of a row that they are on.

    >>> check_limits(max_params="10M", max_flops=None, max_latency="20ms")
    {'params': 10000000.0, 'latency_seconds': 0.02}
    """
    found = {}
    for name, most in limits.items():
        if most is not None and name == "max_latency":
            found["latency_seconds"] = parse_seconds(most, name)
        elif most is not None:
            found[name.removeprefix("max_")] = parse_count(most, name)
    return found
