"""Is the ranking any good? Metrics against each other, and against what fine-tuning really gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import InputError
from hubscout.runs.ranking_storage import read_reference
from hubscout.text_table import text_table

if TYPE_CHECKING:
    from rich.table import Table

    from hubscout.evaluation import Agreement
    from hubscout.evaluation.correlation import Better
    from hubscout.runs.ranking import Ranking
    from hubscout.runs.row import Row

BASELINES: dict[str, Callable[[Row], Any]] = {
    "params": lambda row: row.params,
    "flops": lambda row: row.flops,
    "source_accuracy": lambda row: row.card.get("source_accuracy"),
    "downloads": lambda row: row.card.get("downloads"),
}
"""What is known of a model without a look at the data."""


@dataclass(frozen=True)
class MetricAgreement:
    """Rank correlation between the metrics of a ranking, each pair over the models that have both.

    Entries are NaN-free: a pair with fewer than two models in common, or with all scores equal, has 0.
    """

    metrics: tuple[str, ...]
    weighted_tau: np.ndarray
    kendall_tau: np.ndarray
    models: np.ndarray
    """How many models each pair was compared on."""


def metric_agreement(ranking: Ranking) -> MetricAgreement:
    """Compare the orders that the metrics give to the models that were scored on the same data."""
    from hubscout.evaluation import kendall_tau, weighted_tau

    names = ranking.metrics
    size = len(names)
    weighted, kendall, counts = np.eye(size), np.eye(size), np.zeros((size, size), dtype=int)
    for i, first in enumerate(names):
        for j, second in enumerate(names):
            rows = [row for row in ranking.compared if first in row.scores and second in row.scores]
            counts[i, j] = len(rows)
            if i == j:
                continue
            if len(rows) < 2:
                weighted[i, j] = kendall[i, j] = 0.0
                continue
            a, b = [row.scores[first] for row in rows], [row.scores[second] for row in rows]
            ways = {"score_better": _direction(first), "better": _direction(second)}
            weighted[i, j] = weighted_tau(a, b, **ways)
            kendall[i, j] = kendall_tau(a, b, **ways)
    return MetricAgreement(names, weighted, kendall, counts)


def _direction(metric: str) -> Better:
    from hubscout.metrics import METRICS

    return "higher" if metric not in METRICS or METRICS[metric].higher_is_better else "lower"


@dataclass(frozen=True)
class Evaluation:
    """How well each score predicts the reference. `baselines` never looked at the data and stand beside the metrics."""

    metrics: Mapping[str, Agreement]
    baselines: Mapping[str, Agreement]
    models: tuple[str, ...]
    missing: tuple[str, ...]
    """Models of the ranking that the reference does not have."""
    unused: tuple[str, ...]
    """Models of the reference that the ranking does not have."""


def evaluate_ranking(ranking: Ranking, reference: Mapping[str, float] | str | Path, *, better: Better) -> Evaluation:
    """Compare a ranking with known results."""
    from hubscout.evaluation import evaluate
    from hubscout.runs.texts import names_by_model

    known = dict(reference) if isinstance(reference, Mapping) else read_reference(Path(reference))
    # People copy names from the table, which calls models by short ones.
    whole = {short: identifier for identifier, short in names_by_model(ranking.identifiers).items()}
    known = {whole[name] if name in whole and whole[name] not in known else name: v for name, v in known.items()}
    rows = [row for row in ranking.compared if row.identifier in known]
    missing = tuple(row.identifier for row in ranking.compared if row.identifier not in known)
    if len(rows) < 2:
        raise InputError(
            f"reference has {len(rows)} of the {len(ranking.compared)} ranked models; at least 2 are needed. It names "
            f"{', '.join(list(known)[:5]) or 'none'}; the ranking has {', '.join(ranking.identifiers[:5])}."
        )

    def agreement(values: Sequence[Any], direction: Better = "higher", fewest: int = 2) -> Agreement | None:
        scores = {row.identifier: float(value) for row, value in zip(rows, values, strict=True) if value is not None}
        if len(scores) < fewest:
            return None
        return evaluate(scores, {name: known[name] for name in scores}, better=better, score_better=direction)

    metrics = {name: agreement([row.scores.get(name) for row in rows], _direction(name)) for name in ranking.metrics}
    # A baseline over other models than the metrics would not be a comparison.
    baselines = {name: agreement([of(row) for row in rows], fewest=len(rows)) for name, of in BASELINES.items()}
    return Evaluation(
        metrics={name: found for name, found in metrics.items() if found is not None},
        baselines={name: found for name, found in baselines.items() if found is not None},
        models=tuple(row.identifier for row in rows),
        missing=missing,
        unused=tuple(name for name in known if name not in ranking.identifiers),
    )


def evaluation_table(found: Evaluation) -> Table:
    """The evaluation for a terminal: metrics, then baselines, each with its interval and p-value."""
    from rich.text import Text

    from hubscout.runs.texts import names_by_model

    names = names_by_model(found.models)
    warnings = [agreement.warning for agreement in found.metrics.values() if agreement.warning]
    metrics, baselines = (
        [[names.get(cell, cell) for cell in (name, *one.cells, one.best_model)] for name, one in part.items()]
        for part in (found.metrics, found.baselines)
    )
    numbers = ("weighted tau", "95% interval", "p", "tau", "Rel@1")
    heads = ("score", *numbers, "it chose", "best is")
    table = text_table(heads, metrics, right=numbers, title=f"{len(found.models)} models", notes=warnings[:1])
    table.add_section()
    for row in baselines:
        table.add_row(*map(Text, row))
    return table
