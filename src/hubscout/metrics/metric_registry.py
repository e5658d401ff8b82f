"""The registry of metrics: what each needs and which kinds of task it serves. `scoring` calls them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hubscout.errors import UnknownMetricError, UnknownNameError
from hubscout.registry import Registry

if TYPE_CHECKING:
    from hubscout.evidence import Evidence

Level = Literal["model", "zoo"]
Need = Literal["features", "statistics", "logits", "card"]

ROW_KINDS = {
    "classification": "classification",
    "multilabel": "multilabel",
    "regression": "regression",
    "tagging": "classification",
}
"""The kinds of task, and what their rows taken one by one are to a metric."""
KINDS = tuple(ROW_KINDS)
CLASSES = tuple(kind for kind, rows in ROW_KINDS.items() if rows == "classification")
"""Kinds with one class per row."""


@dataclass(frozen=True)
class Score:
    """What a metric says of one model.

    `standard_error` is None where the metric has no cheap one. `details` holds what else came out of the
    computation; for LogME that is the whole `Evidence`, which `evidence` returns.

    Example:
        >>> Score(0.3, name="error", higher_is_better=False).signed_value
        -0.3

    """

    value: float
    """In the metric's own direction; `signed_value` is higher for better."""
    standard_error: float | None = None
    name: str = ""
    """Of the metric."""
    higher_is_better: bool = True
    """Which way it goes."""
    details: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def signed_value(self) -> float:
        """The value, turned round where lower is better: sort by this, largest first."""
        return self.value if self.higher_is_better else -self.value

    @property
    def evidence(self) -> Evidence | None:
        """The evidence that the score was read from, for metrics that maximise one."""
        return self.details.get("evidence")


@dataclass(frozen=True)
class Metric:
    """A registered metric.

    `needs` names the inputs that must be given. A metric that needs `statistics` also takes `features` in their
    place. A metric `from_evidence` is a function of the `Evidence` that LogME is: where that is given, nothing is
    computed again. At `level="zoo"` the function gives a mapping of parts for one model, and `combine` turns the parts
    of all models into one value each, because the value depends on which models stand beside it.

    Example:
        >>> from hubscout.metrics import METRICS
        >>> METRICS["leep"].needs
        ('logits',)

    """

    name: str
    """What users call it."""
    function: Callable[..., Any]
    needs: tuple[Need, ...]
    kinds: tuple[str, ...]
    """The kinds of task that it serves."""
    level: Level = "model"
    higher_is_better: bool = True
    """Which way it goes."""
    combine: Callable[[Mapping[str, Mapping[str, float]]], Mapping[str, float]] | None = None
    from_evidence: bool = False

    def __post_init__(self) -> None:
        if self.from_evidence and "statistics" not in self.needs:
            object.__setattr__(self, "needs", ("statistics", *self.needs))

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]


METRICS: Registry[Metric] = Registry("metric", UnknownMetricError, group="hubscout.metrics")


def metric(
    name: str,
    *,
    needs: tuple[Need, ...] | None = None,
    kinds: Iterable[str] = CLASSES,
    level: Level = "model",
    higher_is_better: bool = True,
    combine: Callable[[Mapping[str, Mapping[str, float]]], Mapping[str, float]] | None = None,
    from_evidence: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a metric; the function stays an ordinary function.

    The function takes, by name, those of `features`, `logits`, `statistics`, `card`, `evidence`, `groups`, `targets`
    and `kind` that stand in its signature, and its own options. It returns a float or a `Score`; at zoo level, a
    mapping of parts.

    Args:
        name: what users call it.
        needs: what must be given, `("features",)` by default.
        kinds: the kinds of task that it serves; those with one class per row by default.
        level: "model", or "zoo" for a metric whose values depend on which models stand beside each other.
        higher_is_better: which way it goes.
        combine: at zoo level: from the parts of all models to a value of each.
        from_evidence: the function takes `evidence`, `needs` names what it needs beside, and callers may give the
            options of the evidence: `center`, `solver`, `blocks`.

    Returns:
        A decorator that gives the function back.

    Raises:
        ValueError: a zoo-level metric without `combine`.

    Example:
        >>> @metric("mean-of-features", kinds=("regression",))  # doctest: +SKIP
        ... def mean_of_features(features):
        ...     return float(np.mean(features))

    """
    if level == "zoo" and combine is None:
        raise ValueError(f"The zoo-level metric {name!r} needs combine=.")

    wanted: tuple[Need, ...] = needs or (() if from_evidence else ("features",))

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        METRICS.add(name, Metric(name, function, wanted, tuple(kinds), level, higher_is_better, combine, from_evidence))
        return function

    return enter


def available(kind: str | None = None, *, level: Level | None = None) -> tuple[str, ...]:
    """The names of metrics, sorted.

    Args:
        kind: only those that serve this kind of task.
        level: only those of this level, "model" or "zoo".

    Returns:
        The names.

    Raises:
        UnknownKindError: there is no such kind of task.

    Example:
        >>> "leep" in available("classification"), "leep" in available("regression")
        (True, False)

    """
    if kind is not None:
        _check_kind(kind)
    return tuple(
        name
        for name in METRICS
        if (kind is None or kind in METRICS[name].kinds) and (level is None or METRICS[name].level == level)
    )


def lookup(name: str, kind: str) -> Metric:
    """A metric by name, if it serves a kind of task.

    Args:
        name: the metric.
        kind: the kind of task.

    Returns:
        The metric, with what it needs.

    Raises:
        UnknownMetricError: there is none, or it does not serve this kind; the message lists those that do.
        UnknownKindError: there is no such kind of task.

    Example:
        >>> lookup("leep", "classification").needs
        ('logits',)

    """
    _check_kind(kind)
    if name not in METRICS or kind not in METRICS[name].kinds:
        raise UnknownMetricError(name, available(kind), context=f"for {kind}")
    return METRICS[name]


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise UnknownKindError(kind, KINDS)


class UnknownKindError(UnknownNameError):
    """No such kind of task."""

    what = "kind of task"
